package gcm

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// same compares all that w does to a message with what std does: in separate
// buffers and in place, after a prefix, at alignments that differ.
func same(t *testing.T, std, w AEAD, nonce, plain, aad []byte, off int) {
	t.Helper()
	n := len(plain)
	want := std.Seal(nil, nonce, plain, aad)

	src, dst := aligned(n, off), aligned(3+n+tagLen, off/5)
	copy(src, plain)
	copy(dst, "pre")
	got := w.Seal(dst[:3], nonce, src, aad)
	if !bytes.Equal(got[3:], want) || string(got[:3]) != "pre" || &got[0] != &dst[0] || !bytes.Equal(src, plain) {
		t.Fatalf("seal: %d bytes, %d of aad, alignment %d", n, len(aad), off)
	}
	sealed, out := got[3:], aligned(3+n, off)
	copy(out, "pre")
	opened, err := w.Open(out[:3], nonce, sealed, aad)
	if err != nil || !bytes.Equal(opened[3:], plain) || string(opened[:3]) != "pre" || &opened[0] != &out[0] || !bytes.Equal(sealed, want) {
		t.Fatalf("open: %d bytes, %d of aad, alignment %d: %v", n, len(aad), off, err)
	}

	buf := aligned(5+n+tagLen, off)
	copy(buf[5:], plain)
	if got := w.Seal(buf[:5], nonce, buf[5:5+n], aad); !bytes.Equal(got[5:], want) {
		t.Fatalf("seal in place: %d bytes, %d of aad, alignment %d", n, len(aad), off)
	}
	if got, err := w.Open(buf[5:5], nonce, buf[5:], aad); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("open in place: %d bytes, %d of aad, alignment %d: %v", n, len(aad), off, err)
	}
	if got := w.Seal(nil, nonce, plain, aad); !bytes.Equal(got, want) {
		t.Fatalf("seal to a new slice: %d bytes", n)
	}
	for _, by := range []int{0, 1, 5, 17, 63, 64, 65, 255, 256, 257, n + 16, n + 40} {
		downward(t, std, w, nonce, plain, aad, want, by)
	}
	for _, end := range []int{0, 1, 2, 17, 255, 256, 300, n} {
		if end <= n {
			inPieces(t, std, w, nonce, plain, aad, want, n-end)
		}
	}
}

// inPieces seals plain[:at] and the rest apart, and in place.
func inPieces(t *testing.T, std, w AEAD, nonce, plain, aad, want []byte, at int) {
	t.Helper()
	for _, a := range []AEAD{std, w} {
		dst := append(make([]byte, 0, 3+len(want)), "pre"...)
		if got := a.SealWith(dst, nonce, plain[:at], plain[at:], aad); !bytes.Equal(got[3:], want) || string(got[:3]) != "pre" || &got[0] != &dst[0] {
			t.Fatalf("%T: seal %d and %d bytes", a, at, len(plain)-at)
		}
		copy(dst[3:cap(dst)], plain[:at])
		if got := a.SealWith(dst, nonce, dst[3:3+at], plain[at:], aad); !bytes.Equal(got[3:], want) {
			t.Fatalf("%T: seal %d and %d bytes in place", a, at, len(plain)-at)
		}
		if got := a.SealWith(nil, nonce, plain[:at], plain[at:], aad); !bytes.Equal(got, want) {
			t.Fatalf("%T: seal %d and %d bytes to a new slice", a, at, len(plain)-at)
		}
	}
}

// downward opens to a place that is lower by some bytes, aad and the output of an
// earlier record between.
func downward(t *testing.T, std, w AEAD, nonce, plain, aad, sealed []byte, by int) {
	t.Helper()
	for _, a := range []AEAD{std, w} {
		buf := make([]byte, 3+by+len(aad)+len(sealed)+8)
		before := buf[:min(by, 3)]
		at := len(before) + by + len(aad)
		copy(buf[at-len(aad):], aad)
		copy(buf[at:], sealed)
		copy(before, "pre")
		got, err := a.OpenDown(before, nonce, buf[at:at+len(sealed)], buf[at-len(aad):at])
		if err != nil || !bytes.Equal(got[len(before):], plain) || string(got[:len(before)]) != "pre"[:len(before)] || &got[:1][0] != &buf[0] {
			t.Fatalf("%T: open %d bytes, %d lower, %d of aad: %v", a, len(plain), by, len(aad), err)
		}
		if !bytes.Equal(buf[at+len(sealed):], make([]byte, len(buf)-at-len(sealed))) {
			t.Fatalf("%T: open %d bytes, %d lower: wrote beyond", a, len(plain), by)
		}
	}
}

const tagLen = 16

func sizes(t *testing.T, f func(t *testing.T, r *rand.ChaCha8, std, w AEAD)) {
	for _, size := range []int{16, 32} {
		r := rand.NewChaCha8([32]byte{byte(size)})
		for range 4 {
			std, w := both(t, r, size)
			f(t, r, std, w)
		}
	}
}

func TestEveryLength(t *testing.T) {
	sizes(t, func(t *testing.T, r *rand.ChaCha8, std, w AEAD) {
		for n := range 1101 {
			same(t, std, w, random(r, 12), random(r, n), random(r, n%65), n*7%64)
		}
	})
}

func TestEveryLengthOfAAD(t *testing.T) {
	sizes(t, func(t *testing.T, r *rand.ChaCha8, std, w AEAD) {
		for _, n := range []int{0, 1, 16, 63, 64, 65, 255, 256, 257, 1025} {
			for a := range 65 {
				same(t, std, w, random(r, 12), random(r, n), random(r, a), a)
			}
			for _, a := range []int{127, 255, 256, 257, 511, 512, 4095, 4096, 65537} {
				same(t, std, w, random(r, 12), random(r, n), random(r, a), a%64)
			}
		}
	})
}

func TestEveryAlignment(t *testing.T) {
	sizes(t, func(t *testing.T, r *rand.ChaCha8, std, w AEAD) {
		for off := range 64 {
			for _, n := range []int{13, 64, 200, 256, 700, 1025} {
				same(t, std, w, random(r, 12), random(r, n), random(r, 5), off)
			}
		}
	})
}

// TestLongMessages carries the counter into its second and third byte.
func TestLongMessages(t *testing.T) {
	sizes(t, func(t *testing.T, r *rand.ChaCha8, std, w AEAD) {
		for range 40 {
			n := int(r.Uint64() % 40001)
			same(t, std, w, random(r, 12), random(r, n), random(r, int(r.Uint64()%100)), n%64)
		}
		for _, n := range []int{4064, 4080, 4096, 16384, 16385, 16640, 1<<20 - 33, 1 << 20, 1<<20 + 17} {
			same(t, std, w, bytes.Repeat([]byte{0xff}, 12), random(r, n), random(r, 5), n%64)
		}
	})
}

// TestExtremeKeys has keys and texts whose bits are all but one equal.
func TestExtremeKeys(t *testing.T) {
	for _, size := range []int{16, 32} {
		for bit := range 8 * size {
			for _, fill := range []byte{0, 0xff} {
				key := bytes.Repeat([]byte{fill}, size)
				key[bit/8] ^= 1 << (bit % 8)
				std, err := newStandard(key)
				if err != nil {
					t.Fatal(err)
				}
				w, err := New(key)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{0, 33, 300} {
					same(t, std, w, bytes.Repeat([]byte{fill}, 12), bytes.Repeat([]byte{^fill}, n), bytes.Repeat([]byte{fill}, 5), 0)
				}
			}
		}
	}
}

func FuzzSameAsStandard(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), []byte("nonce nonce "), []byte("plain"), []byte("aad"), uint16(0))
	f.Add(make([]byte, 32), make([]byte, 12), make([]byte, 600), make([]byte, 5), uint16(77))
	f.Fuzz(func(t *testing.T, key, nonce, text, aad []byte, change uint16) {
		std, err := newStandard(key)
		w, err2 := New(key)
		if (err == nil) != (err2 == nil) {
			t.Fatal(err, err2)
		}
		if err != nil || len(nonce) != 12 {
			return
		}
		same(t, std, w, nonce, text, aad, int(change)%64)
		// The same text taken for a sealed one, and one changed by a bit.
		agree(t, std, w, nonce, text, aad)
		sealed := std.Seal(nil, nonce, text, aad)
		sealed[int(change)/8%len(sealed)] ^= 1 << (change % 8)
		agree(t, std, w, nonce, sealed, aad)
	})
}

// agree opens what hardly authenticates both ways.
func agree(t *testing.T, std, w AEAD, nonce, sealed, aad []byte) {
	t.Helper()
	a, err := std.Open(nil, nonce, sealed, aad)
	b, err2 := w.Open(nil, nonce, sealed, aad)
	for _, x := range []AEAD{std, w} {
		if c, err3 := x.OpenDown(nil, nonce, bytes.Clone(sealed), aad); !bytes.Equal(a, c) || (err == nil) != (err3 == nil) {
			t.Fatalf("%T: %x %v, downward %x %v", x, a, err, c, err3)
		}
	}
	if !bytes.Equal(a, b) || (err == nil) != (err2 == nil) || (a == nil) != (b == nil) {
		t.Fatalf("%x %v, %x %v", a, err, b, err2)
	}
}
