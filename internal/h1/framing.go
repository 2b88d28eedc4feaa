package h1

import "sluice/internal/httpmsg"

// The limits of chunk extensions: a line, and what a message may have of them
// beyond its content (a flood of tiny chunks with long extensions).
const (
	maxChunkLine = 4 << 10
	freeChunkExt = 16 << 10
)

// reading is where the reader of a message is.
type reading uint8

const (
	atStart    reading = iota // before a message
	inHead                    // start line taken
	inLength                  // content of a known length
	inChunk                   // content of a chunk
	afterChunk                // CRLF that ends a chunk
	atSize                    // chunk-size line
	inTrailers
	toClose  // content until the peer closes
	raw      // a tunnel
	awaiting // an upgrade or CONNECT that is not answered yet
	finished // the message is over, the exchange may go on
	ended    // nothing is read any more
)

// framing says how a received message ends.
type framing struct {
	kind   reading // inLength, atSize, toClose, or finished for none
	length uint64
}

// frame finds out how the content of a message is delimited (RFC 9112 section
// 6.3) and takes `chunked` out of the head. none is for messages that never
// have content.
func frame(h *httpmsg.Head, o *Options, request, none bool) (framing, fault) {
	te, cl := h.Has(httpmsg.TransferEncoding), h.Has(httpmsg.ContentLength)
	var r framing
	switch {
	case !te && !cl:
		if r.kind = toClose; request {
			r.kind = finished
		}
	case te:
		if count(h, httpmsg.ContentLength) > 1 {
			return r, codecError
		}
		chunked := count(h, httpmsg.TransferEncoding) == 1 && httpmsg.EqualFold(h.Get(httpmsg.TransferEncoding), "chunked")
		if cl && (!o.AllowChunkedLength || !chunked) {
			return r, chunkedAndLength
		}
		if !chunked {
			return r, unknownCoding
		}
		h.Del(httpmsg.ContentLength)
		h.Del(httpmsg.TransferEncoding)
		r.kind = atSize
	default:
		n, ok := number(h.Get(httpmsg.ContentLength))
		if !ok || count(h, httpmsg.ContentLength) != 1 {
			return r, codecError
		}
		if r.kind, r.length = inLength, n; n == 0 {
			r.kind = finished
		}
	}
	if none {
		r = framing{kind: finished}
	}
	return r, noFault
}

// count gives the number of live fields of a name.
func count(h *httpmsg.Head, id httpmsg.ID) (n int) {
	for i := range h.Len() {
		if k, _, _, ok := h.Field(i); ok && k == id {
			n++
		}
	}
	return n
}

// number reads a Content-Length: digits only, below 2^63.
func number(b []byte) (n uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' || n > (1<<63-1)/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, n < 1<<63
}

// chunkSize takes a chunk-size line, extensions dropped; n is 0 when it isn't
// complete. ext is how long the extensions were, with the white space before them:
// some servers pad sizes, and Envoy and net/http take that too.
func chunkSize(b []byte) (size uint64, ext, n int, f fault) {
	i := 0
	for ; i < len(b); i++ {
		d := hex(b[i])
		if d > 15 {
			break
		}
		if i == 15 { // 60 bits are enough for everyone
			return 0, 0, 0, codecError
		}
		size = size<<4 | uint64(d)
	}
	if i == len(b) {
		return 0, 0, 0, noFault
	}
	digits := i
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	if digits == 0 || i < len(b) && b[i] != ';' && b[i] != '\r' {
		return 0, 0, 0, codecError
	}
	end, next, f := lineEnd(b, i)
	if f != noFault {
		return 0, 0, 0, codecError
	}
	if next == 0 && len(b) <= maxChunkLine {
		return 0, 0, 0, noFault
	}
	if next != end+2 || end > maxChunkLine { // unlike that of a head, its line needs a CR
		return 0, 0, 0, codecError
	}
	return size, end - digits, next, noFault
}

func hex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}

// content reads the framed content of a message. Its zero value is at rest.
type content struct {
	left uint64 // of the content or of the chunk
	ext  int32  // bytes of chunk extensions beyond the content
	in   reading
}

func (c *content) start(f framing) {
	c.in, c.left, c.ext = f.kind, f.length, 0
}

// next takes a piece of content at the front of b, or what frames it: p is the
// content, n what was taken. The end of the message is c.in finished, or
// inTrailers. n is 0 when more bytes are needed.
func (c *content) next(b []byte) (p []byte, n int, f fault) {
	switch c.in {
	case inLength, inChunk:
		p = b
		if uint64(len(p)) > c.left {
			p = p[:c.left]
		}
		c.take(len(p))
		if n = len(p); c.in == afterChunk && len(b) >= n+len(lastChunk) && string(b[n:n+len(lastChunk)]) == lastChunk {
			// The end goes on with the content: on HTTP/2 it costs no frame of its own.
			c.in = finished
			n += len(lastChunk)
		}
		return p, n, noFault
	case afterChunk:
		if b[0] != '\r' || len(b) > 1 && b[1] != '\n' {
			return nil, 0, codecError
		}
		if len(b) < 2 {
			return nil, 0, noFault
		}
		c.in = atSize
		return nil, 2, noFault
	case atSize:
		size, ext, n, f := chunkSize(b)
		if n == 0 || f != noFault {
			return nil, 0, f
		}
		if c.ext += int32(ext); c.ext > freeChunkExt {
			return nil, 0, codecError
		}
		if c.left, c.in = size, inChunk; size == 0 {
			c.in = inTrailers
		}
		return nil, n, noFault
	}
	return b, len(b), noFault // toClose, raw
}

func (c *content) take(n int) {
	c.ext = max(0, c.ext-int32(min(n, 1<<20)))
	if c.left -= uint64(n); c.left > 0 {
		return
	}
	if c.in == inLength {
		c.in = finished
	} else {
		c.in = afterChunk
	}
}

// lastChunk ends a chunk and, without trailers, the message.
const lastChunk = "\r\n0\r\n\r\n"

// forbiddenTrailer has the names that would change framing or routing if they
// were taken for fields of the head (RFC 9110 section 6.5.1).
func forbiddenTrailer(id httpmsg.ID) bool {
	switch id {
	case httpmsg.ContentLength, httpmsg.TransferEncoding, httpmsg.Host, httpmsg.Connection, httpmsg.KeepAlive,
		httpmsg.ProxyConnection, httpmsg.Upgrade, httpmsg.TE, httpmsg.Trailer, httpmsg.Expect:
		return true
	}
	return false
}

// dropForbidden takes those names out of trailers.
func dropForbidden(t *httpmsg.Head) {
	for i := range t.Len() {
		if id, _, _, ok := t.Field(i); ok && forbiddenTrailer(id) {
			t.DelAt(i)
		}
	}
}
