package h2

import "sluice/internal/httpmsg"

// EOF says that the peer sends no more, which on HTTP/2 ends the connection.
func (e *engine) EOF() {
	if !e.dead {
		e.Closed(nil)
		e.io.CloseWhenFlushed()
	}
}

// Closed says that the connection is gone; the engine doesn't touch it again.
func (e *engine) Closed(error) {
	if !e.dead {
		e.end(httpmsg.ResetReason{Kind: httpmsg.ResetConnTerminated})
	}
}

// fail ends the connection for what the peer did.
func (e *engine) fail(f *fault) {
	if e.dead {
		return
	}
	if f.code != noGoAway {
		e.sendGoAway(e.lastPeer(), uint32(f.code))
	}
	e.end(httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Detail: f.Error()})
	e.io.CloseWhenFlushed()
}

// lastPeer is the last stream of the peer's that we looked at.
func (e *engine) lastPeer() uint32 {
	if e.client {
		return 0
	}
	return e.lastID
}

// end tells every receiver that its exchange is over.
func (e *engine) end(r httpmsg.ResetReason) {
	e.dead = true
	e.pool.PutHead(e.block.head)
	e.block = block{}
	for i := range e.table {
		for e.table[i] != nil {
			st := e.table[i]
			r.BeforeHead = !st.headIn
			e.drop(st, r)
		}
	}
	e.table = nil
	e.gone()
}

// gone tells a server's handler, once, that no request comes any more.
func (e *engine) gone() {
	if !e.toldGone && e.handler != nil {
		e.toldGone = true
		e.handler.OnGone()
	}
}

// Flushed says that output was given to the kernel: DATA that waited moves up,
// and control frames no longer count as a flood. The driver calls it after each
// write.
func (e *engine) Flushed() {
	if e.dead {
		return
	}
	to := e.out.written - min(e.out.written, uint64(e.io.Pending()))
	e.out.all.flushed(to)
	e.out.control.flushed(to)
	e.pump()
}

// Active is the number of open streams.
func (e *engine) Active() int { return e.active }

// Drain begins the end: a GOAWAY that stops no request yet. GoAway is due after
// a round trip at least.
func (e *engine) Drain() {
	if e.dead || e.draining || e.leaving {
		return
	}
	e.draining = true
	if e.client {
		e.GoAway()
		return
	}
	e.sendGoAway(maxWindow, CodeNo)
}

// GoAway takes no further requests and closes when the open ones are done.
func (e *engine) GoAway() {
	if e.dead || e.leaving {
		return
	}
	e.leaving = true
	e.goneLast = e.lastPeer()
	e.sendGoAway(e.goneLast, CodeNo)
	e.gone()
	e.leaveWhenDone()
}

// SweepStalled resets the streams whose answer is whole but waits for the
// client's window, if nothing of it moved since the sweep before; it reports
// whether others wait. It bounds what a client that doesn't read holds.
func (s *Server) SweepStalled() (waiting bool) {
	for i := range s.table {
		for st := s.table[i]; st != nil; {
			next := st.next
			switch {
			case !st.ending || st.outDone:
			case !st.marked:
				st.marked, waiting = true, true
			default:
				s.opts.Counters.TxFlushTimeout++
				id := st.id
				s.release(st)
				s.sendReset(id, CodeInternal)
			}
			st = next
		}
	}
	s.leaveWhenDone()
	return waiting
}

// leaveWhenDone closes a connection that takes no streams when the last ended.
func (e *engine) leaveWhenDone() {
	if !e.dead && e.active == 0 && (e.leaving || e.client && e.goneAway) {
		e.end(httpmsg.ResetReason{})
		e.io.CloseWhenFlushed()
	}
}

// Server is the server side of one connection. Not safe for concurrent use.
type Server struct{ engine }

// NewServer makes the engine of an accepted connection and sends SETTINGS.
func NewServer(conn httpmsg.Conn, handler httpmsg.ServerHandler, opts *Options) *Server {
	s := &Server{}
	s.handler = handler
	s.init(conn, opts, false)
	return s
}

// Client is the client side of one connection. Not safe for concurrent use.
type Client struct{ engine }

// NewClient makes the engine of an established connection and sends the preface.
func NewClient(conn httpmsg.Conn, opts *Options) *Client {
	c := &Client{}
	c.init(conn, opts, true)
	return c
}

// CanOpen reports whether Open may be called now: the connection takes streams,
// and the peer's limit and the ids leave room. Before the peer's SETTINGS the
// limit is 100.
func (c *Client) CanOpen() bool {
	return c.Usable() && c.active < int(min(c.maxOpen, maxWindow))
}

// Usable reports whether the connection may take streams now or later.
func (c *Client) Usable() bool {
	return !c.dead && !c.goneAway && !c.leaving && !c.draining && c.lastID < maxWindow-2
}

// PeerLimit is the peer's MAX_CONCURRENT_STREAMS.
func (c *Client) PeerLimit() uint32 { return c.maxOpen }

// ExtendedConnect reports whether the peer takes extended CONNECT (RFC 8441).
func (c *Client) ExtendedConnect() bool { return c.extended }

// Open begins an exchange; it needs CanOpen. The next call on the stream is
// SendHead, or Reset; the ID may change there.
func (c *Client) Open(r httpmsg.Receiver) httpmsg.Stream {
	if c.lastID == 0 {
		c.lastID = 1
	} else {
		c.lastID += 2
	}
	st := c.open(c.lastID)
	st.rcv = r
	return st
}
