//go:build !amd64 || purego

package gcm

import "crypto/cipher"

func newWide([]byte) cipher.AEAD { return nil }
