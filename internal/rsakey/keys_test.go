package rsakey

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
)

// fixed is a key that costs no time to make.
func fixed(t testing.TB, name string) *rsa.PrivateKey {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".pem")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(b)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*rsa.PrivateKey)
}

func generated(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// fromPrimes makes a key of any shape.
func fromPrimes(t testing.TB, e int, primes ...*big.Int) *rsa.PrivateKey {
	t.Helper()
	n, phi := big.NewInt(1), big.NewInt(1)
	for _, p := range primes {
		n.Mul(n, p)
		phi.Mul(phi, new(big.Int).Sub(p, big.NewInt(1)))
	}
	d := new(big.Int).ModInverse(big.NewInt(int64(e)), phi)
	key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: n, E: e}, D: d, Primes: primes}
	key.Precompute()
	if err := key.Validate(); err != nil {
		t.Fatal(err)
	}
	return key
}

// primeFrom is the first prime at or after a number, in steps of two, that e can be
// used with.
func primeFrom(x *big.Int, step int64, e int) *big.Int {
	x = new(big.Int).SetBit(x, 0, 1)
	for {
		less := new(big.Int).Sub(x, big.NewInt(1))
		if x.ProbablyPrime(10) && new(big.Int).GCD(nil, nil, less, big.NewInt(int64(e))).IsInt64() && new(big.Int).GCD(nil, nil, less, big.NewInt(int64(e))).Int64() == 1 {
			return x
		}
		x.Add(x, big.NewInt(step))
	}
}

func primeOf(t testing.TB, bits, e int) *big.Int {
	t.Helper()
	p, err := rand.Prime(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return primeFrom(p, 2, e)
}

func power2(n uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), n) }

// keys are those that a fast signer is for: common ones, with the exponents that
// crypto/rsa takes, with primes at the ends of their range, in both orders.
func keys(t testing.TB) map[string]*rsa.PrivateKey {
	high := new(big.Int).Sub(power2(1024), big.NewInt(105))
	other := primeFrom(new(big.Int).Sub(high, power2(1000)), -2, 65537)
	low := primeFrom(new(big.Int).Add(power2(1023), big.NewInt(1<<20)), 2, 65537)
	return map[string]*rsa.PrivateKey{
		"fixed 1":            fixed(t, "key1"),
		"fixed 2":            fixed(t, "key2"),
		"random":             generated(t, 2048),
		"e=3":                fromPrimes(t, 3, primeOf(t, 1024, 3), primeOf(t, 1024, 3)),
		"e=5":                fromPrimes(t, 5, primeOf(t, 1024, 5), primeOf(t, 1024, 5)),
		"e=2^31-1":           fromPrimes(t, 1<<31-1, primeOf(t, 1024, 1<<31-1), primeOf(t, 1024, 1<<31-1)),
		"high primes":        fromPrimes(t, 65537, high, other),
		"low and high prime": fromPrimes(t, 65537, low, high),
		"high and low prime": fromPrimes(t, 65537, high, low),
	}
}
