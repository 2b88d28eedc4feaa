//go:build amd64 && !purego

package rsakey

import (
	"crypto"
	"crypto/rsa"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"io"
)

// digestInfo gives the DER of a DigestInfo up to the digest, for the hashes that
// RFC 8017 appendix A.2.4 lists and TLS uses.
func digestInfo(h crypto.Hash) string {
	switch h {
	case crypto.SHA1:
		return "\x30\x21\x30\x09\x06\x05\x2b\x0e\x03\x02\x1a\x05\x00\x04\x14"
	case crypto.SHA224:
		return "\x30\x2d\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x04\x05\x00\x04\x1c"
	case crypto.SHA256:
		return "\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
	case crypto.SHA384:
		return "\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30"
	case crypto.SHA512:
		return "\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40"
	}
	return ""
}

// encodePKCS1v15 is EMSA-PKCS1-v1_5 (RFC 8017 section 9.2): 0, 1, ones, 0, the
// DigestInfo.
func encodePKCS1v15(h crypto.Hash, digest []byte) ([]byte, bool) {
	prefix := digestInfo(h)
	if prefix == "" || len(digest) != h.Size() {
		return nil, false
	}
	em := make([]byte, size)
	end := size - len(prefix) - len(digest)
	em[1] = 1
	for i := 2; i < end-1; i++ {
		em[i] = 0xff
	}
	copy(em[end:], prefix)
	copy(em[size-len(digest):], digest)
	return em, true
}

// saltLength says how long the salt is; not whether crypto/rsa would refuse it.
func saltLength(o *rsa.PSSOptions, digest []byte) (int, bool) {
	if o == nil || !o.Hash.Available() || len(digest) != o.Hash.Size() {
		return 0, false
	}
	n, most := o.SaltLength, size-2-len(digest)
	switch n {
	case rsa.PSSSaltLengthAuto:
		n = most
	case rsa.PSSSaltLengthEqualsHash:
		n = len(digest)
	}
	return n, n >= 0 && n <= most
}

// encodePSS is EMSA-PSS (RFC 8017 section 9.1.1) for the 2047 bits below the
// modulus's first: padding, 1 and the salt, masked; the hash that makes the mask;
// 0xbc.
func encodePSS(random io.Reader, hash crypto.Hash, digest []byte, saltLen int) ([]byte, error) {
	em, h := make([]byte, size), hash.New()
	masked := em[:size-1-len(digest)]
	salt := masked[len(masked)-saltLen:]
	if _, err := io.ReadFull(random, salt); err != nil {
		return nil, err
	}
	masked[len(masked)-saltLen-1] = 1
	h.Write(make([]byte, 8))
	h.Write(digest)
	h.Write(salt)
	seed := h.Sum(masked)[len(masked):]
	maskMGF1(masked, h, seed)
	em[0] &= 0x7f
	em[size-1] = 0xbc
	return em, nil
}

// maskMGF1 adds the mask of a seed that MGF1 makes (RFC 8017 appendix B.2.1).
func maskMGF1(out []byte, h hash.Hash, seed []byte) {
	var room [64]byte
	for i := uint32(0); len(out) > 0; i++ {
		h.Reset()
		h.Write(seed)
		h.Write(binary.BigEndian.AppendUint32(room[:0], i))
		out = out[subtle.XORBytes(out, out, h.Sum(room[:0])):]
	}
}
