//go:build !amd64 || purego

package gcm

func newWide([]byte) AEAD { return nil }
