//go:build amd64 && !purego

package rsakey

import (
	"crypto/rsa"
	"math/big"
	"sync"
)

// Exponents are read in digits of five bits, the highest first.
const (
	digitBits = 5
	digits    = (8*primeSize + digitBits - 1) / digitBits
)

// private is what the primes p and q of a key become. Each pair is modulo them.
//
// Below, R is 2^1040, and Montgomery's form of x is x·R. A product is less than
// m + x·y/R (see montgomery_amd64.go), and R is more than 2^16·m. So operands that
// are less than 4·m give less than 2·m, and those in turn are good operands.
type private struct {
	moduli
	one      pair             // R, reduced
	square   pair             // R^2, reduced: takes a number to Montgomery's form
	cube     pair             // R^3: takes a number to that times R
	qInverse pair             // of q modulo p, in Montgomery's form; nothing modulo q
	exponent [2][digits]uint8 // the private one modulo p-1 and q-1
	second   wide             // q in public's Montgomery form

	// spare has *work, cleared. On the stack it would stay with a handshake that
	// waits for its peer, of which there may be thousands.
	spare sync.Pool
}

func (k *private) set(key *rsa.PrivateKey, pub *public) {
	var b [primeSize]byte
	for i, dp := range []*big.Int{key.Precomputed.Dp, key.Precomputed.Dq} {
		m := &k.m[i]
		split(m[:], key.Primes[i].FillBytes(b[:]))
		k.inverse[i] = negativeInverse(m[0])
		k.one[i][(8*primeSize-1)/limbBits] = 1 << ((8*primeSize - 1) % limbBits) // 2^1023 < m
		double(k.one[i][:], m[:], 1040-(8*primeSize-1))
		k.square[i] = k.one[i]
		double(k.square[i][:], m[:], 65)
		setDigits(&k.exponent[i], dp.FillBytes(b[:]))
	}
	square(&k.square, &k.moduli, 4) // 2^65 to the power of 2^4 is R
	reduce(k.square[0][:], k.m[0][:])
	reduce(k.square[1][:], k.m[1][:])
	multiply(&k.cube, &k.square, &k.square, &k.moduli)
	split(k.qInverse[0][:], key.Precomputed.Qinv.FillBytes(b[:]))
	multiply(&k.qInverse, &k.qInverse, &k.square, &k.moduli)
	split(k.second[:], key.Primes[1].FillBytes(b[:]))
	multiplyWide(&k.second, &k.second, &pub.square, &pub.modulus)
	clear(b[:])
}

// setDigits takes an exponent apart.
func setDigits(d *[digits]uint8, exponent []byte) {
	for bit := range 8 * len(exponent) {
		v := exponent[len(exponent)-1-bit/8] >> (bit % 8) & 1
		d[digits-1-bit/digitBits] |= v << (bit % digitBits)
	}
}

// work is what raise writes on its way.
type work struct {
	powers [1 << digitBits]pair
	x, y   pair
}

// raise sets s to m raised to the private exponent, by the Chinese remainder
// theorem. m is less than n's modulus.
func (k *private) raise(s, m *wide, n *modulus) {
	w, ok := k.spare.Get().(*work)
	if !ok {
		w = new(work)
	}
	k.enter(w, m)
	k.power(w)
	multiply(&w.x, &w.x, &pair{{1}, {1}}, &k.moduli)
	reduce(w.x[0][:], k.m[0][:])
	reduce(w.x[1][:], k.m[1][:])
	k.recombine(s, w, n)
	*w = work{}
	k.spare.Put(w)
}

// enter sets w.x to m in Montgomery's form: m is low + high·R. low is less than R and
// square less than p; high is less than R/2^32 and cube less than 2·p. So both
// products are less than 2·p, and w.x is less than 4·p.
func (k *private) enter(w *work, m *wide) {
	low, high := narrow(m[:20]), narrow(m[20:])
	multiply(&w.x, &pair{low, low}, &k.square, &k.moduli)
	multiply(&w.y, &pair{high, high}, &k.cube, &k.moduli)
	add(w.x[0][:], w.y[0][:])
	add(w.x[1][:], w.y[1][:])
}

// power raises w.x to the exponents. For a digit of zero it multiplies by one.
func (k *private) power(w *work) {
	w.powers[0], w.powers[1] = k.one, w.x
	for i := 2; i < len(w.powers); i++ {
		multiply(&w.powers[i], &w.powers[i-1], &w.x, &k.moduli)
	}
	pick(&w.x, &w.powers, uint64(k.exponent[0][0]), uint64(k.exponent[1][0]))
	for i := 1; i < digits; i++ {
		pick(&w.y, &w.powers, uint64(k.exponent[0][i]), uint64(k.exponent[1][i]))
		square(&w.x, &k.moduli, digitBits)
		multiply(&w.x, &w.x, &w.y, &k.moduli)
	}
}

// recombine is Garner's formula (RFC 8017 section 5.2.1, 2.b.iii and iv): with both
// remainders in w.x, h is their difference over q modulo p, and s is the second plus
// h·q. The difference gets 2·p on top, which is more than q, so that it isn't
// negative; it is less than 3·p. As h is less than p, h·q and s are less than the
// modulus, and a product modulo it is the product.
func (k *private) recombine(s *wide, w *work, n *modulus) {
	p, q := w.x[0][:], w.x[1][:]
	add(p, k.m[0][:])
	add(p, k.m[0][:])
	subtract(p, q)
	w.y = pair{w.x[0]}
	multiply(&w.y, &w.y, &k.qInverse, &k.moduli)
	reduce(w.y[0][:], k.m[0][:])
	*s = wide{}
	copy(s[:], w.y[0][:])
	multiplyWide(s, s, &k.second, n)
	reduce(s[:], n.m[:])
	add(s[:], q)
}
