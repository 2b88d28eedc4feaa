package h1

import "sluice/internal/httpmsg"

// serverStream is the Server as its handler's Stream: the same memory, since
// there is one exchange at a time.
type serverStream Server

// SendHead implements httpmsg.Stream.
func (t *serverStream) SendHead(h *httpmsg.Head, end bool) {
	s := (*Server)(t)
	if s.dead || s.out != beforeHead {
		return
	}
	if h.Status < 200 && h.Status != 101 {
		b := appendFields(appendStatus(s.conn.Grab(), h, s.http10), h, s.opts, httpmsg.ContentLength)
		s.conn.Put(append(b, '\r', '\n'))
		return
	}
	w, skip := s.responseFraming(h, end)
	b := appendStatus(s.conn.Grab(), h, s.http10)
	fields := len(b)
	b = appendFields(b, h, s.opts, skip)
	b = s.appendConnection(b, h, w)
	if w == asChunks || w == noContent && s.headOnly && !s.http10 && !h.Has(httpmsg.ContentLength) && h.Status != 204 && h.Status != 304 {
		b = appendLine(b, s.opts.proper(h), "transfer-encoding", "chunked")
	} else if w == asLength && end && !h.Has(httpmsg.ContentLength) {
		b = appendLine(b, s.opts.proper(h), "content-length", "0")
	}
	h.SetWireSize(len(b) - fields)
	s.conn.Put(append(b, '\r', '\n'))
	if s.out = w; w == asRaw {
		s.tunnel()
	}
	if end {
		s.finishResponse()
	}
}

// responseFraming decides how the content is delimited; skip is a field that
// must not be written.
func (s *Server) responseFraming(h *httpmsg.Head, end bool) (w writing, skip httpmsg.ID) {
	cl := h.Has(httpmsg.ContentLength)
	switch {
	case s.connect && h.Status/100 == 2 && !end, s.upgrade && h.Status == 101:
		return asRaw, httpmsg.ContentLength
	case h.Status == 204 || h.Status == 101:
		return noContent, httpmsg.ContentLength // RFC 9110 section 8.6
	case s.headOnly, h.Status == 304:
		return noContent, httpmsg.Other
	case cl:
		n, ok := number(h.Get(httpmsg.ContentLength))
		if !ok {
			s.closing = true // can't happen with heads of the engines
		}
		s.left = n
		return asLength, httpmsg.Other
	case end:
		s.left = 0
		return asLength, httpmsg.Other
	case s.http10:
		return asClose, httpmsg.Other
	}
	return asChunks, httpmsg.Other
}

// appendConnection tells the client what happens to the connection, unless the
// head does.
func (s *Server) appendConnection(b []byte, h *httpmsg.Head, w writing) []byte {
	if w == asRaw {
		s.closing = true
		return b
	}
	if s.in.in != finished || w == asClose {
		s.closing = true
	}
	if h.Has(httpmsg.Connection) {
		if hasToken(h.Get(httpmsg.Connection), "close") {
			s.closing = true
		}
		return b
	}
	if s.closing {
		return appendLine(b, s.opts.proper(h), "connection", "close")
	}
	if s.keep10 {
		return appendLine(b, s.opts.proper(h), "connection", "keep-alive")
	}
	return b
}

// finishResponse checks that the declared length was met.
func (s *Server) finishResponse() {
	if s.out == asLength && s.left > 0 {
		s.cut()
		return
	}
	s.responded()
}

// SendData implements httpmsg.Stream.
func (t *serverStream) SendData(p []byte, end bool) {
	s := (*Server)(t)
	if s.dead || s.out == beforeHead || s.out == sent {
		return
	}
	if s.out == asChunks && !end && s.crumbs.take(p, s.conn.Pending()) {
		s.high = true
		return
	}
	b := s.crumbs.appendTo(s.conn.Grab())
	switch s.out {
	case asLength:
		if uint64(len(p)) > s.left {
			p, s.closing = p[:s.left], true // never let content become the next response
		}
		s.left -= uint64(len(p))
		b = append(b, p...)
	case asChunks:
		if len(p) > 0 {
			b = appendChunk(b, p)
		}
		if end {
			b = appendLast(b, nil, s.opts)
		}
	case asClose, asRaw:
		b = append(b, p...)
	}
	s.conn.Put(b)
	if end {
		s.finishResponse()
		return
	}
	s.high = s.high || s.conn.Pending() > httpmsg.HighWater
}

// SendTrailers implements httpmsg.Stream.
func (t *serverStream) SendTrailers(h *httpmsg.Head) {
	s := (*Server)(t)
	if s.out != asChunks {
		t.SendData(nil, true)
		return
	}
	if s.dead {
		return
	}
	s.conn.Put(appendLast(s.crumbs.appendTo(s.conn.Grab()), h, s.opts))
	s.finishResponse()
}

// Reset implements httpmsg.Stream: it closes the connection.
func (t *serverStream) Reset(httpmsg.ResetReason) { (*Server)(t).cut() }

// Pause implements httpmsg.Stream.
func (t *serverStream) Pause() { t.paused = true; (*Server)(t).setReading() }

// Resume implements httpmsg.Stream.
func (t *serverStream) Resume() { t.paused = false; (*Server)(t).setReading() }

// Buffered implements httpmsg.Stream.
func (t *serverStream) Buffered() int { return t.conn.Pending() + len(t.crumbs) }

// Detach implements httpmsg.Stream. A 101, or a 2xx to CONNECT, does it too.
func (t *serverStream) Detach() {
	s := (*Server)(t)
	if !s.dead && s.out != beforeHead && s.in.in == awaiting {
		s.closing = true
		s.tunnel()
	}
}

// HTTP2 implements httpmsg.Stream.
func (t *serverStream) HTTP2() bool { return false }

// ID implements httpmsg.Stream.
func (t *serverStream) ID() uint64 { return t.id }
