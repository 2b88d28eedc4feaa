package h1

import (
	"bytes"

	"sluice/internal/httpmsg"
)

// section parses the field lines of a head or of trailers, as they arrive.
type section struct {
	h       *httpmsg.Head
	o       *Options
	request bool
	trailer bool
	target  bool // the request target gave the authority, so Host doesn't count
	scanned int  // bytes of the unfinished line already looked at
}

// fields takes the complete lines at the front of b; done means that the empty
// line came, n is how many bytes were taken.
func (s *section) fields(b []byte) (n int, done bool, f fault) {
	for n < len(b) {
		line := b[n:]
		if line[0] == '\r' {
			if len(line) < 2 {
				return n, false, noFault
			}
			if line[1] != '\n' {
				return n, false, codecError
			}
			return n + 2, true, noFault
		}
		name := spanOf(line, isToken)
		if name == len(line) {
			return n, false, s.tooLong(name)
		}
		if name == 0 || line[name] != ':' {
			return n, false, codecError // also a folded line, and a space before the colon
		}
		end, f := fastEnd(line, max(name+1, s.scanned))
		if f != noFault {
			return n, false, f
		}
		if end < 0 {
			if s.scanned = max(name+1, len(line)-1); line[len(line)-1] != '\r' {
				s.scanned = len(line)
			}
			return n, false, s.tooLong(len(line))
		}
		s.scanned = 0
		if f := s.add(line[:end+2], name); f != noFault {
			return n, false, f
		}
		n += end + 2
	}
	return n, false, noFault
}

func (s *section) tooLong(line int) fault {
	if s.h.Size()+line > s.o.maxBytes(s.request) {
		return headersTooLarge
	}
	return noFault
}

// add takes a line, CRLF included, whose name is n bytes.
func (s *section) add(line []byte, n int) fault {
	h, name := s.h, line[:n]
	value := line[n+1 : len(line)-2]
	if len(value) > 1 && value[0] == ' ' && value[1] > ' ' && value[len(value)-1] > ' ' {
		value = value[1:] // the usual case: one space
	} else {
		value = httpmsg.TrimSpace(value)
	}
	if h.Size()+len(name)+len(value) > s.o.maxBytes(s.request) {
		return headersTooLarge
	}
	if s.o.Underscores != UnderscoresAllow && s.request && bytes.IndexByte(name, '_') >= 0 {
		return s.underscore()
	}
	if s.request && !s.trailer && len(name) == 4 && httpmsg.EqualFold(name, "host") {
		return s.host(name, value)
	}
	if s.full() {
		return tooManyHeaders
	}
	if len(value)+4+n == len(line) && line[n+1] == ' ' {
		h.AddLine(line, n)
	} else {
		h.AddReceived(name, value)
	}
	if s.o.PreserveCase {
		h.NoteCase(name)
	}
	return noFault
}

// full reports whether one more field is too many; Host counts.
func (s *section) full() bool {
	n := s.h.Len()
	if s.h.HasAuthority() && !s.target {
		n++
	}
	return n >= s.o.maxHeaders()
}

func (s *section) underscore() fault {
	c := s.o.Counters
	if s.o.Underscores == UnderscoresReject {
		if c != nil {
			c.RequestsRejectedWithUnderscoresInNames++
		}
		return unexpectedUnderscore
	}
	if c != nil {
		c.DroppedHeadersWithUnderscores++
	}
	return noFault
}

// host makes Host the authority; several are joined by a comma, as Envoy does,
// so that routing and the upstream see the same one value.
func (s *section) host(name, value []byte) fault {
	h := s.h
	if spanOf(value, isHost) != len(value) {
		return invalidAuthority
	}
	if s.full() {
		return tooManyHeaders
	}
	if s.target {
		return noFault
	}
	if h.HasAuthority() {
		return codecError // RFC 9112 section 3.2; Envoy joins them with a comma
	}
	h.SetAuthority(value)
	if s.o.PreserveCase {
		h.NoteHostCase(name)
	}
	return noFault
}
