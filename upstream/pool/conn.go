package pool

import (
	"net/netip"

	"sluice/internal/config"
	"sluice/internal/h1"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
)

// engine is the client side of a connection: internal/h1.Client or
// internal/h2.Client.
type engine interface {
	Open(r httpmsg.Receiver) httpmsg.Stream
	Feed(b []byte) (consumed int, err error)
	EOF()
	Closed(err error)
	Flushed()
	Reusable() bool
	Drain()
}

type connState uint8

const (
	dialing connState = iota
	shaking
	up
	gone
)

// Conn is one upstream connection; it is the worker.Handler of its socket.
type Conn struct {
	pool     *Pool
	wire     *worker.Conn
	engine   engine
	timer    worker.Timer // connecting, then idle
	duration worker.Timer
	pings    Keepalive
	restedAt int64 // when the last stream ended, by the worker's clock
	state    connState
	priority config.Priority // whose breaker counts the connection
	http2    bool
	retired  bool
	remote   bool // the peer is ending it
	inReady  bool
	inEngine bool
	leaving  bool
	dropped  bool // an exchange on it was given up
	streams  int
	served   int
	room     int // streams it was counted for while connecting

	ID    uint64
	TLS   *telemetry.TLS
	Local netip.AddrPort
}

func (p *Pool) dial(priority config.Priority) {
	cl := p.cluster
	c := &Conn{pool: p, priority: priority, ID: cl.NextID(), room: 1}
	if p.Key.Protocol == HTTP2 {
		c.room = p.streamLimit()
	}
	p.connecting += c.room
	p.conns = append(p.conns, c)
	cl.Stats[CxTotal]++
	cl.Stats[CxActive]++
	cl.Breakers[priority].Connections.Inc()
	c.timer.Fire = c.onTimer
	c.duration.Fire = c.onDuration
	if cl.Config.ConnectTimeout > 0 {
		cl.Worker.Start(&c.timer, cl.Config.ConnectTimeout)
	}
	c.wire = cl.Worker.Dial(p.Target.Addr, p.Target.Pipe, p.Target.Dial, c)
}

// streamLimit is how many streams a new HTTP/2 connection is expected to carry.
func (p *Pool) streamLimit() int {
	if n := int(p.cluster.Config.HTTP.HTTP2.MaxConcurrentStreams); n > 0 {
		return n
	}
	return 1 << 20
}

// Target is where the connection goes.
func (c *Conn) Target() *Target { return &c.pool.Target }

// Protocol is what it speaks.
func (c *Conn) Protocol() telemetry.Protocol {
	if c.http2 {
		return telemetry.HTTP2
	}
	return telemetry.HTTP11
}

// Bulk is how many bytes of the response are still to come for sure, 0 when
// that isn't known; see h1.Client.Bulk.
func (c *Conn) Bulk() uint64 {
	if h, ok := c.engine.(*h1.Client); ok && c.state == up {
		return h.Bulk()
	}
	return 0
}

// Skip notes bytes of the response that were spliced past the engine.
func (c *Conn) Skip(n int) {
	if h, ok := c.engine.(*h1.Client); ok && c.state == up {
		c.pool.cluster.Stats[CxRxBytes] += uint64(n)
		c.within(func() { h.Skip(uint64(n)) })
	}
}

// Wire is the socket below.
func (c *Conn) Wire() *worker.Conn { return c.wire }

// OnConnect implements worker.Handler.
func (c *Conn) OnConnect(w *worker.Conn, err error) {
	if c.state != dialing {
		return
	}
	if err != nil {
		c.failed(ConnectFailure, ConnectReason(err))
		return
	}
	c.Local = w.LocalAddr()
	t := c.pool.Target.TLS
	if t == nil {
		c.established("")
		return
	}
	c.state = shaking
	o := SecureOptions{SNI: c.pool.Target.SNI, ALPN: c.pool.ALPN, Timeout: c.pool.cluster.Config.ConnectTimeout}
	c.pool.cluster.Secure(w, t, o, c.secured)
}

func (c *Conn) secured(s *Session, err error) {
	if c.state != shaking {
		return
	}
	if err != nil {
		if c.wire != nil {
			c.wire.Close()
		}
		c.failed(ConnectFailure, err.Error())
		return
	}
	c.TLS = s.TLS
	c.wire.SetHandler(c)
	c.established(s.ALPN)
}

func (c *Conn) established(alpn string) {
	p, cl := c.pool, c.pool.cluster
	cl.Worker.Stop(&c.timer)
	p.connecting -= c.room
	c.state = up
	c.http2 = p.Key.Protocol == HTTP2 || p.Key.Protocol == Auto && alpn == "h2"
	if c.http2 {
		cl.Stats[CxHTTP2]++
	} else {
		cl.Stats[CxHTTP1]++
	}
	c.engine = c.newEngine()
	if d := cl.Config.MaxConnDuration; d > 0 {
		cl.Worker.Start(&c.duration, d)
	}
	p.makeReady(c)
	p.serve()
	if c.state == up && c.streams == 0 {
		c.rest()
	}
}

// failed ends a connection that never came up.
func (c *Conn) failed(k Kind, reason string) {
	p := c.pool
	p.connecting -= c.room
	p.cluster.Stats[CxConnectFail]++
	if k == ConnectTimeout {
		p.cluster.Stats[CxConnectTimeout]++
	}
	c.forget()
	p.fail(Failure{Kind: k, Reason: reason, Host: p.Target.Name})
	if p.first != nil {
		p.grow(p.first.Priority)
	}
}

// forget takes the connection out of the books.
func (c *Conn) forget() {
	p := c.pool
	c.state = gone
	p.cluster.Worker.Stop(&c.timer)
	p.cluster.Worker.Stop(&c.duration)
	c.pings.Stop()
	p.notReady(c)
	p.conns = cut(p.conns, c)
	p.cluster.Stats[CxActive]--
	p.cluster.Stats[CxDestroy]++
	p.cluster.Breakers[c.priority].Connections.Dec()
}

// usable reports whether a stream may be opened: a connection whose FIN was
// seen never is (FAULTS U-01).
func (c *Conn) usable() bool {
	return c.state == up && !c.retired && !c.wire.Dead() && c.engine.Reusable()
}

func (c *Conn) take(priority config.Priority) {
	p := c.pool
	p.cluster.Worker.Stop(&c.timer)
	if idle := p.cluster.Config.HTTP.HTTP2.KeepaliveIdle; c.http2 && idle > 0 && c.streams == 0 && c.served > 0 &&
		p.cluster.Worker.Now()-c.restedAt > int64(idle) {
		c.pings.Ping()
	}
	c.streams++
	c.served++
	limit := p.cluster.Config.MaxRequests
	if limit > 0 && c.served >= limit {
		c.retired = true
		p.cluster.Stats[CxMaxRequests]++
	}
	if c.retired || !c.http2 || c.streams >= p.streamLimit() {
		p.notReady(c)
	}
}

// Drop notes that the exchange under way is given up, which ends an HTTP/1
// connection. Call it before Release.
// A nil Conn, that of a tunnel, is left alone.
func (c *Conn) Drop() {
	if c != nil {
		c.dropped = !c.http2
	}
}

// Release ends a use: the exchange is over, or was reset. priority is the
// request's.
func (c *Conn) Release(priority config.Priority) {
	p := c.pool
	p.cluster.Breakers[priority].Requests.Dec()
	p.cluster.Stats[RqActive]--
	c.streams--
	if c.state != up {
		return
	}
	if c.retired || p.draining || c.wire.Dead() {
		c.remote = c.remote || c.wire.Dead()
		c.retire()
		p.replace()
		return
	}
	if !c.engine.Reusable() {
		// An HTTP/1 engine that won't take another exchange closes by itself; one of
		// HTTP/2 may only be out of streams for now.
		if h, ok := c.engine.(h2Client); !ok || !h.Usable() {
			c.retire()
		}
		p.replace()
		return
	}
	p.makeReady(c)
	if p.first != nil {
		p.serve()
	}
	if c.state == up && c.streams == 0 {
		c.rest()
	}
}

// rest starts the idle time.
func (c *Conn) rest() {
	c.restedAt = c.pool.cluster.Worker.Now()
	if d := c.pool.cluster.Config.IdleTimeout; d > 0 {
		c.pool.cluster.Worker.Start(&c.timer, d)
	}
}

// retire takes no more streams and closes once there is none.
func (c *Conn) retire() {
	if c.state != up {
		return
	}
	c.retired = true
	c.pool.notReady(c)
	if c.streams == 0 {
		if c.remote {
			c.pool.cluster.Stats[CxDestroyRemote]++
		} else {
			c.pool.cluster.Stats[CxDestroyLocal]++
			if c.dropped {
				c.pool.cluster.Stats[CxDestroyLocalActive]++
				c.pool.cluster.Stats[CxDestroyActive]++
			}
		}
		c.forget()
		if c.inEngine {
			c.leaving = true // the engine is on the stack: it must not end under itself
			return
		}
		c.leave()
	}
}

// leave ends a connection that is out of the books.
func (c *Conn) leave() {
	c.leaving = false
	c.engine.Closed(nil) // no GOAWAY: as a client Envoy just closes
	c.wire.CloseWhenFlushed()
}

// within runs a call of the engine.
func (c *Conn) within(f func()) {
	c.inEngine = true
	f()
	c.inEngine = false
	if c.leaving {
		c.leave()
	}
}

func (c *Conn) onTimer() {
	switch c.state {
	case dialing, shaking:
		w := c.wire
		c.failed(ConnectTimeout, "")
		if w != nil {
			w.Close()
		}
	case up:
		if c.streams == 0 {
			c.pool.cluster.Stats[CxIdleTimeout]++
			c.retire()
		}
	}
}

// unanswered ends a connection whose peer didn't answer a PING, with its
// streams.
func (c *Conn) unanswered() {
	c.pool.cluster.H2.Counters.KeepaliveTimeout++
	c.wire.Close()
}

func (c *Conn) onDuration() {
	c.pool.cluster.Stats[CxMaxDuration]++
	c.retire()
}

// OnData implements worker.Handler.
func (c *Conn) OnData(_ *worker.Conn, b []byte) int {
	if c.state != up {
		return len(b)
	}
	c.pool.cluster.Stats[CxRxBytes] += uint64(len(b))
	c.engine.Flushed()
	c.inEngine = true
	n, err := c.engine.Feed(b)
	c.inEngine = false
	if h, ok := c.engine.(h2Client); ok && c.state == up && !c.retired && !h.Usable() {
		c.pool.cluster.Stats[CxCloseNotify]++
		c.retire()
	}
	if c.leaving {
		c.leave()
	}
	c.pool.cluster.Stats[CxRxBytes] -= uint64(len(b) - n)
	if err != nil {
		c.pool.cluster.Stats[CxProtocolError]++
		if c.state == up && c.streams == 0 {
			c.retired = true
			c.forget()
		}
		return len(b)
	}
	if c.http2 && c.state == up && !c.retired && !c.inReady && c.engine.Reusable() && c.streams < c.pool.streamLimit() {
		c.pool.makeReady(c) // the peer raised its limit
		c.pool.serve()
	}
	return n
}

// OnEOF implements worker.Handler.
func (c *Conn) OnEOF(w *worker.Conn) {
	c.remote = true
	if c.state == up {
		c.countActive()
		c.within(c.engine.EOF)
	}
	if c.state == up {
		c.lost()
	}
	w.CloseWhenFlushed()
}

// OnDrain implements worker.Handler.
func (c *Conn) OnDrain(*worker.Conn) {
	if c.state == up {
		c.within(c.engine.Flushed)
	}
}

// OnClose implements worker.Handler.
func (c *Conn) OnClose(_ *worker.Conn, err error) {
	c.remote = true
	if c.state == up {
		c.countActive()
		c.within(func() { c.engine.Closed(err) })
	}
	if c.state == up {
		c.lost()
	}
}

// lost books the end of a connection that the peer, or its engine, ended.
func (c *Conn) lost() {
	p := c.pool
	p.cluster.Stats[CxDestroyRemote]++
	c.forget()
	p.replace()
}

func (c *Conn) countActive() {
	if c.streams > 0 {
		c.pool.cluster.Stats[CxDestroyActive]++
		c.pool.cluster.Stats[CxDestroyRemoteActive]++
	}
}

// full reports an HTTP/2 connection that is only out of streams for now.
func (c *Conn) full() bool {
	h, ok := c.engine.(h2Client)
	return ok && c.state == up && !c.retired && !c.wire.Dead() && h.Usable()
}
