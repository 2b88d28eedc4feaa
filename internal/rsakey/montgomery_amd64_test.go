//go:build !purego

package rsakey

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// needs skips what only the assembly does.
func needs(t testing.TB) {
	t.Helper()
	if !supported() {
		t.Skip("the processor has no AVX-512 IFMA")
	}
}

func number(limbs []uint64) *big.Int {
	z := new(big.Int)
	for i := len(limbs) - 1; i >= 0; i-- {
		z.Lsh(z, limbBits).Or(z, new(big.Int).SetUint64(limbs[i]))
	}
	return z
}

func setNumber(z []uint64, x *big.Int) {
	x = new(big.Int).Set(x)
	for i := range z {
		z[i] = new(big.Int).And(x, big.NewInt(limbMask)).Uint64()
		x.Rsh(x, limbBits)
	}
}

// below gives a number less than 2^bits: a random one, or one of few ones, few
// zeros, or limbs that are all or nothing.
func below(r *rand.Rand, bits int) *big.Int {
	z := new(big.Int)
	switch r.IntN(5) {
	case 0:
		for range r.IntN(3) {
			z.SetBit(z, r.IntN(bits), 1)
		}
	case 1:
		z.Sub(power2(uint(bits)), big.NewInt(1))
		for range r.IntN(3) {
			z.SetBit(z, r.IntN(bits), 0)
		}
	case 2:
		for range bits/limbBits + 1 {
			z.Lsh(z, limbBits).Or(z, new(big.Int).SetUint64(-(r.Uint64()&1)&limbMask))
		}
		z.And(z, new(big.Int).Sub(power2(uint(bits)), big.NewInt(1)))
	default:
		for range bits/64 + 1 {
			z.Lsh(z, 64).Or(z, new(big.Int).SetUint64(r.Uint64()))
		}
		z.Rsh(z, uint(z.BitLen()-min(bits, z.BitLen())))
	}
	return z
}

// oddModulus has its first bit set.
func oddModulus(r *rand.Rand, bits int) *big.Int {
	z := below(r, bits)
	return z.SetBit(z.SetBit(z, 0, 1), bits-1, 1)
}

// product fails if z isn't x·y/2^bits modulo m, with limbs below 2^52, or not in
// the bound that montgomery_amd64.go proves.
func product(t *testing.T, what string, bits uint, z []uint64, x, y, m *big.Int) {
	t.Helper()
	for _, l := range z {
		if l > limbMask {
			t.Fatalf("%s: a limb is %x", what, l)
		}
	}
	xy, got := new(big.Int).Mul(x, y), number(z)
	most := new(big.Int).Rsh(xy, bits)
	if got.Cmp(most.Add(most, m).Add(most, big.NewInt(1))) >= 0 {
		t.Fatalf("%s: %x·%x mod %x is over the bound: %x", what, x, y, m, got)
	}
	got.Lsh(got, bits)
	if got.Sub(got, xy).Mod(got, m).Sign() != 0 {
		t.Fatalf("%s: %x·%x mod %x: %x", what, x, y, m, number(z))
	}
}

func moduliOf(m [2]*big.Int) (k moduli) {
	for i := range m {
		setNumber(k.m[i][:], m[i])
		k.inverse[i] = negativeInverse(k.m[i][0])
	}
	return k
}

// both multiplies numbers modulo two moduli in every way that multiply is used.
func both(t *testing.T, m, x, y [2]*big.Int) {
	t.Helper()
	k, a, b, z := moduliOf(m), pair{}, pair{}, pair{}
	for i := range m {
		setNumber(a[i][:], x[i])
		setNumber(b[i][:], y[i])
	}
	multiply(&z, &a, &b, &k)
	for i := range m {
		product(t, "multiply", 1040, z[i][:], x[i], y[i], m[i])
	}
	left, right, same, squared := a, b, a, a
	multiply(&left, &left, &b, &k)
	multiply(&right, &a, &right, &k)
	if left != z || right != z {
		t.Fatal("the product depends on where it goes")
	}
	square(&squared, &k, 1)
	multiply(&same, &same, &same, &k)
	if squared != same {
		t.Fatal("a square isn't the product of equals")
	}
	for range 4 {
		multiply(&same, &same, &same, &k)
	}
	if square(&squared, &k, 4); squared != same {
		t.Fatal("squaring four times isn't four times squaring")
	}
}

func one(t *testing.T, m, x, y *big.Int) {
	t.Helper()
	var k modulus
	var a, b, z wide
	setNumber(k.m[:], m)
	k.inverse = negativeInverse(k.m[0])
	setNumber(a[:], x)
	setNumber(b[:], y)
	multiplyWide(&z, &a, &b, &k)
	product(t, "multiplyWide", 2080, z[:], x, y, m)
	left, right := a, b
	multiplyWide(&left, &left, &b, &k)
	multiplyWide(&right, &a, &right, &k)
	if left != z || right != z {
		t.Fatal("the wide product depends on where it goes")
	}
}

func TestMultiply(t *testing.T) {
	needs(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var m, x, y [2]*big.Int
		for i := range m {
			m[i], x[i], y[i] = oddModulus(r, 1024), below(r, 1040), below(r, 1024)
		}
		both(t, m, x, y)
	}
}

func TestMultiplyWide(t *testing.T) {
	needs(t)
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		one(t, oddModulus(r, 2048), below(r, 2080), below(r, 2048))
	}
}

// edges are the numbers about a modulus where something might tip over.
func edges(m *big.Int, bits uint) []*big.Int {
	all := []*big.Int{big.NewInt(0), big.NewInt(1), power2(bits - 1), new(big.Int).Sub(power2(bits), big.NewInt(1)), power2(52), big.NewInt(limbMask)}
	for k := int64(1); k < 4; k++ {
		for d := int64(-1); d < 2; d++ {
			x := new(big.Int).Mul(m, big.NewInt(k))
			all = append(all, x.Add(x, big.NewInt(d)))
		}
	}
	return all
}

func TestMultiplyAtEdges(t *testing.T) {
	needs(t)
	for _, size := range []uint{1024, 2048} {
		for _, m := range []*big.Int{
			new(big.Int).Add(power2(size-1), big.NewInt(1)),
			new(big.Int).Sub(power2(size), big.NewInt(1)),
			new(big.Int).Sub(power2(size), power2(52)).SetBit(new(big.Int).Sub(power2(size), power2(52)), 0, 1),
			new(big.Int).Add(power2(size-1), big.NewInt(limbMask)),
		} {
			for _, x := range edges(m, size) {
				for _, y := range edges(m, size) {
					if size == 1024 {
						both(t, [2]*big.Int{m, m}, [2]*big.Int{x, y}, [2]*big.Int{y, x})
					} else {
						one(t, m, x, y)
					}
				}
			}
		}
	}
}

// TestCarriesRunFar has products with long runs of limbs that are zero or all ones:
// by R modulo m a number is itself. Before carries are settled, such limbs are those
// that pass a carry on.
func TestCarriesRunFar(t *testing.T) {
	needs(t)
	r := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		m, n := oddModulus(r, 1024), oddModulus(r, 2048)
		for at := 0; at < 2047; at += 1 + r.IntN(100) {
			x := power2(uint(at))
			for _, x := range []*big.Int{x, new(big.Int).Sub(x, big.NewInt(1)), new(big.Int).Add(x, below(r, 1+at/2))} {
				if at < 1023 {
					y := new(big.Int).Mod(power2(1040), m)
					both(t, [2]*big.Int{m, m}, [2]*big.Int{x, y}, [2]*big.Int{y, x})
				}
				one(t, n, x, new(big.Int).Mod(power2(2080), n))
			}
		}
	}
}

func FuzzMultiply(f *testing.F) {
	needs(f)
	f.Add([]byte{1}, []byte{2}, []byte{3}, []byte{4})
	f.Fuzz(func(t *testing.T, m, n, x, y []byte) {
		cut := func(b []byte, bits uint) *big.Int {
			z := new(big.Int).SetBytes(b)
			return z.Mod(z, power2(bits))
		}
		odd := func(b []byte, bits uint) *big.Int {
			z := cut(b, bits)
			return z.SetBit(z.SetBit(z, 0, 1), int(bits-1), 1)
		}
		both(t, [2]*big.Int{odd(m, 1024), odd(n, 1024)}, [2]*big.Int{cut(x, 1040), cut(y, 1040)}, [2]*big.Int{cut(y, 1024), cut(x, 1024)})
		one(t, odd(append(m, n...), 2048), cut(append(x, y...), 2080), cut(append(y, x...), 2048))
	})
}

func TestPickReadsWhatIsAsked(t *testing.T) {
	needs(t)
	var table [1 << digitBits]pair
	r := rand.New(rand.NewPCG(5, 6))
	for i := range table {
		for j := range table[i] {
			for l := range table[i][j] {
				table[i][j][l] = r.Uint64()
			}
		}
	}
	for i := range table {
		for j := range table {
			var z pair
			if pick(&z, &table, uint64(i), uint64(j)); z != (pair{table[i][0], table[j][1]}) {
				t.Fatalf("%d and %d", i, j)
			}
		}
	}
}

func BenchmarkMultiply(b *testing.B) {
	needs(b)
	r := rand.New(rand.NewPCG(7, 8))
	k := moduliOf([2]*big.Int{oddModulus(r, 1024), oddModulus(r, 1024)})
	n := modulus{m: wide{1, 39: 1 << 19}, inverse: limbMask}
	var x, y pair
	var w wide
	var table [1 << digitBits]pair
	b.Run("multiply", func(b *testing.B) {
		for b.Loop() {
			multiply(&x, &x, &y, &k)
		}
	})
	b.Run("square five times", func(b *testing.B) {
		for b.Loop() {
			square(&x, &k, 5)
		}
	})
	b.Run("pick", func(b *testing.B) {
		for b.Loop() {
			pick(&x, &table, 3, 4)
		}
	})
	b.Run("multiplyWide", func(b *testing.B) {
		for b.Loop() {
			multiplyWide(&w, &w, &w, &n)
		}
	})
}
