package httpmsg

import (
	"encoding/binary"
	"math/bits"
)

// AddReceived appends a field whose name may have upper-case letters, as a
// parser finds it; the name must consist of token characters. It is Add for the
// price of one pass over the name.
func (h *Head) AddReceived(name, value []byte) {
	n := span{uint32(len(h.buf)), uint32(len(name))}
	h.buf = appendLower(h.buf, name)
	h.append(field{name: n, value: h.put(value), id: Lookup(h.at(n))})
}

// appendLower appends name in lower case, eight bytes at a time.
func appendLower(dst, name []byte) []byte {
	for len(name) >= 8 {
		x := binary.LittleEndian.Uint64(name)
		dst = binary.LittleEndian.AppendUint64(dst, x|upper(x)>>2)
		name = name[8:]
	}
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
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
func (h *Head) AppendName(dst []byte, i int) []byte {
	name := h.at(h.fields[i].name)
	for j := range h.cases {
		if f := &h.fields[j]; f.id == h.fields[i].id && string(h.at(f.name)) == string(name) {
			return appendCased(dst, name, h.cases[j])
		}
	}
	return append(dst, name...)
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
func (h *Head) AddKnown(id ID, name, value []byte) {
	h.append(field{name: h.put(name), value: h.put(value), id: id})
}
