package sniff

import "bytes"

// MaxLine bounds the first line of a request that HTTP waits for.
const MaxLine = 64 << 10

// Version is the HTTP version a first line asks for.
type Version uint8

// The versions. Any version of HTTP/x.y but 1.1 counts as HTTP10, as in Envoy.
const (
	NotHTTP Version = iota
	HTTP10
	HTTP11
	HTTP2 // prior knowledge: the connection preface
)

// Protocol is the application protocol a filter chain matches by.
func (v Version) Protocol() string {
	return [...]string{"", "http/1.0", "http/1.1", "h2c"}[v]
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// HTTP looks for the HTTP/2 preface or an HTTP/1 request line at the front of b.
// Any method word counts; whether it is a known one is the codec's affair.
// Printable bytes without an end of line are waited for even if they can't be
// HTTP any more, as Envoy does.
func HTTP(b []byte) (Version, Verdict) {
	if len(b) == 0 {
		return NotHTTP, More
	}
	if n := min(len(b), len(preface)); string(b[:n]) == preface[:n] {
		if n < len(preface) {
			return NotHTTP, More
		}
		return HTTP2, Yes
	}
	if b[0] <= ' ' || b[0] >= 0x7f {
		return NotHTTP, No
	}
	end := bytes.IndexByte(b, '\n')
	if end < 0 || end > MaxLine {
		if len(b) > MaxLine {
			return NotHTTP, TooLarge
		}
		return NotHTTP, More
	}
	if v := requestLine(bytes.TrimRight(b[:end], " \t\r")); v != NotHTTP {
		return v, Yes
	}
	return NotHTTP, No
}

// requestLine judges "method target [version]".
func requestLine(line []byte) Version {
	method, rest := word(line)
	target, version := word(rest)
	if !token(method) || !targetFits(method, target) {
		return NotHTTP
	}
	switch {
	case len(version) == 0:
		return HTTP10 // the HTTP/0.9 form
	case string(version) == "HTTP/1.1":
		return HTTP11
	case len(version) == 8 && string(version[:5]) == "HTTP/" && digit(version[5]) && version[6] == '.' && digit(version[7]):
		return HTTP10
	}
	return NotHTTP
}

// word splits at a run of blanks.
func word(b []byte) (first, rest []byte) {
	i := bytes.IndexAny(b, " \t")
	if i < 0 {
		return b, nil
	}
	return b[:i], bytes.TrimLeft(b[i:], " \t")
}

func targetFits(method, target []byte) bool {
	switch {
	case len(target) == 0:
		return false
	case string(method) == "CONNECT", target[0] == '/', target[0] == '*':
		return true
	}
	return bytes.Contains(target, []byte("://"))
}

func token(b []byte) bool {
	for _, c := range b {
		switch {
		case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || digit(c):
		case c > ' ' && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
