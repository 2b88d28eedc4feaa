package rsakey

import (
	"crypto"
	"crypto/fips140"
	"crypto/rsa"
	"math/big"
	"testing"
)

// supportedHere says whether common keys have a fast signer in this process.
func supportedHere() bool { return !fips140.Enabled() && assembly() }

// TestFallback says which keys are crypto/rsa's alone.
func TestFallback(t *testing.T) {
	bare := fixed(t, "key1")
	bare.Precomputed = rsa.PrecomputedValues{}
	wrong := fixed(t, "key1")
	wrong.Precomputed.Dp = new(big.Int).Add(wrong.Precomputed.Dp, big.NewInt(2))
	other := fixed(t, "key1")
	other.N = fixed(t, "key2").N
	for name, key := range map[string]*rsa.PrivateKey{
		"1024 bits":                      generated(t, 1024),
		"3072 bits":                      generated(t, 3072),
		"three primes":                   fromPrimes(t, 65537, primeOf(t, 683, 65537), primeOf(t, 683, 65537), primeOf(t, 682, 65537)),
		"primes of different lengths":    fromPrimes(t, 65537, primeOf(t, 1020, 65537), primeOf(t, 1028, 65537)),
		"nothing is precomputed":         bare,
		"what is precomputed is wrong":   wrong,
		"the modulus is of another key":  other,
		"there is nothing but an object": {},
	} {
		if f := Fast(key); f != crypto.Signer(key) {
			t.Errorf("%s: %T", name, f)
		}
	}
}
