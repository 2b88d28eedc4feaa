package h1

import (
	"sluice/internal/httpmsg"
)

// Server is the server side of one connection: one exchange at a time, in
// order. Bytes of a pipelined request wait, unconsumed, with reading paused.
// Not safe for concurrent use.
type Server struct {
	conn    httpmsg.Conn
	handler httpmsg.ServerHandler
	opts    *Options
	pool    *httpmsg.Pool
	rcv     httpmsg.Receiver // of the exchange
	head    *httpmsg.Head    // being received
	in      content
	left    uint64 // of the response's Content-Length
	crumbs  crumbs // of the response
	id      uint64 // of the exchange, counted from 1
	scanned uint32 // bytes of an unfinished line already looked at
	out     writing

	open     bool // an exchange goes on
	target   bool // the request target gave the authority
	http10   bool
	keep10   bool // HTTP/1.0 with keep-alive
	closing  bool // the connection ends with the exchange
	draining bool
	headOnly bool // HEAD
	connect  bool
	upgrade  bool
	chunked  bool // the request is
	paused   bool // by the receiver
	waiting  bool // for the response, with bytes behind the request
	ahead    bool // bytes behind an upgrade request were left unconsumed
	stopped  bool // PauseRead is in force
	high     bool // Buffered went over HighWater
	full     bool // answers wait for the kernel: the next request is not looked at
	late     bool // the close comes while the client may still be sending
	dead     bool
}

// NewServer makes the engine of an accepted connection.
func NewServer(conn httpmsg.Conn, handler httpmsg.ServerHandler, opts *Options) *Server {
	s := &Server{conn: conn, handler: handler, opts: opts, pool: opts.Pool}
	if s.pool == nil {
		s.pool = &httpmsg.Pool{}
	}
	opts.Counters.use()
	return s
}

// Feed takes received bytes, and says how many; the rest must come again in
// front of later bytes. An error means that the peer broke the protocol: the
// engine has told the receiver and closes the connection after the reply.
func (s *Server) Feed(b []byte) (consumed int, err error) {
	for consumed < len(b) && !s.stopped {
		if s.dead || s.in.in == ended {
			return len(b), nil
		}
		n, f := s.step(b[consumed:])
		consumed += n
		if f != noFault {
			s.fail(f)
			return len(b), f
		}
		if n == 0 {
			break
		}
	}
	if s.dead || s.in.in == ended {
		return len(b), nil
	}
	return consumed, nil
}

// step takes one thing off the front of b.
func (s *Server) step(b []byte) (int, fault) {
	switch s.in.in {
	case atStart:
		return s.start(b)
	case inHead, inTrailers:
		return s.fields(b)
	case awaiting:
		// Reading on, up to a bound, shows when the client leaves.
		s.ahead, s.waiting = true, len(b) >= httpmsg.HighWater
		s.setReading()
		return 0, noFault
	case finished:
		s.waiting = true
		s.setReading()
		return 0, noFault
	}
	p, n, f := s.in.next(b)
	if len(p) > 0 {
		s.rcv.OnData(p, s.in.in == finished)
	}
	return n, f
}

// start takes a request line, and empty lines before it (RFC 9112 section 2.2).
func (s *Server) start(b []byte) (int, fault) {
	if b[0] == '\r' || b[0] == '\n' {
		return 1, noFault
	}
	if s.head == nil {
		s.head = s.pool.Head()
		s.head.SetStyle(s.opts.style())
	}
	n, f := requestLine(b, int(s.scanned), s.head, s.opts)
	if f != noFault {
		return 0, f
	}
	if n == 0 {
		s.scanned = uint32(len(b) - 1)
		return 0, noFault
	}
	s.scanned, s.in.in, s.target = 0, inHead, s.head.HasAuthority()
	if s.head.Major == 0 { // HTTP/0.9 has no fields
		return n, s.request()
	}
	return n, noFault
}

func (s *Server) fields(b []byte) (int, fault) {
	trailer := s.in.in == inTrailers
	if s.head == nil {
		s.head = s.pool.Head()
		s.head.SetStyle(s.opts.style())
	}
	sec := section{h: s.head, o: s.opts, request: true, trailer: trailer, target: s.target, scanned: int(s.scanned)}
	n, done, f := sec.fields(b)
	s.scanned = uint32(sec.scanned)
	switch {
	case f != noFault || !done:
	case trailer:
		s.trailers()
	default:
		f = s.request()
	}
	return n, f
}

func (s *Server) trailers() {
	t := s.head
	s.head, s.in.in = nil, finished
	if dropForbidden(t); s.opts.EnableTrailers && t.Live() > 0 {
		s.rcv.OnTrailers(t)
	} else {
		s.rcv.OnData(nil, true)
	}
	s.pool.PutHead(t)
}

// request handles a whole head.
func (s *Server) request() fault {
	h := s.head
	s.http10 = h.Major != 1 || h.Minor != 1
	if s.http10 && !h.HasAuthority() && s.opts.DefaultHost != "" {
		h.SetAuthority([]byte(s.opts.DefaultHost))
	}
	method := h.Method()
	s.headOnly, s.connect = string(method) == "HEAD", string(method) == "CONNECT"
	if f := s.connection(h); f != noFault {
		return f
	}
	fr, f := frame(h, s.opts, true, false)
	if f != noFault {
		return f
	}
	if s.chunked = fr.kind == atSize; s.chunked && s.http10 {
		s.keep10, s.closing = false, true // RFC 9112 section 6.1: what follows isn't trusted
	}
	if s.upgrade || s.connect {
		fr.kind = awaiting
	}
	s.head = nil
	s.begin()
	s.in.start(fr)
	if s.opts.AutoContinue && count(h, httpmsg.Expect) == 1 && httpmsg.EqualFold(h.Get(httpmsg.Expect), "100-continue") {
		h.Del(httpmsg.Expect)
		s.conn.Put(append(s.conn.Grab(), "HTTP/1.1 100 Continue\r\n\r\n"...))
	}
	s.rcv.OnHead(h, fr.kind == finished)
	s.pool.PutHead(h)
	return noFault
}

// begin opens an exchange.
func (s *Server) begin() {
	s.id++
	s.open, s.out = true, beforeHead
	s.rcv = s.handler.OnStream((*serverStream)(s))
}

// connection reads Connection and Upgrade.
func (s *Server) connection(h *httpmsg.Head) fault {
	var closes, keeps, upgrades bool
	if h.Has(httpmsg.Connection) {
		for i := range h.Len() {
			id, _, list, ok := h.Field(i)
			for ok && id == httpmsg.Connection && len(list) > 0 {
				var t []byte
				t, list = nextToken(list)
				switch {
				case httpmsg.EqualFold(t, "close"):
					closes = true
				case httpmsg.EqualFold(t, "keep-alive"):
					keeps = true
				case httpmsg.EqualFold(t, "upgrade"):
					upgrades = true
				case httpmsg.EqualFold(t, "x-forwarded-for"), httpmsg.EqualFold(t, "x-forwarded-host"), httpmsg.EqualFold(t, "x-forwarded-proto"), len(t) > 0 && t[0] == ':':
					// The proxy would be made to drop what the upstream trusts it for.
					return connectionRejected
				}
			}
		}
	}
	s.keep10 = s.http10 && keeps && !closes
	s.closing = s.draining || closes || s.http10 && !keeps
	if s.upgrade = upgrades && h.Has(httpmsg.Upgrade) && !s.http10; s.upgrade {
		s.upgrade = s.ignore(h)
	}
	return noFault
}

// ignore takes what isn't obeyed out of Upgrade, h2c and what the options name,
// and reports whether anything is left.
func (s *Server) ignore(h *httpmsg.Head) bool {
	var left []byte
	dropped := false
	for list := h.Get(httpmsg.Upgrade); len(list) > 0; {
		var t []byte
		if t, list = nextToken(list); len(t) == 0 {
			continue
		}
		if httpmsg.EqualFold(t, "h2c") || s.opts.IgnoreUpgrade != nil && s.opts.IgnoreUpgrade(t) {
			dropped = true
			continue
		}
		if len(left) > 0 {
			left = append(left, ',')
		}
		left = append(left, t...)
	}
	switch {
	case len(left) == 0:
		h.Del(httpmsg.Upgrade)
		h.Del(httpmsg.HTTP2Settings)
	case dropped:
		h.Set(httpmsg.Upgrade, left)
	}
	return len(left) > 0
}

// fail reports a broken request; the handler may answer it.
func (s *Server) fail(f fault) {
	s.pool.PutHead(s.head)
	s.head = nil
	if !s.open {
		s.begin()
	}
	s.Fail(f.reason())
}

// Fail ends the reading of requests and gives the exchange, one is made when
// there is none, r; the handler may answer it with r.Status when no response has
// begun. The driver uses it for timeouts of the head.
func (s *Server) Fail(r httpmsg.ResetReason) {
	if s.dead {
		return
	}
	if !s.open {
		s.begin()
	}
	s.in.in, s.closing = ended, true
	if s.out != beforeHead {
		r.Status = 0
	}
	begun, rcv := s.out != beforeHead, s.rcv
	rcv.OnReset(r)
	if begun {
		s.cut()
	}
}

// cut ends a response that can't be completed so that the client notices.
func (s *Server) cut() {
	if s.dead {
		return
	}
	s.end()
	if s.out == asClose {
		s.conn.Abort() // FIN would look like the end of the message
		return
	}
	s.conn.CloseWhenFlushed()
}

// end is the end of the engine.
func (s *Server) end() {
	if s.dead {
		return
	}
	s.dead, s.open, s.rcv, s.crumbs = true, false, nil, nil
	s.pool.PutHead(s.head)
	s.head, s.in.in = nil, ended
	s.handler.OnGone()
}

// EOF says that the peer sends no more. As in Envoy that ends an exchange, a
// tunnel's other direction goes on.
func (s *Server) EOF() {
	if s.in.in == raw && s.open {
		s.in.in = ended
		s.rcv.OnData(nil, true)
		return
	}
	if !s.dead {
		s.Closed(nil)
		s.conn.CloseWhenFlushed()
	}
}

// Closed says that the connection is gone; the engine doesn't touch it again.
func (s *Server) Closed(error) {
	if s.InHead() {
		s.begin() // half a request is one too
	}
	rcv := s.rcv
	wasOpen := s.open
	s.end()
	if wasOpen {
		rcv.OnReset(httpmsg.ResetReason{Kind: httpmsg.ResetConnTerminated})
	}
}

// Drain makes the current or next response the last.
func (s *Server) Drain() { s.draining, s.closing = true, true }

// DelayedClose reports, when the engine closes, that the client may still be
// sending: a FIN with unread bytes behind it would become a RST, so Envoy waits
// delayed_close_timeout for the client to close first.
func (s *Server) DelayedClose() bool { return s.late }

// Bulk is how much content the response still must have, by its Content-Length;
// 0 when it is framed otherwise or output waits. That much may be written past
// the engine, and told by Skip.
func (s *Server) Bulk() uint64 {
	if s.dead || s.out != asLength {
		return 0
	}
	return s.left
}

// Skip notes n bytes of content that were written past the engine.
func (s *Server) Skip(n uint64) { s.left -= min(n, s.left) }

// Idle reports whether no exchange is open and no byte of a request has come.
func (s *Server) Idle() bool { return !s.open && !s.dead && s.head == nil }

// InHead reports whether a request's head has begun and isn't complete, for
// request_headers_timeout.
func (s *Server) InHead() bool { return !s.open && !s.dead && s.head != nil }

// Flushed says that output was given to the kernel; the driver calls it after
// each write.
func (s *Server) Flushed() {
	if s.dead || s.conn.Pending() > httpmsg.LowWater {
		return
	}
	if s.full {
		s.full = false
		s.setReading()
	}
	if s.high && s.open {
		if s.high = false; len(s.crumbs) > 0 {
			s.conn.Put(s.crumbs.appendTo(s.conn.Grab()))
		}
		s.rcv.OnDrain()
	}
}

// setReading makes PauseRead follow the causes of a pause.
func (s *Server) setReading() {
	stop := s.paused || s.waiting || s.full
	if stop == s.stopped || s.dead {
		return
	}
	if s.stopped = stop; stop {
		s.conn.PauseRead()
	} else {
		s.conn.ResumeRead()
	}
}

// responded is called when the response is complete.
func (s *Server) responded() {
	s.out = sent
	if s.closing || s.in.in != finished {
		s.late = s.in.in != finished
		s.end()
		s.conn.CloseWhenFlushed()
		return
	}
	s.open, s.rcv, s.high = false, nil, false
	s.in.in = atStart
	s.paused, s.waiting = false, false
	// A client that pipelines and doesn't read must not fill our memory with answers.
	s.full = s.conn.Pending() > httpmsg.HighWater
	s.setReading()
}

// tunnel turns both directions into raw bytes.
func (s *Server) tunnel() {
	s.out, s.in.in = asRaw, raw
	if s.ahead && !s.stopped {
		s.stopped = true
		s.conn.PauseRead() // reading that resumes gives what was left
	}
	s.waiting = false
	s.setReading()
}
