package sniff

// MaxHello bounds the bytes of a ClientHello with its record headers, as
// Envoy's tls_inspector does.
const MaxHello = 16 << 10

const (
	recordHeader    = 5
	handshakeRecord = 22
	clientHello     = 1
	extServerName   = 0
	extALPN         = 16
	maxV2Hello      = 4 << 10
)

// Hello is what a ClientHello says. Its slices point into the bytes, or the
// scratch, given to ClientHello.
type Hello struct {
	ServerName []byte // as sent, nil: none
	ALPN       []byte // protocol list: length byte, name, ...; nil: none
}

// Protocols walks the ALPN offer in the client's order until f returns false.
func (h *Hello) Protocols(f func(name []byte) bool) {
	for l := h.ALPN; len(l) > 0; {
		n := 1 + int(l[0])
		if !f(l[1:n]) {
			return
		}
		l = l[n:]
	}
}

// ClientHello looks for a TLS ClientHello at the front of b. A hello in several
// records is joined in scratch, which needs MaxHello bytes; one in a single
// record is read in place. h is filled with Yes.
func ClientHello(b, scratch []byte, h *Hello) Verdict {
	*h = Hello{}
	if len(b) < recordHeader {
		return More // the shortest thing that can be told
	}
	if b[0]&0x80 != 0 && b[2] == clientHello && b[3] == 3 {
		return v2Hello(b)
	}
	if b[0] != handshakeRecord || b[1] != 3 {
		return No
	}
	// Cut at the bound, so that the verdict doesn't depend on how bytes arrive.
	msg, v := message(b[:min(len(b), MaxHello)], scratch)
	if v == More && len(b) >= MaxHello {
		return TooLarge
	}
	if v != Yes {
		return v
	}
	if !h.parse(msg) {
		*h = Hello{}
		return No
	}
	return Yes
}

// v2Hello is the SSLv2 framing that TLS servers once had to take: it carries no
// extensions, so there is nothing to find in it.
func v2Hello(b []byte) Verdict {
	n := int(b[0]&0x7f)<<8 | int(b[1])
	switch {
	case n > maxV2Hello || n < 9:
		return No
	case len(b) < n+2:
		return More
	}
	return Yes
}

// message finds the body of the hello, which may span records.
func message(b, scratch []byte) ([]byte, Verdict) {
	need := -1 // length of the handshake message with its header
	joined := scratch[:0]
	for {
		if len(b) < recordHeader {
			return nil, More
		}
		n := int(b[3])<<8 | int(b[4])
		if b[0] != handshakeRecord || b[1] != 3 || n == 0 || n > 16<<10 {
			return nil, No
		}
		part := b[recordHeader:min(len(b), recordHeader+n)]
		if need < 0 && len(joined) == 0 {
			if v := firstBytes(part); v != Yes {
				return nil, v
			}
			if len(part) >= 4 {
				if need = messageLen(part); len(part) >= need {
					return part[4:need], Yes
				}
			}
		}
		if len(joined)+len(part) > MaxHello {
			return nil, TooLarge
		}
		joined = append(joined, part...)
		if need < 0 && len(joined) >= 4 {
			if v := firstBytes(joined); v != Yes {
				return nil, v
			}
			need = messageLen(joined)
		}
		if need > 0 && len(joined) >= need {
			return joined[4:need], Yes
		}
		if len(part) < n {
			return nil, More
		}
		b = b[recordHeader+n:]
	}
}

func messageLen(p []byte) int { return 4 + int(p[1])<<16 + int(p[2])<<8 + int(p[3]) }

// firstBytes refuses a handshake message that can't become a hello of allowed size.
func firstBytes(p []byte) Verdict {
	switch {
	case len(p) > 0 && p[0] != clientHello:
		return No
	case len(p) >= 4 && messageLen(p) > MaxHello:
		return TooLarge
	}
	return Yes
}

// parse reads the body of a ClientHello (RFC 8446 section 4.1.2).
func (h *Hello) parse(b []byte) bool {
	r := reader{b: b, ok: true}
	r.skip(2 + 32)
	if id := r.vector8(); len(id) > 32 {
		return false
	}
	if c := r.vector16(); len(c) < 2 || len(c)%2 != 0 {
		return false
	}
	if len(r.vector8()) == 0 {
		return false
	}
	if len(r.b) == 0 {
		return r.ok // no extensions at all
	}
	ext := reader{b: r.vector16(), ok: true}
	if !r.ok || len(r.b) != 0 {
		return false
	}
	for len(ext.b) > 0 {
		kind := ext.uint16()
		body := ext.vector16()
		if !ext.ok || !h.extension(kind, body) {
			return false
		}
	}
	return true
}

func (h *Hello) extension(kind int, body []byte) bool {
	switch kind {
	case extServerName:
		return h.ServerName == nil && h.serverName(body)
	case extALPN:
		return h.ALPN == nil && h.alpn(body)
	}
	return true
}

// serverName takes a list of exactly one host_name (RFC 6066 section 3).
func (h *Hello) serverName(body []byte) bool {
	r := reader{b: body, ok: true}
	list := reader{b: r.vector16(), ok: true}
	kind := list.uint8()
	name := list.vector16()
	if !r.ok || !list.ok || len(r.b) != 0 || len(list.b) != 0 || kind != 0 || len(name) == 0 || len(name) > 255 {
		return false
	}
	for _, c := range name {
		if c == 0 {
			return false
		}
	}
	h.ServerName = name
	return true
}

func (h *Hello) alpn(body []byte) bool {
	r := reader{b: body, ok: true}
	list := r.vector16()
	if !r.ok || len(r.b) != 0 || len(list) == 0 {
		return false
	}
	for l := list; len(l) > 0; {
		n := 1 + int(l[0])
		if n == 1 || n > len(l) {
			return false
		}
		l = l[n:]
	}
	h.ALPN = list
	return true
}

// reader reads big-endian fields; after a short read ok is false and all
// further fields are empty.
type reader struct {
	b  []byte
	ok bool
}

func (r *reader) skip(n int) []byte {
	if n > len(r.b) {
		r.ok, r.b = false, nil
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) uint8() int {
	if p := r.skip(1); p != nil {
		return int(p[0])
	}
	return 0
}

func (r *reader) uint16() int {
	if p := r.skip(2); p != nil {
		return int(p[0])<<8 | int(p[1])
	}
	return 0
}

func (r *reader) vector8() []byte  { return r.skip(r.uint8()) }
func (r *reader) vector16() []byte { return r.skip(r.uint16()) }
