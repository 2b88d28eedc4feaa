package gcm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestTampering changes every bit of all that is authenticated. Nothing of the
// plaintext may stay.
func TestTampering(t *testing.T) {
	r := rand.NewChaCha8([32]byte{3})
	for _, size := range []int{16, 32} {
		each(t, random(r, size), func(t *testing.T, a AEAD) {
			for _, n := range []int{0, 1, 40, 300, 600} {
				nonce, plain, aad := random(r, 12), bytes.Repeat([]byte("U"), n), random(r, 21)
				sealed := a.Seal(nil, nonce, plain, aad)
				for name, part := range map[string][]byte{"text": sealed[:n], "tag": sealed[n:], "nonce": nonce, "aad": aad} {
					for bit := range 8 * len(part) {
						part[bit/8] ^= 1 << (bit % 8)
						refused(t, fmt.Sprintf("%s, bit %d of %d bytes", name, bit, n), a, nonce, sealed, aad)
						part[bit/8] ^= 1 << (bit % 8)
					}
				}
				for short := range min(n+16, 40) {
					refused(t, "cut short", a, nonce, sealed[:short], aad)
					refused(t, "its end alone", a, nonce, sealed[len(sealed)-short:], aad)
				}
				refused(t, "longer", a, nonce, append(sealed[:len(sealed):len(sealed)], 0), aad)
				refused(t, "less aad", a, nonce, sealed, aad[:20])
				refused(t, "more aad", a, nonce, sealed, append(aad[:21:21], 0))
				if got, err := a.Open(nil, nonce, sealed, aad); err != nil || !bytes.Equal(got, plain) {
					t.Fatal("the message itself is refused", err)
				}
			}
		})
	}
}

// refused opens to a separate buffer and in place: there must be an error, no
// result, and zeros where the plaintext would be.
func refused(t *testing.T, what string, a AEAD, nonce, sealed, aad []byte) {
	t.Helper()
	n := max(0, len(sealed)-16)
	out := bytes.Repeat([]byte{0xaa}, 4+n+8)
	got, err := a.Open(out[:4], nonce, sealed, aad)
	if got != nil || err == nil {
		t.Fatalf("%s: opened", what)
	}
	want := append(append([]byte{0xaa, 0xaa, 0xaa, 0xaa}, make([]byte, n)...), 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa)
	if !bytes.Equal(out, want) {
		t.Fatalf("%s: left %x", what, out)
	}
	in := bytes.Clone(sealed)
	if got, err := a.Open(in[:0], nonce, in, aad); got != nil || err == nil || !bytes.Equal(in[:n], make([]byte, n)) {
		t.Fatalf("%s: in place, left %x", what, in[:n])
	}
	for _, by := range []int{1, 64, n} {
		buf := append(make([]byte, by), sealed...)
		if got, err := a.OpenDown(buf[:0], nonce, buf[by:], aad); got != nil || err == nil || bytes.Contains(buf, []byte("UUUUUU")) {
			t.Fatalf("%s: %d lower, left %x", what, by, buf)
		}
	}
}

// TestOverlap says which buffers may share bytes: none but an input and an
// output that begin at one place.
func TestOverlap(t *testing.T) {
	r := rand.NewChaCha8([32]byte{4})
	each(t, random(r, 16), func(t *testing.T, a AEAD) {
		const n = 300
		buf, nonce := make([]byte, 2000), make([]byte, 12)
		for d := -n - 20; d <= n+20; d++ {
			in, out := buf[500:500+n], buf[500+d:500+d:500+d+n+16]
			want := d != 0 && d < n && -d < n+16
			if panics(func() { a.Seal(out, nonce, in, nil) }) != want {
				t.Errorf("seal: output %d bytes after input", d)
			}
			if panics(func() { a.Seal(out, nonce, buf[1500:1500+n], in) }) != (d < n && -d < n+16) {
				t.Errorf("seal: output %d bytes after aad", d)
			}
			if panics(func() { a.OpenDown(out, nonce, in, nil) }) != (d > 0 && d < n) {
				t.Errorf("open downward: output %d bytes after input", d)
			}
			if panics(func() { a.SealWith(out, nonce, in[:n-9], buf[:9], nil) }) != (d != 0 && d < n-9 && -d < n+16) {
				t.Errorf("seal with an end: output %d bytes after input", d)
			}
			if panics(func() { a.SealWith(out, nonce, buf[1500:1500+n-9], in[:9], nil) }) != (d < 9 && -d < n+16) {
				t.Errorf("seal with an end: output %d bytes after that", d)
			}
			want = d != 0 && d < n && -d < n-16
			if panics(func() { a.Open(out, nonce, in, nil) }) != want {
				t.Errorf("open: output %d bytes after input", d)
			}
			if panics(func() { a.Open(out, nonce, buf[1500:1500+n], in) }) != (d < n && -d < n-16) {
				t.Errorf("open: output %d bytes after aad", d)
			}
		}
		// Bytes beyond what is written may be anyone's; an empty output is nobody's.
		if panics(func() { a.Seal(buf[:0], nonce, nil, buf[16:30]) }) || panics(func() { a.Open(buf[:0], nonce, buf[8:24], buf[:9]) }) {
			t.Error("buffers that only touch are refused")
		}
	})
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestNonceLength(t *testing.T) {
	each(t, make([]byte, 16), func(t *testing.T, a AEAD) {
		for n := range 20 {
			for what, f := range map[string]func(){
				"seal":         func() { a.Seal(nil, make([]byte, n), nil, nil) },
				"open":         func() { _, _ = a.Open(nil, make([]byte, n), make([]byte, 16), nil) },
				"downward":     func() { _, _ = a.OpenDown(nil, make([]byte, n), make([]byte, 16), nil) },
				"open nothing": func() { _, _ = a.Open(nil, make([]byte, n), nil, nil) },
			} {
				if panics(f) != (n != 12) {
					t.Errorf("%s with a nonce of %d bytes", what, n)
				}
			}
		}
	})
}
