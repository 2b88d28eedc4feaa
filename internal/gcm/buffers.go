package gcm

import "unsafe"

// check panics where crypto/cipher does: bytes written over before they are read
// would be neither what was meant nor what was authenticated. end may not be
// where the output goes at all.
func check(out, in, end, aad []byte) {
	switch {
	case overlap(out, in) && &out[0] != &in[0], overlap(out, end):
		panic("gcm: invalid buffer overlap of output and input")
	case overlap(out, aad):
		panic("gcm: invalid buffer overlap of output and additional data")
	}
}

// checkDown is check for OpenDown: what is written before the place that is read
// harms nothing, and aad is read before anything is written.
func checkDown(out, in []byte) {
	if overlap(out, in) && uintptr(unsafe.Pointer(&out[0])) > uintptr(unsafe.Pointer(&in[0])) {
		panic("gcm: output overlaps input from above")
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
