package h1

import (
	"bytes"

	"sluice/internal/httpmsg"
)

// fieldFrame is what Envoy counts for the punctuation of a received field, and for
// a head that has none.
const fieldFrame = 3

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
		switch {
		case line[0] == '\n':
			return n + 1, true, s.whole()
		case line[0] == '\r' && len(line) < 2:
			return n, false, noFault
		case line[0] == '\r' && line[1] == '\n':
			return n + 2, true, s.whole()
		}
		name := spanOf(line, isToken)
		if name == len(line) {
			return n, false, s.tooLong(name)
		}
		if name == 0 || line[name] != ':' {
			return n, false, codecError // also a space before the colon, a folded line behind none, a bare CR
		}
		end, next, f := fieldEnd(line, max(name+1, s.scanned))
		if f != noFault {
			return n, false, f
		}
		if next == 0 {
			s.scanned = end
			return n, false, s.tooLong(len(line))
		}
		s.scanned = 0
		if f := s.add(usual(line[:end], line[:next], name), name); f != noFault {
			return n, false, f
		}
		n += next
	}
	return n, false, noFault
}

// whole ends the section.
func (s *section) whole() fault {
	if s.h.WireSize() == 0 {
		s.h.SetWireSize(fieldFrame)
	}
	return noFault
}

// usual gives a line the form that a writer uses: on one line, with CRLF. text is
// the line without its end, and nothing but the end of a line or a fold has a LF.
// An unfolded value keeps the white space that folded it, as in Envoy.
func usual(text, line []byte, name int) []byte {
	if len(line)-len(text) == 2 && bytes.IndexByte(text[name:], '\n') < 0 {
		return line
	}
	b := make([]byte, 0, len(text)+2)
	for _, c := range text {
		if c != '\r' && c != '\n' {
			b = append(b, c)
		}
	}
	return append(b, '\r', '\n')
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
	h.SetWireSize(h.WireSize() + n + len(value) + fieldFrame)
	if s.o.Underscores != httpmsg.UnderscoresAllow && s.request && bytes.IndexByte(name, '_') >= 0 {
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
	if s.o.Underscores == httpmsg.UnderscoresReject {
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
