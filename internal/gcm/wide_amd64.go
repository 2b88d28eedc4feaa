//go:build amd64 && !purego

package gcm

import (
	"crypto/subtle"
	"errors"

	"golang.org/x/sys/cpu"
)

// wide is AES-GCM in 512-bit registers, one direction of one key.
type wide struct{ schedule }

// newWide gives nil where this implementation isn't for the processor or key.
func newWide(key []byte) AEAD {
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
	return w.SealWith(dst, nonce, plain, nil, aad)
}

// SealWith implements AEAD. Only what doesn't fill a stride is copied.
func (w *wide) SealWith(dst, nonce, plain, end, aad []byte) []byte {
	number, n := sized(nonce), len(plain)+len(end)
	whole, out := extend(dst, limited(n)+tagSize)
	check(out, plain, end, aad)
	at := n &^ (stride - 1)
	src, tail := plain, plain[min(at, len(plain)):]
	if len(end) > 0 {
		from := at
		if at > len(plain) { // end is not in the tail alone
			from, src = 0, out
		}
		copy(out[from:], plain[from:])
		copy(out[len(plain):], end)
		tail = out[at:n]
	}
	seal(&w.schedule, out, src[:at], tail, number, aad)
	return whole
}

var errOpen = errors.New("gcm: message authentication failed")

// Open implements cipher.AEAD.
func (w *wide) Open(dst, nonce, text, aad []byte) ([]byte, error) {
	return w.open(dst, nonce, text, aad, false)
}

// OpenDown implements AEAD.
func (w *wide) OpenDown(dst, nonce, text, aad []byte) ([]byte, error) {
	return w.open(dst, nonce, text, aad, true)
}

// open clears text that doesn't authenticate.
func (w *wide) open(dst, nonce, text, aad []byte, down bool) ([]byte, error) {
	number, n := sized(nonce), len(text)-tagSize
	if n < 0 || uint64(n) > maxPlain {
		return nil, errOpen
	}
	whole, out := extend(dst, n)
	if down {
		checkDown(out, text)
	} else {
		check(out, text, nil, aad)
	}
	var tag [tagSize]byte
	open(&w.schedule, out, text[:n], number, aad, &tag)
	if subtle.ConstantTimeCompare(tag[:], text[n:]) != 1 {
		clear(out)
		return nil, errOpen
	}
	return whole, nil
}

func sized(nonce []byte) *[nonceSize]byte {
	if len(nonce) != nonceSize {
		panic("gcm: incorrect nonce length")
	}
	return (*[nonceSize]byte)(nonce)
}
