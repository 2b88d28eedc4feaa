package hpack

import (
	"encoding/binary"
	"math/bits"

	"sluice/internal/httpmsg"
)

// ways is how many rows a bucket of the encoder's index holds.
const ways = 4

// index finds rows by the hash of name and value. Sequence numbers are stored
// plus one; those of evicted rows are found out by comparing.
type index struct {
	buckets [64][ways]uint32
	// seen holds hashes of fields that came once and were not indexed.
	seen [128]uint32
}

// Encoder is the sending end of one direction of a connection. A field is
// indexed when it comes the second time, so that values that don't repeat never
// push others out.
type Encoder struct {
	table  table
	index  *index
	resize bool
	lowest uint32 // smallest size since the last block
}

// NewEncoder makes an encoder that uses up to size bytes of the peer's table.
func NewEncoder(size uint32) Encoder { return Encoder{table: table{max: size}} }

// SetMax takes the table size that the peer allows; more than limit isn't used.
func (e *Encoder) SetMax(size, limit uint32) {
	size = min(size, limit)
	if size == e.table.max && !e.resize {
		return
	}
	if !e.resize || size < e.lowest {
		e.lowest = size
	}
	e.resize = true
	e.table.resize(size)
}

// Start begins a header block.
func (e *Encoder) Start(b []byte) []byte {
	if !e.resize {
		return b
	}
	e.resize = false
	if e.lowest < e.table.max {
		b = appendInteger(b, 0x20, 5, uint64(e.lowest))
	}
	return appendInteger(b, 0x20, 5, uint64(e.table.max))
}

// Status appends :status.
func (e *Encoder) Status(b []byte, status int) []byte {
	switch status {
	case 200:
		return append(b, 0x80|8)
	case 204:
		return append(b, 0x80|9)
	case 206:
		return append(b, 0x80|10)
	case 304:
		return append(b, 0x80|11)
	case 400:
		return append(b, 0x80|12)
	case 404:
		return append(b, 0x80|13)
	case 500:
		return append(b, 0x80|14)
	}
	v := [3]byte{byte('0' + status/100%10), byte('0' + status/10%10), byte('0' + status%10)}
	return e.named(b, idxStatus, static[idxStatus].name, v[:], httpmsg.Other)
}

// Method appends :method.
func (e *Encoder) Method(b, v []byte) []byte {
	switch string(v) {
	case "GET":
		return append(b, 0x80|2)
	case "POST":
		return append(b, 0x80|3)
	}
	return e.named(b, idxMethod, static[idxMethod].name, v, httpmsg.Other)
}

// Scheme appends :scheme.
func (e *Encoder) Scheme(b, v []byte) []byte {
	switch string(v) {
	case "http":
		return append(b, 0x80|6)
	case "https":
		return append(b, 0x80|7)
	}
	return e.named(b, idxScheme, static[idxScheme].name, v, httpmsg.Other)
}

// Path appends :path.
func (e *Encoder) Path(b, v []byte) []byte {
	if len(v) == 1 && v[0] == '/' {
		return append(b, 0x80|4)
	}
	return e.named(b, idxPath, static[idxPath].name, v, httpmsg.Other)
}

// Authority appends :authority.
func (e *Encoder) Authority(b, v []byte) []byte {
	return e.named(b, idxAuthority, static[idxAuthority].name, v, httpmsg.Other)
}

// Protocol appends :protocol.
func (e *Encoder) Protocol(b, v []byte) []byte {
	return e.named(b, 0, []byte(":protocol"), v, httpmsg.Other)
}

// Field appends a regular field.
func (e *Encoder) Field(b []byte, id httpmsg.ID, name, value []byte, sensitive bool) []byte {
	at := uint64(staticOf[id])
	if id == httpmsg.Other {
		at = otherStatic(name)
	}
	switch {
	case sensitive, id == httpmsg.Authorization, id == httpmsg.Cookie && len(value) < 20:
		// Short secrets could be guessed by watching sizes (RFC 7541 section 7.1.3).
		return appendLiteral(b, 0x10, 4, at, name, value)
	case unique(id):
		return appendLiteral(b, 0, 4, at, name, value)
	}
	return e.named(b, at, name, value, id)
}

// unique names have values that differ from message to message.
func unique(id httpmsg.ID) bool {
	switch id {
	case httpmsg.ContentLength, httpmsg.XRequestID, httpmsg.Traceparent, httpmsg.XB3TraceID, httpmsg.XB3SpanID,
		httpmsg.XB3ParentSpanID, httpmsg.B3, httpmsg.SetCookie, httpmsg.Location, httpmsg.XClientTraceID:
		return true
	}
	return false
}

// named appends a field whose name has static index at, or 0.
func (e *Encoder) named(b []byte, at uint64, name, value []byte, id httpmsg.ID) []byte {
	if len(name)+len(value)+32 > int(e.table.max)/2 {
		return appendLiteral(b, 0, 4, at, name, value)
	}
	if e.index == nil {
		e.index = &index{}
	}
	h := hash(name, value)
	if i, ok := e.find(h, name, value); ok {
		return appendInteger(b, 0x80, 7, i)
	}
	slot := &e.index.seen[h>>25]
	if *slot != h {
		*slot = h
		return appendLiteral(b, 0, 4, at, name, value)
	}
	if e.table.add(name, value, id, h) {
		e.note(h)
		return appendLiteral(b, 0x40, 6, at, name, value)
	}
	return appendLiteral(b, 0, 4, at, name, value)
}

// find gives the index of a field in the dynamic table.
func (e *Encoder) find(h uint32, name, value []byte) (uint64, bool) {
	bucket := &e.index.buckets[h&63]
	for _, s := range bucket {
		if s == 0 {
			break
		}
		age := uint32(e.table.head) - s // 0 is the newest
		r := e.table.at(uint64(age))
		if r == nil || r.hash != h {
			continue
		}
		if n, v := e.table.bytes(r); string(n) == string(name) && string(v) == string(value) {
			return uint64(age) + staticLen + 1, true
		}
	}
	return 0, false
}

// note remembers the newest row in front of its bucket.
func (e *Encoder) note(h uint32) {
	bucket := &e.index.buckets[h&63]
	copy(bucket[1:], bucket[:])
	bucket[0] = uint32(e.table.head)
}

// otherStatic gives the static index of names that httpmsg has no ID for.
func otherStatic(name []byte) uint64 {
	switch string(name) {
	case "accept":
		return 19
	case "accept-encoding":
		return 16
	case "accept-language":
		return 17
	case "accept-ranges":
		return 18
	case "age":
		return 21
	case "cache-control":
		return 24
	case "content-encoding":
		return 26
	case "etag":
		return 34
	case "expires":
		return 36
	case "if-modified-since":
		return 40
	case "if-none-match":
		return 41
	case "last-modified":
		return 44
	case "link":
		return 45
	case "referer":
		return 51
	case "vary":
		return 59
	}
	return 0
}

// appendLiteral appends a literal field with an n-bit prefix. Strings are not
// Huffman-coded: inside a mesh CPU is dearer than a third of the bytes.
func appendLiteral(b []byte, pattern byte, n uint, at uint64, name, value []byte) []byte {
	b = appendInteger(b, pattern, n, at)
	if at == 0 {
		b = appendInteger(b, 0, 7, uint64(len(name)))
		b = append(b, name...)
	}
	b = appendInteger(b, 0, 7, uint64(len(value)))
	return append(b, value...)
}

func appendInteger(b []byte, pattern byte, n uint, v uint64) []byte {
	if v < 1<<n-1 {
		return append(b, pattern|byte(v))
	}
	b = append(b, pattern|(1<<n-1))
	for v -= 1<<n - 1; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// hash mixes name and value, eight bytes at a time; never 0.
func hash(name, value []byte) uint32 {
	h := mix(uint64(len(name))<<32|uint64(len(value)), name)
	h = mix(h, value)
	return uint32(h>>32) | 1
}

func mix(h uint64, b []byte) uint64 {
	const k = 0x9e3779b97f4a7c15
	for ; len(b) >= 8; b = b[8:] {
		h = fold(h^binary.LittleEndian.Uint64(b), k)
	}
	if len(b) > 0 {
		var x uint64
		for i, c := range b {
			x |= uint64(c) << (8 * i)
		}
		h = fold(h^x, k)
	}
	return fold(h, k)
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
