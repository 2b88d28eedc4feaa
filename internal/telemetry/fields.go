package telemetry

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// begin begins a field whose length isn't known yet; end(dst, at) ends it.
func begin(dst []byte, field protowire.Number) (out []byte, at int) {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return dst, len(dst)
}

// end puts the length of what was appended since at before it.
func end(dst []byte, at int) []byte {
	n := len(dst) - at
	var room [10]byte
	size := protowire.SizeVarint(uint64(n))
	dst = append(dst, room[:size]...)
	copy(dst[at+size:], dst[at:at+n])
	protowire.AppendVarint(dst[:at], uint64(n))
	return dst
}

// appendBytes appends a field of text, bytes or an encoded message.
func appendBytes[T string | []byte](dst []byte, field protowire.Number, v T) []byte {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return append(protowire.AppendVarint(dst, uint64(len(v))), v...)
}

// makeUTF8 puts "!" in the place of bytes that are no UTF-8, as Envoy does: a
// collector refuses the whole batch for one of them.
func makeUTF8(p []byte) {
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n == 1 {
			p[0] = '!'
		}
		p = p[n:]
	}
}

// appendNamed appends text that isn't empty, as UTF-8.
func appendNamed[T string | []byte](dst []byte, field protowire.Number, v T) []byte {
	if len(v) == 0 {
		return dst
	}
	dst = appendBytes(dst, field, v)
	makeUTF8(dst[len(dst)-len(v):])
	return dst
}

// appendCount appends a number that isn't 0.
func appendCount(dst []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), n)
}

// appendTime appends a Timestamp or a Duration, of nanoseconds.
func appendTime(dst []byte, field protowire.Number, ns int64) []byte {
	dst, at := begin(dst, field)
	return end(appendCount(appendCount(dst, 1, uint64(ns/1e9)), 2, uint64(ns%1e9)), at)
}
