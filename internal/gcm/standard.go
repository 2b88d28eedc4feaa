package gcm

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"slices"
)

const (
	blockSize = 16
	nonceSize = 12
	tagSize   = 16

	// maxPlain is what a counter of 32 bits is enough for: one value is the tag's,
	// and SP 800-38D section 5.2.1.1 leaves out another.
	maxPlain = (1<<32 - 2) * blockSize
)

// standard is crypto/cipher's.
type standard struct{ cipher.AEAD }

func newStandard(key []byte) (AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making cipher: %w", err)
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("making AEAD: %w", err)
	}
	return &standard{a}, nil
}

// SealWith implements AEAD. Everything is copied.
func (s *standard) SealWith(dst, nonce, plain, end, aad []byte) []byte {
	whole, out := extend(dst, limited(len(plain)+len(end))+tagSize)
	check(out, plain, end, aad)
	n := copy(out, plain)
	n += copy(out[n:], end)
	return s.Seal(whole[:len(dst)], nonce, out[:n], aad)
}

// OpenDown implements AEAD. The plaintext is moved once it is authentic.
func (s *standard) OpenDown(dst, nonce, text, aad []byte) ([]byte, error) {
	whole, out := extend(dst, max(0, len(text)-tagSize))
	checkDown(out, text)
	plain, err := s.Open(text[:0], nonce, text, aad)
	if err != nil {
		return nil, err
	}
	copy(out, plain)
	return whole, nil
}

func limited(n int) int {
	if uint64(n) > maxPlain {
		panic("gcm: message too large")
	}
	return n
}

// extend gives dst with n more bytes, and these alone.
func extend(dst []byte, n int) (whole, more []byte) {
	whole = slices.Grow(dst, n)[:len(dst)+n]
	return whole, whole[len(dst):]
}
