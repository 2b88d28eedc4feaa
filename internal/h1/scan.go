package h1

import (
	"encoding/binary"
	"math/bits"

	"sluice/internal/httpmsg"
)

// Classes of bytes.
const (
	isToken  = 1 << iota // RFC 9110 section 5.6.2
	isTarget             // may be in a request target
	isHost               // may be in an authority, as nghttp2 and Envoy see it
)

var class = func() (t [256]uint8) {
	for c := 0x21; c < 0x7f; c++ {
		t[c] |= isTarget
	}
	for c := range 256 {
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' && c < 0x80 {
			t[c] |= isToken | isHost
		}
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] |= isToken
	}
	for _, c := range "!$%&'()*+,-.:;=@[]_~" {
		t[c] |= isHost
	}
	return t
}()

// span gives the length of the prefix of b whose bytes are all of class k.
func spanOf(b []byte, k uint8) int {
	for i, c := range b {
		if class[c]&k == 0 {
			return i
		}
	}
	return len(b)
}

const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// control gives the index of the first control byte (below 0x20, or DEL) in b,
// eight bytes at a time, len(b) when there is none. Only the lowest hit of each
// word is looked at, and that one is exact.
func control(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		d := x ^ 0x7f*ones
		if hit := ((x-0x20*ones)&^x | (d-ones)&^d) & tops; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == 0x7f {
			return i
		}
	}
	return i
}

// lineEnd gives the index of the CR of a CRLF that ends the text starting at
// b[from]: n < 0 when b ends before it. Tabs pass; any other control byte, a
// bare CR and a bare LF are faults.
func lineEnd(b []byte, from int) (n int, f fault) {
	for i := from; ; i++ {
		i += control(b[i:])
		if i >= len(b) {
			return -1, noFault
		}
		switch b[i] {
		case '\t':
		case '\r':
			if i+1 == len(b) {
				return -1, noFault
			}
			if b[i+1] != '\n' {
				return 0, codecError
			}
			return i, noFault
		case '\n':
			return 0, codecError
		default:
			return 0, invalidCharacters
		}
	}
}

// fastEnd is lineEnd for the usual line, which has no tab.
func fastEnd(b []byte, from int) (n int, f fault) {
	i := from + control(b[from:])
	if i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n' {
		return i, noFault
	}
	return lineEnd(b, i)
}

// nextToken cuts the first element off a comma-separated list.
func nextToken(list []byte) (token, rest []byte) {
	for i, c := range list {
		if c == ',' {
			return httpmsg.TrimSpace(list[:i]), list[i+1:]
		}
	}
	return httpmsg.TrimSpace(list), nil
}

// hasToken reports whether a comma-separated list has a token.
func hasToken(list []byte, lower string) bool {
	for len(list) > 0 {
		var t []byte
		if t, list = nextToken(list); httpmsg.EqualFold(t, lower) {
			return true
		}
	}
	return false
}
