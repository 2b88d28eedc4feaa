package h1

import "sluice/internal/httpmsg"

// Client is the client side of one connection: one exchange at a time. Not safe
// for concurrent use.
type Client struct {
	conn    httpmsg.Conn
	opts    *Options
	pool    *httpmsg.Pool
	rcv     httpmsg.Receiver // of the exchange
	head    *httpmsg.Head    // being received
	held    []byte           // tunnel bytes that wait for the upstream's 101
	in      content
	left    uint64 // of the request's Content-Length
	crumbs  crumbs // of the request
	id      uint64 // of the exchange, counted from 1
	scanned uint32 // bytes of an unfinished line already looked at
	out     writing

	open     bool // an exchange goes on
	headOnly bool // HEAD
	connect  bool
	upgrade  bool
	started  bool // a head has come, informational ones included
	closing  bool // the connection can't be used again
	paused   bool // by the receiver: PauseRead is in force
	high     bool // Buffered went over HighWater
	dead     bool
}

// NewClient makes the engine of an established upstream connection.
func NewClient(conn httpmsg.Conn, opts *Options) *Client {
	c := &Client{conn: conn, opts: opts, pool: opts.Pool}
	if c.pool == nil {
		c.pool = &httpmsg.Pool{}
	}
	opts.Counters.use()
	return c
}

// Open begins an exchange; it needs Reusable. The next call on the stream is
// SendHead.
func (c *Client) Open(r httpmsg.Receiver) httpmsg.Stream {
	c.id++
	c.open, c.rcv, c.out, c.in = true, r, beforeHead, content{}
	c.started = false
	return (*clientStream)(c)
}

// Idle reports that no exchange is open on a live connection.
func (c *Client) Idle() bool { return !c.open && !c.dead }

// Reusable reports whether Open may be called.
func (c *Client) Reusable() bool { return c.Idle() && !c.closing }

// Drain makes the current exchange the last.
func (c *Client) Drain() { c.closing = true }

// Feed takes received bytes, and says how many; the rest must come again in
// front of later bytes. An error means that the peer broke the protocol: the
// engine has told the receiver and closed the connection.
func (c *Client) Feed(b []byte) (consumed int, err error) {
	if !c.open && !c.dead && len(b) > 0 { // nobody asked: never the next response
		c.close()
		return len(b), codecError
	}
	for consumed < len(b) && !c.paused && !c.dead {
		n, f := c.step(b[consumed:])
		consumed += n
		if f != noFault {
			c.fail(f)
			return len(b), f
		}
		if n == 0 || !c.open {
			break
		}
	}
	if c.dead {
		return len(b), nil
	}
	return consumed, nil
}

// step takes one thing off the front of b.
func (c *Client) step(b []byte) (int, fault) {
	switch c.in.in {
	case atStart:
		return c.start(b)
	case inHead, inTrailers:
		return c.fields(b)
	case ended:
		return len(b), noFault
	}
	p, n, f := c.in.next(b)
	if len(p) == 0 {
		return n, f
	}
	if c.in.in == finished {
		return n, c.last(p, nil, len(b) > n)
	}
	c.rcv.OnData(p, false)
	return n, f
}

func (c *Client) start(b []byte) (int, fault) {
	if c.head == nil {
		c.head = c.pool.Head()
		c.head.SetStyle(c.opts.style())
	}
	n, f := statusLine(b, int(c.scanned), c.head, c.opts)
	if f != noFault {
		return 0, f
	}
	if n == 0 {
		c.scanned = uint32(len(b) - 1)
		return 0, noFault
	}
	c.scanned, c.in.in = 0, inHead
	return n, noFault
}

func (c *Client) fields(b []byte) (int, fault) {
	trailer := c.in.in == inTrailers
	if c.head == nil {
		c.head = c.pool.Head()
		c.head.SetStyle(c.opts.style())
	}
	sec := section{h: c.head, o: c.opts, trailer: trailer, scanned: int(c.scanned)}
	n, done, f := sec.fields(b)
	c.scanned = uint32(sec.scanned)
	switch {
	case f != noFault || !done:
	case trailer:
		t := c.head
		c.head = nil
		dropForbidden(t)
		f = c.last(nil, t, len(b) > n)
		c.pool.PutHead(t)
	default:
		f = c.response(len(b) > n)
	}
	return n, f
}

// response handles a whole head; more says that bytes follow it.
func (c *Client) response(more bool) fault {
	h := c.head
	switch {
	case h.Status == 101:
		return c.switching(more)
	case h.Status < 200:
		return c.informational()
	}
	tunnel := c.connect && h.Status/100 == 2
	none := c.headOnly || h.Status == 204 || h.Status == 304 || tunnel
	if h.Status == 204 && bodyFields(h) {
		return codecError
	}
	fr, f := frame(h, c.opts, false, none)
	if none && !tunnel {
		h.Del(httpmsg.TransferEncoding)
	}
	if f != noFault {
		return f
	}
	c.head, c.started = nil, true
	c.keepAlive(h)
	if tunnel {
		fr.kind = raw
	}
	if fr.kind == toClose {
		c.closing = true
	}
	c.in.start(fr)
	if fr.kind == finished {
		f = c.finish(h, more)
	} else {
		c.rcv.OnHead(h, false)
	}
	if tunnel {
		c.tunnel()
	}
	c.pool.PutHead(h)
	return f
}

// bodyFields reports framing fields on a message that can't have content, and
// takes a Content-Length of zero off.
func bodyFields(h *httpmsg.Head) bool {
	if h.Has(httpmsg.TransferEncoding) {
		return true
	}
	if h.Has(httpmsg.ContentLength) {
		if string(h.Get(httpmsg.ContentLength)) != "0" || count(h, httpmsg.ContentLength) > 1 {
			return true
		}
		h.Del(httpmsg.ContentLength)
	}
	return false
}

// informational passes a 1xx on and goes back to the start.
func (c *Client) informational() fault {
	h := c.head
	if bodyFields(h) {
		return codecError
	}
	c.head, c.in.in, c.started = nil, atStart, true
	c.rcv.OnHead(h, false)
	c.pool.PutHead(h)
	return noFault
}

// switching handles a 101: a tunnel if it was asked for, else the end.
func (c *Client) switching(more bool) (f fault) {
	h := c.head
	if bodyFields(h) {
		return codecError
	}
	c.head, c.started, c.closing = nil, true, true
	if c.upgrade {
		c.in.in = raw
		c.rcv.OnHead(h, false)
		c.tunnel()
	} else {
		c.in.in = finished
		f = c.finish(h, more)
	}
	c.pool.PutHead(h)
	return f
}

// tunnel lets the bytes of the sender pass.
func (c *Client) tunnel() {
	if c.dead {
		return
	}
	c.closing = true
	if c.out == asRaw && len(c.held) > 0 {
		c.conn.Put(append(c.conn.Grab(), c.held...))
	}
	c.held = nil
}

func (c *Client) keepAlive(h *httpmsg.Head) {
	list := h.Get(httpmsg.Connection)
	if hasToken(list, "close") || h.Minor == 0 && !hasToken(list, "keep-alive") {
		c.closing = true
	}
}

// finish ends the exchange with a head that has no content.
func (c *Client) finish(h *httpmsg.Head, more bool) fault {
	rcv := c.rcv
	f := c.over(more)
	rcv.OnHead(h, true)
	return f
}

// last ends the exchange with the last content or with trailers.
func (c *Client) last(p []byte, t *httpmsg.Head, more bool) fault {
	rcv := c.rcv
	f := c.over(more)
	if t != nil && c.opts.EnableTrailers && t.Live() > 0 {
		rcv.OnTrailers(t)
	} else {
		rcv.OnData(p, true)
	}
	return f
}

// over makes the engine ready for the next exchange before the receiver hears
// of the end, or closes: after an answer to half a request, or with bytes that
// nobody asked for behind it.
func (c *Client) over(more bool) fault {
	if c.closing || more || c.out != sent {
		c.close()
		if more && !c.paused {
			return codecError
		}
		return noFault
	}
	c.open, c.rcv, c.high = false, nil, false
	c.in.in = atStart
	if c.paused {
		c.paused = false
		c.conn.ResumeRead()
	}
	return noFault
}

// fail tells the receiver about a broken response.
func (c *Client) fail(f fault) {
	if c.dead {
		return
	}
	rcv, r := c.rcv, f.reason()
	r.Status, r.Kind, r.BeforeHead = 0, httpmsg.ResetProtocolError, !c.started
	c.close()
	rcv.OnReset(r)
}

// close is the end of the engine, and of the connection.
func (c *Client) close() {
	if c.dead {
		return
	}
	c.end()
	if c.conn.Pending() > 0 {
		c.conn.Abort() // what is left of the request must not look whole
		return
	}
	c.conn.CloseWhenFlushed()
}

func (c *Client) end() {
	c.dead, c.open, c.rcv, c.held, c.crumbs = true, false, nil, nil, nil
	c.pool.PutHead(c.head)
	c.head, c.in.in = nil, ended
}

// Bulk is how many bytes of content are still to come for sure; 0 when that
// isn't known. They may be passed on without Feed, and told by Skip.
func (c *Client) Bulk() uint64 {
	if !c.open || c.dead || c.paused || c.in.in != inLength {
		return 0
	}
	return c.in.left
}

// Skip notes n bytes of content that passed outside of the engine; the last ends
// the message, as Feed would.
func (c *Client) Skip(n uint64) {
	if c.dead || !c.open || c.in.in != inLength {
		return
	}
	if c.in.left -= min(n, c.in.left); c.in.left == 0 {
		c.in.in = finished
		_ = c.last(nil, nil, false) // no bytes follow: no fault
	}
}

// EOF says that the peer sends no more: the end of a response without length,
// and otherwise a broken one.
func (c *Client) EOF() {
	if c.dead {
		return
	}
	rcv, wasOpen, in := c.rcv, c.open, c.in.in
	if wasOpen && in == raw {
		c.in.in = ended
		rcv.OnData(nil, true)
		return
	}
	began := in != atStart || c.head != nil
	before := !c.started
	c.close()
	switch {
	case !wasOpen:
	case in == toClose:
		rcv.OnData(nil, true)
	case began:
		rcv.OnReset(httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Detail: codecError.Error(), BeforeHead: before})
	default:
		rcv.OnReset(httpmsg.ResetReason{Kind: httpmsg.ResetConnTerminated, BeforeHead: before})
	}
}

// Closed says that the connection is gone; the engine doesn't touch it again.
func (c *Client) Closed(error) {
	rcv, wasOpen, before := c.rcv, c.open, !c.started
	c.end()
	if wasOpen {
		rcv.OnReset(httpmsg.ResetReason{Kind: httpmsg.ResetConnTerminated, BeforeHead: before})
	}
}

// Flushed says that output was given to the kernel; the driver calls it after
// each write.
func (c *Client) Flushed() {
	if c.high && c.open && c.conn.Pending() <= httpmsg.LowWater {
		if c.high = false; len(c.crumbs) > 0 {
			c.conn.Put(c.crumbs.appendTo(c.conn.Grab()))
		}
		c.rcv.OnDrain()
	}
}
