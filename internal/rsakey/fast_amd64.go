//go:build amd64 && !purego

package rsakey

import (
	"crypto"
	"crypto/rsa"
	"errors"
	"io"

	"golang.org/x/sys/cpu"
)

// size is how many bytes the modulus has, primeSize each prime.
const (
	size      = 256
	primeSize = size / 2
)

// fast is a key whose signatures are made in 512-bit registers.
type fast struct {
	key     *rsa.PrivateKey
	private private
	public  public
}

// newFast gives nil where this implementation isn't for the processor or key.
func newFast(key *rsa.PrivateKey) crypto.Signer {
	if !supported() || !suitable(key) || key.Validate() != nil {
		return nil
	}
	f := &fast{key: key}
	f.public.set(&key.PublicKey)
	f.private.set(key, &f.public)
	return f
}

// supported asks for every extension that the assembly uses. Those of AVX-512
// are set only if the kernel saves the wide registers.
func supported() bool {
	x := &cpu.X86
	return x.HasAVX && x.HasAVX2 && x.HasAVX512F && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512IFMA
}

// suitable asks for two primes of half the modulus's length. Those of a valid key
// are odd and no longer than the modulus, as the arithmetic needs it.
func suitable(key *rsa.PrivateKey) bool {
	p := &key.Precomputed
	if key.N == nil || key.N.BitLen() != 8*size || len(key.Primes) != 2 || p.Dp == nil || p.Dq == nil || p.Qinv == nil {
		return false
	}
	return key.Primes[0].BitLen() == 8*primeSize && key.Primes[1].BitLen() == 8*primeSize
}

// Public implements crypto.Signer; it gives an *rsa.PublicKey.
func (f *fast) Public() crypto.PublicKey { return f.key.Public() }

// Decrypt implements crypto.Decrypter.
func (f *fast) Decrypt(random io.Reader, text []byte, opts crypto.DecrypterOpts) ([]byte, error) {
	return f.key.Decrypt(random, text, opts)
}

// Sign implements crypto.Signer. What isn't encoded here is crypto/rsa's, its
// errors included.
func (f *fast) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if o, ok := opts.(*rsa.PSSOptions); ok {
		if n, ok := saltLength(o, digest); ok {
			em, err := encodePSS(random, o.Hash, digest, n)
			if err != nil {
				return nil, err
			}
			return f.sign(em)
		}
	} else if em, ok := encodePKCS1v15(opts.HashFunc(), digest); ok {
		return f.sign(em)
	}
	return f.key.Sign(random, digest, opts)
}

var errFault = errors.New("rsakey: signature miscalculated")

// sign is RSASP1 (RFC 8017 section 5.2.1). The message is overwritten by its
// signature; it is less than the modulus, whose first bit is set.
func (f *fast) sign(em []byte) ([]byte, error) {
	var m, s wide
	split(m[:], em)
	f.private.raise(&s, &m, &f.public.modulus)
	if !f.public.verifies(&s, &m) {
		return nil, errFault
	}
	join(em, s[:])
	return em, nil
}
