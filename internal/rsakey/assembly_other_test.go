//go:build !amd64 || purego

package rsakey

func assembly() bool { return false }
