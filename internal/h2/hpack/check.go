package hpack

import "encoding/binary"

// Check says what is valid in a field. It is found out once for an entry of a
// table, however often the field comes.
type Check uint8

// The checks of RFC 9113 section 8.2.1. A name that begins with a colon is
// checked without it.
const (
	NameOK     Check = 1 << iota // lower-case token characters
	ValueOK                      // no control bytes but tab
	Underscore                   // the name has an underscore
)

// nameByte has 1 for lower-case token characters and 3 for the underscore.
var nameByte = func() (t [256]uint8) {
	for _, c := range "!#$%&'*+-.^`|~0123456789abcdefghijklmnopqrstuvwxyz" {
		t[c] = 1
	}
	t['_'] = 3
	return t
}()

func checkName(b []byte) Check {
	if len(b) > 0 && b[0] == ':' {
		b = b[1:]
	}
	if len(b) == 0 {
		return 0
	}
	all, some := uint8(1), uint8(0)
	for _, c := range b {
		t := nameByte[c]
		all &= t
		some |= t
	}
	if all == 0 {
		return 0
	}
	if some&2 != 0 {
		return NameOK | Underscore
	}
	return NameOK
}

// checkValue looks at eight bytes at a time.
func checkValue(b []byte) Check {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		d := x ^ 0x7f*ones
		if ((x-0x20*ones)&^x|(d-ones)&^d)&tops != 0 && !slowValue(b[:8]) {
			return 0
		}
	}
	if !slowValue(b) {
		return 0
	}
	return ValueOK
}

func slowValue(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
