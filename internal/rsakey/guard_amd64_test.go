//go:build linux && !purego

package rsakey

import (
	"math/big"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fenced puts a copy of a value right after a page that faults, or right before one.
func fenced[T any](t *testing.T, v T, high bool) *T {
	t.Helper()
	page, n := os.Getpagesize(), int(unsafe.Sizeof(v))
	size := (n + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	for _, guard := range [][]byte{b[:page], b[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	at := page
	if high {
		at += size - n
	}
	p := (*T)(unsafe.Pointer(&b[at]))
	*p = v
	return p
}

// TestEndsOfMemory has every operand end, or begin, where memory does.
func TestEndsOfMemory(t *testing.T) {
	needs(t)
	r := rand.New(rand.NewPCG(9, 10))
	k := moduliOf([2]*big.Int{oddModulus(r, 1024), oddModulus(r, 1024)})
	n := modulus{m: wide{1, 39: 1 << 19}, inverse: limbMask}
	x, y := pair{{1, 2, 3}, {4, 5, 6}}, pair{{7, 19: 8}, {9, 19: 10}}
	var table [1 << digitBits]pair
	table[31], table[0] = x, y
	for _, high := range []bool{false, true} {
		var want pair
		multiply(&want, &x, &y, &k)
		z := fenced(t, pair{}, high)
		if multiply(z, fenced(t, x, high), fenced(t, y, high), fenced(t, k, high)); *z != want {
			t.Error("multiply", high)
		}
		square(&want, &k, 3)
		if square(z, fenced(t, k, high), 3); *z != want {
			t.Error("square", high)
		}
		if pick(z, fenced(t, table, high), 31, 0); *z != (pair{x[0], y[1]}) {
			t.Error("pick", high)
		}
		var product wide
		multiplyWide(&product, &wide{1, 2, 39: 3}, &wide{4, 39: 5}, &n)
		w := fenced(t, wide{}, high)
		if multiplyWide(w, fenced(t, wide{1, 2, 39: 3}, high), fenced(t, wide{4, 39: 5}, high), fenced(t, n, high)); *w != product {
			t.Error("multiplyWide", high)
		}
	}
}
