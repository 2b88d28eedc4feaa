//go:build amd64 && !purego

package rsakey

// Numbers are kept in limbs of 52 bits, the lowest first, because that is what
// IFMA multiplies. All of them are below 2^52 between the functions of this package.
const (
	limbBits = 52
	limbMask = 1<<limbBits - 1
)

type (
	narrow [20]uint64 // modulo a prime: 1040 bits
	wide   [40]uint64 // modulo the modulus: 2080 bits
	pair   [2]narrow  // modulo the first prime and the second
)

// split reads a number as bytes, the highest first, into limbs.
func split(z []uint64, b []byte) {
	clear(z)
	for i := range b {
		at := 8 * (len(b) - 1 - i)
		limb, shift := at/limbBits, at%limbBits
		v := uint64(b[i]) << shift
		z[limb] |= v & limbMask
		if shift > limbBits-8 {
			z[limb+1] |= v >> limbBits
		}
	}
}

// join is the reverse of split.
func join(b []byte, x []uint64) {
	for i := range b {
		at := 8 * (len(b) - 1 - i)
		limb, shift := at/limbBits, at%limbBits
		v := x[limb] >> shift
		if shift > limbBits-8 {
			v |= x[limb+1] << (limbBits - shift)
		}
		b[i] = byte(v)
	}
}

// add sets z to z + x, which must have room in z's limbs.
func add(z, x []uint64) {
	var carry uint64
	for i := range z {
		carry += z[i]
		if i < len(x) {
			carry += x[i]
		}
		z[i] = carry & limbMask
		carry >>= limbBits
	}
}

// subtract sets z to z - x, and gives all ones if that is negative, else zero. A
// negative one is left as what it is modulo the power of two that ends z's limbs.
func subtract(z, x []uint64) (negative uint64) {
	var borrow int64
	for i := range z {
		borrow += int64(z[i]) - int64(x[i])
		z[i] = uint64(borrow) & limbMask
		borrow >>= limbBits
	}
	return uint64(borrow)
}

// reduce takes z, which is less than 2·m, to less than m. It adds m again, or zero,
// rather than to branch.
func reduce(z, m []uint64) {
	negative := subtract(z, m)
	var carry uint64
	for i := range z {
		carry += z[i] + m[i]&negative
		z[i] = carry & limbMask
		carry >>= limbBits
	}
}

// double sets z to 2·z modulo m, n times. z is less than m.
func double(z, m []uint64, n int) {
	for range n {
		add(z, z)
		reduce(z, m)
	}
}

// negativeInverse gives -1/m modulo 2^52 for an odd m. Newton's iteration doubles
// the bits that are right, of which m itself has three.
func negativeInverse(m uint64) uint64 {
	x := m
	for range 5 {
		x *= 2 - m*x
	}
	return -x & limbMask
}
