package httpproxy

import (
	"bytes"

	"sluice/internal/config"
)

// normalized appends the canonical form of path to dst: dot segments resolved,
// backslashes turned, unreserved characters unescaped; ok is false for a path
// that must be refused (an escaped NUL). The query must have been cut off.
func normalized(dst, path []byte) (out []byte, ok bool) {
	base := len(dst)
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case c == '\\':
			c = '/'
		case c == '%' && i+2 < len(path):
			hi, lo := unhex(path[i+1]), unhex(path[i+2])
			if hi < 0 || lo < 0 {
				break
			}
			switch v := byte(hi<<4 | lo); {
			case v == 0:
				return dst[:base], false
			case unreserved(v):
				c, i = v, i+2
			default:
				dst = append(dst, path[i:i+3]...)
				i += 2
				continue
			}
		}
		dst = append(dst, c)
	}
	return resolveDots(dst, base), true
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// resolveDots removes "." and ".." segments in place (RFC 3986 section 5.2.4).
func resolveDots(b []byte, base int) []byte {
	p := b[base:]
	w := 0
	for r := 0; r < len(p); {
		if p[r] != '/' {
			p[w] = p[r]
			w, r = w+1, r+1
			continue
		}
		end := r + 1
		for end < len(p) && p[end] != '/' {
			end++
		}
		switch seg := p[r+1 : end]; {
		case len(seg) == 1 && seg[0] == '.':
			if end == len(p) {
				p[w] = '/'
				w++
			}
		case len(seg) == 2 && seg[0] == '.' && seg[1] == '.':
			for w > 0 {
				w--
				if p[w] == '/' {
					break
				}
			}
			if end == len(p) {
				p[w] = '/'
				w++
			}
		default:
			w += copy(p[w:], p[r:end])
		}
		r = end
	}
	return b[:base+w]
}

func mergeSlashes(b []byte, base int) []byte {
	p := b[base:]
	w := 0
	for i, c := range p {
		if c == '/' && i > 0 && p[i-1] == '/' {
			continue
		}
		p[w] = c
		w++
	}
	return b[:base+w]
}

// unescapeSlashes turns %2F and %5C into what they mean and says whether there
// were any.
func unescapeSlashes(dst, path []byte) (out []byte, found bool) {
	for i := 0; i < len(path); i++ {
		if c := path[i]; c == '%' && i+2 < len(path) {
			switch {
			case path[i+1] == '2' && path[i+2]|0x20 == 'f':
				dst, found = append(dst, '/'), true
				i += 2
				continue
			case path[i+1] == '5' && path[i+2]|0x20 == 'c':
				dst, found = append(dst, '\\'), true
				i += 2
				continue
			}
		}
		dst = append(dst, path[i])
	}
	return dst, found
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// pathOutcome says what follows from normalising a path.
type pathOutcome uint8

const (
	pathFine pathOutcome = iota
	pathRefused
	pathRedirect
)

// normalizePath brings the request's path into the form that routing and
// policies see; it is also the form that goes upstream.
func (r *request) normalizePath() pathOutcome {
	m := r.proxy.config
	if !m.NormalizePath && !m.MergeSlashes && m.EscapedSlashes == config.SlashesKeep {
		return pathFine
	}
	full := r.head.Path()
	path, rest := full, []byte(nil)
	if i := bytes.IndexAny(full, "?#"); i >= 0 {
		path, rest = full[:i], full[i:]
	}
	l := r.local
	redirect := false
	a := l.bufA[:0]
	if m.EscapedSlashes != config.SlashesKeep {
		var found bool
		a, found = unescapeSlashes(a, path)
		if found && m.EscapedSlashes == config.SlashesReject {
			r.setPath(a, rest)
			return pathRefused
		}
		redirect = found && m.EscapedSlashes == config.SlashesUnescapeRedirect
	} else {
		a = append(a, path...)
	}
	l.bufA = a
	if m.NormalizePath {
		b, ok := normalized(l.bufB[:0], a)
		l.bufB = b
		if !ok {
			return pathRefused
		}
		a = b
	}
	if m.MergeSlashes {
		a = mergeSlashes(a, 0)
	}
	if !bytes.Equal(a, path) {
		r.setPath(a, rest)
	}
	if redirect {
		return pathRedirect
	}
	return pathFine
}

func (r *request) setPath(path, rest []byte) {
	l := r.local
	l.bufC = append(append(l.bufC[:0], path...), rest...)
	r.head.SetPath(l.bufC)
}
