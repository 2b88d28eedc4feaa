package httpmsg

import "strings"

// HasToken reports whether a comma-separated list has a token, which is given
// in lower case.
func HasToken(list []byte, token string) bool {
	for len(list) > 0 {
		i := 0
		for i < len(list) && list[i] != ',' {
			i++
		}
		part := TrimSpace(list[:i])
		list = list[min(i+1, len(list)):]
		if EqualFold(part, token) {
			return true
		}
	}
	return false
}

// TrimSpace cuts optional white space (RFC 9110 section 5.6.3) off both ends.
func TrimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// EqualFold compares ASCII without case; lower is in lower case.
func EqualFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// IsName reports whether s can be a field's name: a token (RFC 9110 section 5.1).
func IsName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'a' <= c|0x20 && c|0x20 <= 'z':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0:
			return false
		}
	}
	return s != ""
}

// IsValue reports whether s can be a field's value: a line break would begin
// another field (RFC 9110 section 5.5).
func IsValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
