//go:build amd64 && !purego

package gcm

import (
	"encoding/binary"
	"math/bits"
)

// stride is how many bytes are in work at once.
const stride = 256

// block is 16 bytes as the assembly has them in a register: word 0 is the lower.
type block [2]uint64

// schedule is what a key becomes. The assembly knows its layout, and reads past
// the end of powers, into keys, where it multiplies by zero.
type schedule struct {
	powers [17]block // of the hash key H: H^17 first, H last, all over x
	keys   [15]block // round keys; those of AES-128 are the first 11
	rounds int
}

// expand is the key expansion of FIPS 197 section 5.2, without a table.
func (s *schedule) expand(key []byte) {
	var w [60]uint32 // words as they lie in memory
	n := len(key) / 4
	s.rounds = n + 6
	for i := range n {
		w[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	rcon := uint32(1)
	for i := n; i < 4*(s.rounds+1); i++ {
		t := w[i-1]
		switch {
		case i%n == 0:
			t = bits.RotateLeft32(subWord(t), -8) ^ rcon
			rcon <<= 1 // at most ten times: AES-128 ends with 0x36 = 2·0x80 mod 0x11b
			rcon ^= rcon >> 8 * 0x11b
		case n == 8 && i%n == 4:
			t = subWord(t)
		}
		w[i] = w[i-n] ^ t
	}
	for i := range s.rounds + 1 {
		k := w[4*i:]
		s.keys[i] = block{uint64(k[0]) | uint64(k[1])<<32, uint64(k[2]) | uint64(k[3])<<32}
	}
}

// setPowers fills powers from the round keys.
//
// A block is a polynomial whose coefficient of x^0 is the first bit of the first
// byte (SP 800-38D section 6.3): with the bytes turned around, bit 127. The
// carry-less product of two such numbers is one place short, as if it were times
// x. So one factor, always a power of H, is kept divided by x.
func (s *schedule) setPowers() {
	var zero, h block
	encryptBlock(s, &h, &zero)
	hi, lo := bits.ReverseBytes64(h[0]), bits.ReverseBytes64(h[1])
	// Over x is a place to the left. A coefficient of x^0 would fall out; then
	// the field's polynomial is added before, x^128 + x^7 + x^2 + x + 1.
	odd := -(hi >> 63)
	s.powers[16] = block{lo<<1 ^ odd&1, hi<<1 | lo>>63}
	s.powers[16][1] ^= odd & (0xc2 << 56)
	for i := 15; i >= 0; i-- {
		multiply(&s.powers[i], &s.powers[i+1], &s.powers[16])
	}
}

// subWord applies the S-box to each byte.
//
//go:noescape
func subWord(w uint32) uint32

// encryptBlock is AES itself.
//
//go:noescape
func encryptBlock(s *schedule, dst, src *block)

// multiply gives x·y·x^1 in the field: for two that are kept over x, their
// product over x.
//
//go:noescape
func multiply(z, x, y *block)

// seal encrypts src and tail to dst and appends the tag, for which dst has room.
// src is a multiple of stride long, tail is shorter than it.
//
//go:noescape
func seal(s *schedule, dst, src, tail []byte, nonce *[nonceSize]byte, aad []byte)

// open decrypts src, which is without its tag, to dst and computes the tag. It
// reads all of aad before it writes, and of src at least as far as it writes.
//
//go:noescape
func open(s *schedule, dst, src []byte, nonce *[nonceSize]byte, aad []byte, tag *[tagSize]byte)
