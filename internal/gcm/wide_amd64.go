//go:build amd64 && !purego

package gcm

import (
	"crypto/cipher"
	"crypto/subtle"
	"errors"
	"slices"
	"unsafe"

	"golang.org/x/sys/cpu"
)

const (
	blockSize = 16
	nonceSize = 12
	tagSize   = 16

	// maxPlain is what a counter of 32 bits is enough for: one value is the tag's,
	// and SP 800-38D section 5.2.1.1 leaves out another.
	maxPlain = (1<<32 - 2) * blockSize
)

// wide is AES-GCM in 512-bit registers, one direction of one key.
type wide struct{ schedule }

// newWide gives nil where this implementation isn't for the processor or key.
func newWide(key []byte) cipher.AEAD {
	if !supported() || len(key) != 16 && len(key) != 32 {
		return nil
	}
	w := &wide{}
	w.expand(key)
	w.setPowers()
	return w
}

// supported asks for every extension that the assembly uses. Those of AVX-512
// are set only if the kernel saves the wide registers.
func supported() bool {
	x := &cpu.X86
	return x.HasAES && x.HasPCLMULQDQ && x.HasBMI2 && x.HasAVX && x.HasAVX2 && x.HasSSSE3 && x.HasSSE41 &&
		x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512VAES && x.HasAVX512VPCLMULQDQ
}

func (*wide) NonceSize() int { return nonceSize }
func (*wide) Overhead() int  { return tagSize }

// Seal implements cipher.AEAD.
func (w *wide) Seal(dst, nonce, plain, aad []byte) []byte {
	number := sized(nonce)
	if uint64(len(plain)) > maxPlain {
		panic("gcm: message too large")
	}
	whole, out := extend(dst, len(plain)+tagSize)
	check(out, plain, aad)
	seal(&w.schedule, out, plain, number, aad)
	return whole
}

var errOpen = errors.New("gcm: message authentication failed")

// Open implements cipher.AEAD. Text that doesn't authenticate is cleared.
func (w *wide) Open(dst, nonce, text, aad []byte) ([]byte, error) {
	number, n := sized(nonce), len(text)-tagSize
	if n < 0 || uint64(n) > maxPlain {
		return nil, errOpen
	}
	whole, out := extend(dst, n)
	check(out, text, aad)
	var tag [tagSize]byte
	open(&w.schedule, out, text[:n], number, aad, &tag)
	if subtle.ConstantTimeCompare(tag[:], text[n:]) != 1 {
		clear(out)
		return nil, errOpen
	}
	return whole, nil
}

// extend gives dst with n more bytes, and these alone.
func extend(dst []byte, n int) (whole, more []byte) {
	whole = slices.Grow(dst, n)[:len(dst)+n]
	return whole, whole[len(dst):]
}

func sized(nonce []byte) *[nonceSize]byte {
	if len(nonce) != nonceSize {
		panic("gcm: incorrect nonce length")
	}
	return (*[nonceSize]byte)(nonce)
}

// check panics where crypto/cipher does: bytes written over before they are read
// would be neither what was meant nor what was authenticated.
func check(out, in, aad []byte) {
	if overlap(out, in) && &out[0] != &in[0] {
		panic("gcm: invalid buffer overlap of output and input")
	}
	if overlap(out, aad) {
		panic("gcm: invalid buffer overlap of output and additional data")
	}
}

// overlap says whether a and b share a byte.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
