//go:build amd64 && !purego

package rsakey

import (
	"crypto/rsa"
	"math/big"
	"math/bits"
)

// public is what a public key becomes. Here R is 2^2080, more than 2^32 times the
// modulus; the rest is as with private.
type public struct {
	modulus
	square wide // R^2 modulo the modulus
	e      uint
}

func (k *public) set(pub *rsa.PublicKey) {
	var b [size]byte
	split(k.m[:], pub.N.FillBytes(b[:]))
	k.inverse = negativeInverse(k.m[0])
	r := new(big.Int).Lsh(big.NewInt(1), 2*2080)
	split(k.square[:], r.Mod(r, pub.N).FillBytes(b[:]))
	k.e = uint(pub.E)
}

// verifies says whether s, a number less than the modulus, is a signature of m. It
// raises s in Montgomery's form to e/2, which it squares and multiplies by s in its
// plain form: e is odd. That gives the plain form, less than twice the modulus.
func (k *public) verifies(s, m *wide) bool {
	var base, x wide
	multiplyWide(&base, s, &k.square, &k.modulus)
	x = base
	for i := bits.Len(k.e) - 2; i > 0; i-- {
		multiplyWide(&x, &x, &x, &k.modulus)
		if k.e>>i&1 == 1 {
			multiplyWide(&x, &x, &base, &k.modulus)
		}
	}
	multiplyWide(&x, &x, &x, &k.modulus)
	multiplyWide(&x, &x, s, &k.modulus)
	reduce(x[:], k.m[:])
	var differ uint64
	for i := range x {
		differ |= x[i] ^ m[i]
	}
	return differ == 0
}
