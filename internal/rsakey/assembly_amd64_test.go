//go:build !purego

package rsakey

func assembly() bool { return supported() }
