// Package rsakey makes signatures of RSA-2048 keys (RFC 8017) for TLS handshakes.
//
// It exists because a handshake with such a key is mostly its signature, and
// crypto/rsa's takes a millisecond: it multiplies words one by one. Processors with
// AVX-512 IFMA multiply eight at once; this package keeps both primes in work so
// that one fills the time in which the other waits.
//
// What it signs is what crypto/rsa would sign, with its errors. Everything else is
// left to crypto/rsa: other sizes, keys of more primes, other hashes, decryption;
// processors or kernels without IFMA, other architectures, FIPS mode (this code is
// in no validated module), the tag purego.
//
// Time and addresses don't depend on secrets, by construction: every number has a
// fixed count of limbs, every loop a fixed count of turns, the exponents are read
// in digits of five bits, and for each digit the whole table of powers is read and
// masked. Reductions, carries and the joining of both halves are arithmetic with
// masks. The exponent of the public key is public, and branched on. When a key is
// loaded, math/big only copies its numbers out, as crypto/rsa has it do.
//
// No signature leaves that doesn't verify: one made with a miscalculated half
// would give the primes away (Boneh, DeMillo and Lipton 1997).
package rsakey

import (
	"crypto"
	"crypto/fips140"
	"crypto/rsa"
)

// Fast gives a signer that makes the same signatures as key, or key itself where
// this package has nothing faster. The signer is a crypto.Decrypter as well, and
// safe for concurrent use. key may not be changed any more.
func Fast(key *rsa.PrivateKey) crypto.Signer {
	if fips140.Enabled() {
		return key
	}
	if f := newFast(key); f != nil {
		return f
	}
	return key
}
