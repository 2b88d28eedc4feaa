//go:build linux && (amd64 || arm64)

package gcm

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// fenced is memory between two pages that fault.
type fenced struct{ b []byte }

func fence(t *testing.T, size int) fenced {
	t.Helper()
	page := os.Getpagesize()
	size = (size + page - 1) / page * page
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
	return fenced{b[page : page+size : page+size]}
}

// put places p right after the lower guard, or right before the upper one. What
// is around it in the page is one pattern, so that a write is seen as well.
func (f fenced) put(p []byte, high bool) []byte {
	for i := range f.b {
		f.b[i] = 0xa5
	}
	at := 0
	if high {
		at = len(f.b) - len(p)
	}
	copy(f.b[at:], p)
	return f.b[at : at+len(p) : at+len(p)]
}

// untouched says whether nothing but the n bytes at one end changed.
func (f fenced) untouched(n int, high bool) bool {
	rest := f.b[n:]
	if high {
		rest = f.b[:len(f.b)-n]
	}
	return bytes.Count(rest, []byte{0xa5}) == len(rest)
}

// TestEndsOfMemory has every buffer end, or begin, where memory does.
func TestEndsOfMemory(t *testing.T) {
	r := rand.NewChaCha8([32]byte{5})
	in, out, more, number := fence(t, 4096), fence(t, 4096), fence(t, 4096), fence(t, 4096)
	lengths := []int{1023, 1024, 1025, 2047, 2048, 3000, 4070, 4071}
	for n := range 300 {
		lengths = append(lengths, n)
	}
	for _, size := range []int{16, 32} {
		key := random(r, size)
		std, err := newStandard(key)
		if err != nil {
			t.Fatal(err)
		}
		each(t, key, func(t *testing.T, a AEAD) {
			for _, n := range lengths {
				for _, high := range []bool{false, true} {
					plain := random(r, n)
					aad, nonce := more.put(random(r, n%37), high), number.put(random(r, 12), high)
					want := std.Seal(nil, nonce, plain, aad)
					got := a.Seal(out.put(make([]byte, n+16), high)[:0], nonce, in.put(plain, high), aad)
					if !bytes.Equal(got, want) || !out.untouched(n+16, high) || !in.untouched(n, high) {
						t.Fatalf("seal %d bytes, upper end %v", n, high)
					}
					last := random(r, 1)
					got = a.SealWith(out.put(make([]byte, n+17), high)[:0], nonce, in.put(plain, high), last, aad)
					if !bytes.Equal(got, std.Seal(nil, nonce, append(plain[:n:n], last[0]), aad)) || !out.untouched(n+17, high) || !in.untouched(n, high) {
						t.Fatalf("seal %d bytes and one, upper end %v", n, high)
					}
					got, err := a.Open(out.put(make([]byte, n), high)[:0], nonce, in.put(want, high), aad)
					if err != nil || !bytes.Equal(got, plain) || !out.untouched(n, high) || !in.untouched(n+16, high) {
						t.Fatalf("open %d bytes, upper end %v: %v", n, high, err)
					}
					whole := in.put(append(make([]byte, 9), want...), high)
					got, err = a.OpenDown(whole[:0], nonce, whole[9:], aad)
					if err != nil || !bytes.Equal(got, plain) || !in.untouched(n+25, high) {
						t.Fatalf("open %d bytes downward, upper end %v: %v", n, high, err)
					}
				}
			}
		})
	}
}

// TestLimits seals and opens one byte more than the counter reaches, in memory
// that isn't there: nothing may touch it.
func TestLimits(t *testing.T) {
	const most = (1<<32 - 2) * blockSize
	huge, err := unix.Mmap(-1, 0, most+tagSize+1, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		t.Log("no 64 GB of addresses here:", err)
		return
	}
	defer func() { _ = unix.Munmap(huge) }()
	nonce := make([]byte, nonceSize)
	each(t, make([]byte, 16), func(t *testing.T, a AEAD) {
		if !panics(func() { a.Seal(huge[:0], nonce, huge[:most+1], nil) }) || !panics(func() { a.SealWith(nil, nonce, huge[:most], nonce[:1], nil) }) {
			t.Error("a message too long is sealed")
		}
		if _, err := a.Open(huge[:0], nonce, huge, nil); err == nil {
			t.Error("a message too long is opened")
		}
		if _, err := a.OpenDown(huge[:0], nonce, huge, nil); err == nil {
			t.Error("a message too long is opened downward")
		}
	})
}
