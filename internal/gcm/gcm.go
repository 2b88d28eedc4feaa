// Package gcm is AES-GCM (NIST SP 800-38D) for TLS records, with the nonces of
// 12 bytes and tags of 16 that they have.
//
// It exists because bulk mTLS spends a third of its time in crypto/cipher, whose
// amd64 code takes blocks one by one through 128-bit registers. Processors with
// VAES and VPCLMULQDQ take four at once; this package keeps sixteen in flight, and
// hashes the last sixteen while it encrypts the next.
//
// It assumes what crypto/cipher assumes: AES and carry-less multiplication are
// instructions, so time depends on lengths alone. Everything else is left to
// crypto/cipher: processors or kernels without AVX-512, other architectures, keys
// of 24 bytes, FIPS mode (this code is in no validated module), the tag purego.
package gcm

import (
	"crypto/cipher"
	"crypto/fips140"
)

// AEAD is a cipher.AEAD for texts that aren't in one place.
type AEAD interface {
	cipher.AEAD
	// SealWith is Seal of plain and end, one after the other. TLS 1.3 ends every
	// text with a byte; Seal would want all of it copied before that.
	SealWith(dst, nonce, plain, end, aad []byte) []byte
	// OpenDown is Open whose output may begin anywhere before text, and overlap it
	// and aad: records then are packed while they are decrypted. Output that begins
	// after text and overlaps it panics as in Open.
	OpenDown(dst, nonce, text, aad []byte) ([]byte, error)
}

// New makes an AEAD of an AES key. Its Seal and Open keep the contract of
// cipher.NewGCM, panics and limits included.
func New(key []byte) (AEAD, error) {
	if fips140.Enabled() {
		return newStandard(key)
	}
	if w := newWide(key); w != nil {
		return w, nil
	}
	return newStandard(key)
}
