package httpmsg

import (
	"encoding/binary"
	"math/bits"
)

// AddReceived appends a field whose name may have upper-case letters, as a
// parser finds it; the name must consist of token characters.
func (h *Head) AddReceived(name, value []byte) {
	line(h, Other, name, value)
	h.lowerLast(len(h.buf) - len(name) - len(value) - 4)
}

// AddLine is AddReceived for a whole line, "Name: value" and CRLF, that has one
// space behind the colon and none at the end: one copy.
func (h *Head) AddLine(line []byte, nameLen int) {
	at := len(h.buf)
	h.buf = append(h.buf, line...)
	n := uint32(nameLen)
	h.slot(Other, span{uint32(at), n}, span{uint32(at) + n + 2, uint32(len(line)) - n - 4})
	h.lowerLast(at)
}

// lowerLast puts the name of the last field, which is at, in lower case, eight
// bytes at a time, and finds its ID. What is behind the name isn't touched.
func (h *Head) lowerLast(at int) {
	f := &h.fields[len(h.fields)-1]
	name := h.buf[at : at+int(f.name.n)]
	i := 0
	for ; i+8 <= len(name); i += 8 {
		x := binary.LittleEndian.Uint64(name[i:])
		if u := upper(x); u != 0 {
			binary.LittleEndian.PutUint64(name[i:], x|u>>2)
		}
	}
	for ; i < len(name); i++ {
		if c := name[i]; 'A' <= c && c <= 'Z' {
			name[i] = c | 0x20
		}
	}
	if id := Lookup(name); id != Other {
		f.id = id
		if h.first[id] == 0 {
			h.first[id] = uint16(len(h.fields))
		}
	}
}

// upper has the top bit of each byte of x that is in A to Z; the bytes of x are
// below 0x80.
func upper(x uint64) uint64 {
	const ones = 0x0101010101010101
	x &^= 0x80 * ones
	return (x + (0x80-'A')*ones) &^ (x + (0x80-'Z'-1)*ones) & (0x80 * ones)
}

// NoteCase remembers how the name of the last field was written, for an engine
// that preserves the case of names. Letters beyond the 64th are not kept.
func (h *Head) NoteCase(name []byte) {
	for len(h.cases) < len(h.fields)-1 {
		h.cases = append(h.cases, 0)
	}
	h.cases = append(h.cases, caseMask(name))
}

// NameStyle says how HTTP/1 writes the names of a head. It belongs to the
// message, as Envoy's stateful formatters do: what reads it decides, not what
// writes it.
type NameStyle uint8

// The styles: as the writer's options say; as received, and names that were not
// received in lower case, or with capitals.
const (
	AsWritten NameStyle = iota
	AsReceived
	AsReceivedOrProper
)

// Style is how the names are written.
func (h *Head) Style() NameStyle { return h.style }

// SetStyle sets it; NoteCase is needed for each received name.
func (h *Head) SetStyle(s NameStyle) { h.style = s }

// NoteHostCase remembers how the name Host was written.
func (h *Head) NoteHostCase(name []byte) { h.hostCase = caseMask(name) }

func caseMask(name []byte) (mask uint64) {
	for i, c := range name[:min(len(name), 64)] {
		if 'A' <= c && c <= 'Z' {
			mask |= 1 << i
		}
	}
	return mask
}

// AppendName appends the name of field i as it, or the first field of the same
// name, was received. Without NoteCase that is the lower-case name.
func (h *Head) AppendName(dst []byte, i int) (b []byte, received bool) {
	name := h.at(h.fields[i].name)
	for j := range h.cases {
		if f := &h.fields[j]; f.id == h.fields[i].id && string(h.at(f.name)) == string(name) {
			return appendCased(dst, name, h.cases[j]), true
		}
	}
	return append(dst, name...), false
}

// AppendHostName appends "host" as it was received.
func (h *Head) AppendHostName(dst []byte) []byte {
	return appendCased(dst, []byte("host"), h.hostCase)
}

func appendCased(dst, name []byte, mask uint64) []byte {
	at := len(dst)
	dst = append(dst, name...)
	for ; mask != 0; mask &= mask - 1 {
		dst[at+bits.TrailingZeros64(mask)] &^= 0x20
	}
	return dst
}

// AddKnown is Add for a caller that knows the name's ID.
func (h *Head) AddKnown(id ID, name, value []byte) { line(h, id, name, value) }
