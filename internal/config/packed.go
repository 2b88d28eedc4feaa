package config

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// Packed is Metadata as bytes, "" for none: a mesh's clusters and endpoints are
// ten thousands, of which a sidecar uses few, and maps of maps take ten times
// the room. Equal metadata are equal strings.
type Packed string

// Pack gives m in its packed form.
func Pack(m Metadata) Packed {
	if len(m) == 0 {
		return ""
	}
	b := binary.AppendUvarint(nil, uint64(len(m)))
	for _, ns := range slices.Sorted(maps.Keys(m)) {
		b = appendPacked(appendText(b, ns), m[ns])
	}
	return Packed(b)
}

// Unpack gives the metadata, nil for none. Strings in it share p's memory.
func (p Packed) Unpack() Metadata {
	if p == "" {
		return nil
	}
	r := unpacker(p)
	n := r.number()
	m := make(Metadata, n)
	for range n {
		ns := r.text()
		m[ns], _ = r.value().(Struct)
	}
	return m
}

// Lookup gives the value of a key in a name space, nil when there is none. It
// unpacks nothing else.
func (p Packed) Lookup(ns, key string) Value {
	if p == "" {
		return nil
	}
	r := unpacker(p)
	for range r.number() {
		if r.text() != ns {
			r.skip()
			continue
		}
		r.take(1)
		for range r.number() {
			if r.text() == key {
				return r.value()
			}
			r.skip()
		}
		return nil
	}
	return nil
}

// The first byte of a packed value says what follows.
const (
	packedNull   = 0
	packedFalse  = 'f'
	packedTrue   = 't'
	packedNumber = 'n' // 8 bytes
	packedString = 's' // length, bytes
	packedList   = 'l' // length, values
	packedStruct = 'm' // length, pairs of text and value
)

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendPacked(b []byte, v Value) []byte {
	switch v := v.(type) {
	case string:
		return appendText(append(b, packedString), v)
	case float64:
		return binary.LittleEndian.AppendUint64(append(b, packedNumber), math.Float64bits(v))
	case bool:
		if v {
			return append(b, packedTrue)
		}
		return append(b, packedFalse)
	case List:
		b = binary.AppendUvarint(append(b, packedList), uint64(len(v)))
		for _, e := range v {
			b = appendPacked(b, e)
		}
		return b
	case Struct:
		b = binary.AppendUvarint(append(b, packedStruct), uint64(len(v)))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			b = appendPacked(appendText(b, k), v[k])
		}
		return b
	}
	return append(b, packedNull)
}

// unpacker is what is left to read.
type unpacker string

func (r *unpacker) take(n int) string {
	s := (*r)[:n]
	*r = (*r)[n:]
	return string(s)
}

func (r *unpacker) number() (n int) {
	for shift := 0; ; shift += 7 {
		c := r.take(1)[0]
		if n |= int(c&0x7f) << shift; c < 0x80 {
			return n
		}
	}
}

func (r *unpacker) text() string { return r.take(r.number()) }

func (r *unpacker) value() Value {
	switch r.take(1)[0] {
	case packedString:
		return r.text()
	case packedNumber:
		return math.Float64frombits(binary.LittleEndian.Uint64([]byte(r.take(8))))
	case packedTrue:
		return true
	case packedFalse:
		return false
	case packedList:
		n := r.number()
		l := make(List, 0, n)
		for range n {
			l = append(l, r.value())
		}
		return l
	case packedStruct:
		n := r.number()
		s := make(Struct, n)
		for range n {
			k := r.text()
			s[k] = r.value()
		}
		return s
	}
	return nil
}

// skip goes past a value.
func (r *unpacker) skip() {
	switch r.take(1)[0] {
	case packedString:
		r.text()
	case packedNumber:
		r.take(8)
	case packedList:
		for range r.number() {
			r.skip()
		}
	case packedStruct:
		for range r.number() {
			r.text()
			r.skip()
		}
	}
}
