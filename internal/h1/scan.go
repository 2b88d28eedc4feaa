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

// lineEnd finds the CRLF, or the bare LF that RFC 9112 section 2.2 lets stand for
// it, which ends the text starting at b[from]: end is where the text ends, next
// where the next line begins. next is 0 when b ends before, and then end is where
// to look on. Tabs pass; a bare CR and any other control byte are faults.
func lineEnd(b []byte, from int) (end, next int, f fault) {
	for i := from; ; i++ {
		i += control(b[i:])
		if i >= len(b) {
			return i, 0, noFault
		}
		switch b[i] {
		case '\t':
		case '\r':
			if i+1 == len(b) {
				return i, 0, noFault
			}
			if b[i+1] != '\n' {
				return 0, 0, codecError
			}
			return i, i + 2, noFault
		case '\n':
			return i, i + 1, noFault
		default:
			return 0, 0, invalidCharacters
		}
	}
}

// fieldEnd is lineEnd for a field line and the lines folded behind it (RFC 9112
// section 5.2). Whether one more is folded shows with the byte behind: before it
// came next is 0.
func fieldEnd(b []byte, from int) (end, next int, f fault) {
	if i := from + control(b[from:]); i+2 < len(b) && b[i] == '\r' && b[i+1] == '\n' && !folds(b[i+2]) {
		return i, i + 2, noFault // the usual line
	}
	for {
		if end, next, f = lineEnd(b, from); f != noFault || next == 0 {
			return end, 0, f
		}
		if next == len(b) {
			return end, 0, noFault
		}
		if !folds(b[next]) {
			return end, next, noFault
		}
		from = next
	}
}

// folds reports whether a line that begins with c goes on with the one before.
func folds(c byte) bool { return c == ' ' || c == '\t' }

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
