//go:build !purego

package rsakey

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"math/big"
	"testing"
)

func newTestKey(t testing.TB, key *rsa.PrivateKey) *fast {
	t.Helper()
	f, ok := newFast(key).(*fast)
	if !ok {
		t.Fatal("no fast signer for this key")
	}
	return f
}

// raises compares a private operation with math/big's, and verifies it.
func raises(t *testing.T, f *fast, m *big.Int) {
	t.Helper()
	var in, out wide
	setNumber(in[:], m)
	f.private.raise(&out, &in, &f.public.modulus)
	if want := new(big.Int).Exp(m, f.key.D, f.key.N); number(out[:]).Cmp(want) != 0 {
		t.Fatalf("%x is raised to\n%x, want\n%x", m, number(out[:]), want)
	}
	if !f.public.verifies(&out, &in) {
		t.Fatalf("%x doesn't verify", m)
	}
	if in[3] ^= 1; f.public.verifies(&out, &in) {
		t.Fatalf("%x verifies with another message", m)
	}
}

// TestRaiseAtEdges has messages about the primes and their multiples.
func TestRaiseAtEdges(t *testing.T) {
	needs(t)
	for name, key := range keys(t) {
		t.Run(name, func(t *testing.T) {
			f := newTestKey(t, key)
			p, q := key.Primes[0], key.Primes[1]
			list := append(edges(p, 1024), edges(q, 1024)...)
			list = append(list, power2(1040), new(big.Int).Sub(power2(1040), big.NewInt(1)), power2(2047), new(big.Int).Sub(power2(2047), big.NewInt(1)),
				new(big.Int).Mul(p, new(big.Int).Sub(q, big.NewInt(1))), new(big.Int).Mul(q, new(big.Int).Sub(p, big.NewInt(1))),
				new(big.Int).Sub(key.N, big.NewInt(1)), new(big.Int).Sub(key.N, big.NewInt(2)), new(big.Int).Rsh(key.N, 1))
			for range 20 {
				m, err := rand.Int(rand.Reader, key.N)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, m)
			}
			for _, m := range list {
				raises(t, f, m)
			}
		})
	}
}

// TestVerifiesNothingElse tries numbers near a signature, and those that Montgomery's
// form might take for it.
func TestVerifiesNothingElse(t *testing.T) {
	needs(t)
	f := newTestKey(t, fixed(t, "key1"))
	m := wide{7: 12345}
	var s wide
	f.private.raise(&s, &m, &f.public.modulus)
	for i := range s {
		for bit := range limbBits {
			if i == 39 && bit > 15 { // the modulus ends there
				break
			}
			wrong := s
			if wrong[i] ^= 1 << bit; f.public.verifies(&wrong, &m) {
				t.Fatalf("limb %d, bit %d", i, bit)
			}
		}
	}
	if f.public.verifies(&wide{}, &m) || f.public.verifies(&m, &m) || !f.public.verifies(&wide{}, &wide{}) || !f.public.verifies(&wide{1}, &wide{1}) {
		t.Error("zero, one or the message")
	}
}

// TestFaults changes every kind of number that a signature is made from: there must
// be an error and no signature.
func TestFaults(t *testing.T) {
	needs(t)
	for name, spoil := range map[string]func(k *private){
		"exponent of p":       func(k *private) { k.exponent[0][100] ^= 1 },
		"exponent of q":       func(k *private) { k.exponent[1][204] ^= 16 },
		"p":                   func(k *private) { k.m[0][5] ^= 2 },
		"q":                   func(k *private) { k.m[1][5] ^= 2 },
		"inverse of p":        func(k *private) { k.inverse[0] ^= 4 },
		"inverse of q":        func(k *private) { k.inverse[1] ^= 4 },
		"one":                 func(k *private) { k.one[1][0] ^= 1 },
		"square":              func(k *private) { k.square[0][19] ^= 1 },
		"cube":                func(k *private) { k.cube[1][9] ^= 1 },
		"q's inverse":         func(k *private) { k.qInverse[0][0] ^= 1 },
		"q modulo both":       func(k *private) { k.second[30] ^= 1 },
		"both primes swapped": func(k *private) { k.m[0], k.m[1] = k.m[1], k.m[0] },
	} {
		key := fixed(t, "key1")
		f := newTestKey(t, key)
		spoil(&f.private)
		digest := bytes.Repeat([]byte{3}, 32)
		for _, opts := range []crypto.SignerOpts{crypto.SHA256, &rsa.PSSOptions{Hash: crypto.SHA256}} {
			if sig, err := f.Sign(rand.Reader, digest, opts); sig != nil || !errors.Is(err, errFault) {
				t.Errorf("%s: %x, %v", name, sig, err)
			}
		}
	}
}

// TestLimbs are read and written as math/big does.
func TestLimbs(t *testing.T) {
	for range 100 {
		b, back := make([]byte, size), make([]byte, size)
		rand.Read(b)
		var z wide
		if split(z[:], b); number(z[:]).Cmp(new(big.Int).SetBytes(b)) != 0 {
			t.Fatalf("%x", b)
		}
		if join(back, z[:]); !bytes.Equal(b, back) {
			t.Fatalf("%x, %x", b, back)
		}
	}
}

// TestReduce is for numbers about a modulus and its double.
func TestReduce(t *testing.T) {
	for _, m := range []*big.Int{new(big.Int).Sub(power2(1024), big.NewInt(105)), new(big.Int).Add(power2(1023), big.NewInt(1)), new(big.Int).Add(power2(1023), power2(52))} {
		for _, x := range edges(m, 1024) {
			if x.Cmp(new(big.Int).Lsh(m, 1)) >= 0 {
				continue
			}
			var z, n narrow
			setNumber(z[:], x)
			setNumber(n[:], m)
			if reduce(z[:], n[:]); number(z[:]).Cmp(new(big.Int).Mod(x, m)) != 0 {
				t.Errorf("%x modulo %x: %x", x, m, number(z[:]))
			}
		}
	}
}

// TestNothingIsLeft of a signature in the memory for the next.
func TestNothingIsLeft(t *testing.T) {
	needs(t)
	f := newTestKey(t, fixed(t, "key1"))
	for range 10 {
		raises(t, f, big.NewInt(12345))
		if w, ok := f.private.spare.Get().(*work); ok && *w != (work{}) {
			t.Fatal("powers are left")
		}
	}
}
