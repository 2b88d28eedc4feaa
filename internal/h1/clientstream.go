package h1

import "sluice/internal/httpmsg"

// clientStream is the Client as its user's Stream: the same memory, since there
// is one exchange at a time.
type clientStream Client

// SendHead implements httpmsg.Stream.
func (t *clientStream) SendHead(h *httpmsg.Head, end bool) {
	c := (*Client)(t)
	if c.dead || c.out != beforeHead {
		return
	}
	method := h.Method()
	c.headOnly, c.connect = string(method) == "HEAD", string(method) == "CONNECT"
	c.upgrade = h.Has(httpmsg.Upgrade) && hasToken(h.Get(httpmsg.Connection), "upgrade")
	b := c.appendRequestLine(c.conn.Grab(), h)
	fields := len(b)
	b = appendFields(c.appendHost(b, h), h, c.opts, httpmsg.Host)
	switch {
	case (c.connect || c.upgrade) && !end:
		c.out = asRaw
	case h.Has(httpmsg.ContentLength):
		c.left, _ = number(h.Get(httpmsg.ContentLength))
		c.out = asLength
	case end:
		c.left, c.out = 0, asLength
		if !bodiless(method) {
			b = appendLine(b, c.opts.proper(h), "content-length", "0")
		}
	default:
		c.out = asChunks
		b = appendLine(b, c.opts.proper(h), "transfer-encoding", "chunked")
	}
	h.SetWireSize(len(b) - fields)
	c.conn.Put(append(b, '\r', '\n'))
	if end {
		c.finishRequest()
	}
}

// bodiless methods have no content unless it is announced.
func bodiless(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "DELETE", "TRACE", "CONNECT":
		return true
	}
	return false
}

// appendRequestLine writes the request line.
func (c *Client) appendRequestLine(b []byte, h *httpmsg.Head) []byte {
	b = append(append(b, h.Method()...), ' ')
	switch {
	case c.connect:
		b = append(b, h.Authority()...)
	case c.opts.SendFullyQualified && len(h.Path()) > 0 && h.Path()[0] == '/':
		if scheme := h.Scheme(); len(scheme) > 0 {
			b = append(b, scheme...)
		} else {
			b = append(b, "http"...)
		}
		b = append(append(b, "://"...), h.Authority()...)
		b = append(b, h.Path()...)
	default:
		b = append(b, h.Path()...)
	}
	return append(b, " HTTP/1.1\r\n"...)
}

// appendHost writes the authority as Host.
func (c *Client) appendHost(b []byte, h *httpmsg.Head) []byte {
	if !h.HasAuthority() {
		return b
	}
	switch {
	case h.Style() != httpmsg.AsWritten:
		b = h.AppendHostName(b)
	case c.opts.ProperCase:
		b = append(b, "Host"...)
	default:
		b = append(b, "host"...)
	}
	b = append(append(b, ": "...), h.Authority()...)
	return append(b, '\r', '\n')
}

// SendData implements httpmsg.Stream.
func (t *clientStream) SendData(p []byte, end bool) {
	c := (*Client)(t)
	if c.dead || c.out == beforeHead || c.out == sent {
		return
	}
	if c.out == asRaw && c.in.in != raw && c.in.in != ended {
		c.held = append(c.held, p...)
		if end {
			t.Reset(httpmsg.ResetReason{}) // gone before the tunnel was there
		}
		return
	}
	if c.out == asChunks && !end && c.crumbs.take(p, c.conn.Pending()) {
		c.high = true
		return
	}
	b := c.crumbs.appendTo(c.conn.Grab())
	switch c.out {
	case asLength:
		if uint64(len(p)) > c.left {
			p, c.closing = p[:c.left], true // never let content become the next request
		}
		c.left -= uint64(len(p))
		b = append(b, p...)
	case asChunks:
		if len(p) > 0 {
			b = appendChunk(b, p)
		}
		if end {
			b = appendLast(b, nil, c.opts)
		}
	default:
		b = append(b, p...)
	}
	c.conn.Put(b)
	if end {
		c.finishRequest()
		return
	}
	c.high = c.high || c.conn.Pending() > httpmsg.HighWater
}

// finishRequest notes the end of the request; a short one ends the connection,
// and so does the end of a tunnel.
func (c *Client) finishRequest() {
	if c.out == asLength && c.left > 0 {
		c.short()
		return
	}
	if c.out == asRaw {
		c.end()
		c.conn.CloseWhenFlushed()
		return
	}
	c.out = sent
}

// short gives up an exchange whose request is shorter than it declared.
func (c *Client) short() {
	rcv, before := c.rcv, !c.started
	c.close()
	rcv.OnReset(httpmsg.ResetReason{Kind: httpmsg.ResetLocal, BeforeHead: before})
}

// SendTrailers implements httpmsg.Stream.
func (t *clientStream) SendTrailers(h *httpmsg.Head) {
	c := (*Client)(t)
	if c.out != asChunks {
		t.SendData(nil, true)
		return
	}
	if c.dead {
		return
	}
	c.conn.Put(appendLast(c.crumbs.appendTo(c.conn.Grab()), h, c.opts))
	c.finishRequest()
}

// Reset implements httpmsg.Stream: it closes the connection.
func (t *clientStream) Reset(httpmsg.ResetReason) {
	if t.open {
		(*Client)(t).close()
	}
}

// Pause implements httpmsg.Stream.
func (t *clientStream) Pause() {
	if t.open && !t.paused {
		t.paused = true
		t.conn.PauseRead()
	}
}

// Resume implements httpmsg.Stream.
func (t *clientStream) Resume() {
	if t.open && t.paused {
		t.paused = false
		t.conn.ResumeRead()
	}
}

// Buffered implements httpmsg.Stream.
func (t *clientStream) Buffered() int { return t.conn.Pending() + len(t.held) + len(t.crumbs) }

// Detach implements httpmsg.Stream. The 101, or the 2xx to CONNECT, does it.
func (t *clientStream) Detach() {}

// HTTP2 implements httpmsg.Stream.
func (t *clientStream) HTTP2() bool { return false }

// ID implements httpmsg.Stream.
func (t *clientStream) ID() uint64 { return t.id }
