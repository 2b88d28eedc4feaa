//go:build amd64 && !purego

package rsakey

// Montgomery's multiplication modulo m takes two numbers of n limbs to x·y/R, R =
// 2^(52·n). For each limb b of y it adds x·b to a sum and then the multiple of m that
// makes the sum's lowest limb zero, which it drops. Together these multiples are
// less than R·m. So what is left is less than (x·y + R·m)/R = m + x·y/R, and less
// than 2·m if x·y is less than R·m; the subtraction that would take it below m is
// left out (almost Montgomery multiplication, Gueron and Drucker).
//
// The sum's limbs are lanes of 64 bits. A product of two limbs has a low and a high
// half of 52 bits each, so a limb has at most four times 2^52 added per round, twenty
// or forty rounds long, and a carry: less than 2^60. Carries are settled at the end.

// moduli are two odd numbers and what makes multiples of them: -1/m modulo 2^52.
// The assembly knows the layout of this and of modulus.
type moduli struct {
	m       pair
	inverse [2]uint64
}

// modulus is the same of one number of forty limbs.
type modulus struct {
	m       wide
	inverse uint64
}

// multiply sets z to x·y/R modulo both. z may be x or y.
//
//go:noescape
func multiply(z, x, y *pair, m *moduli)

// square sets z to z·z/R modulo both, n times.
//
//go:noescape
func square(z *pair, m *moduli, n int)

// pick sets z to the first half of table[i] and the second of table[j]. It reads all
// of the table.
//
//go:noescape
func pick(z *pair, table *[1 << digitBits]pair, i, j uint64)

// multiplyWide sets z to x·y/R modulo m. z may be x or y.
//
//go:noescape
func multiplyWide(z, x, y *wide, m *modulus)
