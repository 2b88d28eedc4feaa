package httpproxy

import (
	"math/rand/v2"
	"time"

	"sluice/internal/config"
	"sluice/internal/h1"
	"sluice/internal/h2"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/relay"
	"sluice/upstream/pool"
)

// engine is the server side of a connection: internal/h1.Server or
// internal/h2.Server.
type engine interface {
	Feed(b []byte) (consumed int, err error)
	EOF()
	Closed(err error)
	Flushed()
	Drain()
}

// conn is one downstream connection: the worker's handler of its socket and the
// engine's handler of its requests.
type conn struct {
	proxy  *Proxy
	local  *local
	down   *downstream.Connection
	wire   *worker.Conn
	engine engine
	h1     *h1.Server // nil unless HTTP/1
	h2     *h2.Server // nil unless HTTP/2
	group  *telemetry.Group
	tls    *telemetry.TLS  // what the handshake told; nil: plain
	peer   *telemetry.Peer // what a metadata exchange told
	xfcc   []byte          // our element of x-forwarded-client-cert, made once

	lastRx   uint64 // bytes of the connection when the last request ended
	lastTx   uint64
	active   uint32
	requests uint32
	draining bool
	closed   bool
	late     bool // closed while the client may still be sending
	out      endpoint
	pings    *pool.Keepalive
	flush    clock         // of answers that the client doesn't take
	stall    time.Duration // its period
	headers  clock
	duration clock
	drain    clock
	idle     worker.Timer
}

// clock is a timer that most connections never start.
type clock struct{ t *worker.Timer }

func (k *clock) start(w *worker.Worker, d time.Duration, fire func()) {
	if k.t == nil {
		k.t = &worker.Timer{Fire: fire}
	}
	w.Start(k.t, d)
}

func (k *clock) stop(w *worker.Worker) {
	if k.t != nil {
		w.Stop(k.t)
	}
}

func (k *clock) active() bool { return k.t != nil && k.t.Active() }

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func newConn(p *Proxy, l *local, d *downstream.Connection) {
	c := &conn{proxy: p, local: l, down: d, wire: d.Conn, group: p.group(l)}
	f := relay.Facts(d)
	c.tls, c.peer = f.TLS, f.Peer
	c.out = endpoint{Conn: c.wire, of: c}
	v := c.group.Values
	v[cxTotal]++
	v[cxActive]++
	if d.TLS != nil {
		v[cxSSLTotal]++
	}
	c.wire.SetLinger(p.config.DelayedCloseTimeout)
	if t := p.config.MaxConnDuration; t > 0 {
		c.duration.start(l.worker, t, c.onDuration)
	}
	c.rest()
	d.Drainer = c
	if d.Drain != nil {
		c.BeginDrain()
	}
	c.wire.SetHandler(c)
}

// choose makes the engine for the first bytes: of the configured or negotiated
// protocol, else of the one they begin. It reports false while they are too few.
// On HTTP/2 nothing is sent before the client's preface came.
func (c *conn) choose(b []byte) bool {
	codec, tls := c.proxy.config.Codec, c.down.TLS
	n := min(len(b), len(preface))
	begins := string(b[:n]) == preface[:n]
	switch {
	case codec == config.CodecHTTP1, codec == config.CodecAuto && tls != nil && tls.ALPN != "" && tls.ALPN != "h2":
		c.speakHTTP1()
	case begins && n < len(preface):
		return false
	case begins, codec == config.CodecHTTP2, tls != nil && tls.ALPN == "h2":
		c.speakHTTP2(begins)
	default:
		c.speakHTTP1()
	}
	if c.draining && c.engine != nil {
		c.engine.Drain()
	}
	return true
}

func (c *conn) speakHTTP1() {
	c.h1 = h1.NewServer(&c.out, c, c.proxy.h1[c.local.index])
	c.engine = c.h1
	c.group.Values[cxHTTP1Total]++
	c.group.Values[cxHTTP1Active]++
}

// speakHTTP2 makes the engine, unless the preface is wrong already.
func (c *conn) speakHTTP2(begins bool) {
	if !begins {
		c.group.Values[cxProtocolError]++
		c.wire.CloseWhenFlushed()
		return
	}
	c.h2 = h2.NewServer(&c.out, c, c.proxy.h2[c.local.index])
	c.engine = c.h2
	c.group.Values[cxHTTP2Total]++
	c.group.Values[cxHTTP2Active]++
	if o := &c.proxy.config.HTTP2; o.KeepaliveTimeout > 0 {
		c.pings = &pool.Keepalive{}
		c.h2.OnPingAck = c.pings.Acked
		c.pings.Start(c.local.worker, c.h2, o.KeepaliveInterval, o.KeepaliveTimeout, c.unanswered)
	}
}

// unanswered ends a connection whose client didn't answer a PING.
func (c *conn) unanswered() {
	c.local.codec2.KeepaliveTimeout++
	c.wire.Close()
}

// OnData implements worker.Handler.
func (c *conn) OnData(_ *worker.Conn, b []byte) int {
	if c.engine == nil {
		if !c.choose(b) {
			return 0
		}
		if c.engine == nil {
			return len(b)
		}
		if d := c.down; !c.draining && d.Drain != nil {
			c.BeginDrain()
		}
	}
	c.group.Values[rxBytes] += uint64(len(b))
	c.engine.Flushed()
	n, err := c.engine.Feed(b)
	c.group.Values[rxBytes] -= uint64(len(b) - n)
	if err != nil && !flooded(err) {
		c.group.Values[cxProtocolError]++
	}
	if c.h1 != nil && c.proxy.config.RequestHeadersTime > 0 {
		c.watchHead()
	}
	return n
}

// flooded reports a peer that did too much of something, which isn't counted as
// a protocol error.
func flooded(err error) bool {
	f, ok := err.(interface{ Flood() bool })
	return ok && f.Flood()
}

// watchHead bounds the time between the first byte of a head and its last.
func (c *conn) watchHead() {
	w := c.local.worker
	switch in := c.h1.InHead(); {
	case in && !c.headers.active():
		c.headers.start(w, c.proxy.config.RequestHeadersTime, c.onSlowHead)
	case !in:
		c.headers.stop(w)
	}
}

func (c *conn) onSlowHead() {
	if c.h1 != nil && c.h1.InHead() {
		c.group.Values[rqHeaderTimeout]++
		c.h1.Fail(httpmsg.ResetReason{Kind: httpmsg.ResetTimeout, Status: 408, Detail: "request_header_timeout"})
	}
}

// OnEOF implements worker.Handler.
func (c *conn) OnEOF(w *worker.Conn) {
	if c.engine != nil {
		if c.busy() {
			c.group.Values[cxDestroyRemoteActive]++
		}
		c.engine.EOF()
		return
	}
	w.CloseWhenFlushed()
}

// busy reports a request under way, or half a head of one.
func (c *conn) busy() bool { return c.active > 0 || c.h1 != nil && c.h1.InHead() }

// OnDrain implements worker.Handler.
func (c *conn) OnDrain(*worker.Conn) {
	if c.engine != nil {
		c.engine.Flushed()
	}
}

// OnConnect implements worker.Handler; accepted connections have none.
func (c *conn) OnConnect(*worker.Conn, error) {}

// OnClose implements worker.Handler.
func (c *conn) OnClose(w *worker.Conn, err error) {
	if c.closed {
		return
	}
	c.closed = true
	if c.engine != nil {
		if c.busy() && err != nil {
			c.group.Values[cxDestroyRemoteActive]++
		}
		c.engine.Closed(err)
	}
	l := c.local.worker
	l.Stop(&c.idle)
	for _, k := range [...]*clock{&c.headers, &c.duration, &c.drain, &c.flush} {
		k.stop(l)
	}
	if c.pings != nil {
		c.pings.Stop()
	}
	v := c.group.Values
	if c.late && w.TimedOut() {
		v[cxDelayedClose]++
	}
	v[cxActive]--
	v[cxDestroy]++
	v[txBytes] += w.BytesWritten()
	switch {
	case c.h1 != nil:
		v[cxHTTP1Active]--
	case c.h2 != nil:
		v[cxHTTP2Active]--
	}
	if len(c.local.retired) > 0 {
		c.local.drop(c.proxy.config.StatPrefix, c.group)
	}
	c.down.Gone()
}

// OnStream implements httpmsg.ServerHandler.
func (c *conn) OnStream(s httpmsg.Stream) httpmsg.Receiver {
	w := c.local.worker
	w.Stop(&c.idle)
	c.headers.stop(w)
	c.active++
	c.requests++
	if c.h2 != nil && w.Late() {
		c.h2.Yield()
		c.wire.Again()
	}
	r := c.local.take()
	r.begin(c, s)
	if m := c.proxy.config.MaxRequestsPerConn; m > 0 && c.requests >= uint32(m) && !c.draining {
		c.group.Values[cxMaxRequests]++
		if c.h2 != nil {
			c.leave()
		} else {
			c.startDrain()
		}
	}
	return r
}

// OnGone implements httpmsg.ServerHandler.
func (c *conn) OnGone() {}

// countWire notes what a request took on the wire. On HTTP/1 that is what moved
// since the one before ended; on HTTP/2, where requests share the wire, what
// its heads and content make without framing.
func (c *conn) countWire(r *telemetry.Record) {
	if c.h1 == nil {
		r.DownWireIn, r.DownWireOut = r.DownHeadIn+r.BytesIn, r.DownHeadOut+r.BytesOut
		return
	}
	rx, tx := c.wire.BytesRead(), c.wire.BytesWritten()+uint64(c.wire.Pending())
	r.DownWireIn, r.DownWireOut = rx-min(rx, c.lastRx), tx-min(tx, c.lastTx)
	c.lastRx, c.lastTx = rx, tx
}

// requestOver is told when a request has ended.
func (c *conn) requestOver() {
	if c.active--; c.active == 0 && !c.closed {
		c.rest()
	}
}

func (c *conn) rest() {
	if d := c.proxy.config.IdleTimeout; d > 0 {
		if c.idle.Fire == nil {
			c.idle.Fire = c.onIdle
		}
		c.local.worker.Start(&c.idle, d)
	}
}

func (c *conn) onIdle() {
	c.group.Values[cxIdleTimeout]++
	c.leave()
}

func (c *conn) onDuration() {
	c.group.Values[cxMaxDuration]++
	if c.h1 != nil && c.proxy.config.HTTP1SafeDuration {
		c.startDrain() // with the next answer, which no request can race
		return
	}
	c.leave()
}

// leaveOnDrain makes the answer that is about to begin the last, or announces
// the end on HTTP/2, while the process is told to fail its health checks.
func (c *conn) leaveOnDrain() {
	p := c.proxy
	if c.draining || p.server.opts.Draining == nil || !p.server.opts.Draining() || p.listener != nil && p.listener.DrainModifyOnly {
		return
	}
	c.group.Values[cxDrainClose]++
	if c.h2 != nil {
		c.leave()
		return
	}
	c.startDrain()
}

// watchFlush bounds how long an answer that is whole may wait for the client.
func (c *conn) watchFlush(d time.Duration) {
	if f := c.proxy.config.StreamFlushTimeout; f > 0 {
		d = f
	}
	if d > 0 && !c.flush.active() {
		c.stall = max(d/2, time.Millisecond) // two sweeps
		c.flush.start(c.local.worker, c.stall, c.onStalled)
	}
}

func (c *conn) onStalled() {
	if c.h2 != nil && !c.closed && c.h2.SweepStalled() {
		c.flush.start(c.local.worker, c.stall, c.onStalled)
	}
}

// leave ends the connection the way Envoy does: notice, drain time, end.
func (c *conn) leave() {
	if c.engine == nil {
		c.wire.CloseWhenFlushed()
		return
	}
	c.startDrain()
	if !c.drain.active() {
		c.drain.start(c.local.worker, c.drainTimeout(), c.onDrained)
	}
}

func (c *conn) startDrain() {
	if c.draining {
		return
	}
	c.draining = true
	if c.engine != nil {
		c.engine.Drain()
	}
}

// onDrained is the end of the drain time.
func (c *conn) onDrained() {
	switch {
	case c.h2 != nil:
		c.h2.GoAway()
	case c.active == 0:
		c.wire.CloseWhenFlushed()
	}
}

// BeginDrain implements downstream.Drainer. HTTP/2 can tell the client at
// once; HTTP/1 tells it with the next response, and a connection closed before
// would race the client's next request. The end of the drain time closes what is
// left.
func (c *conn) BeginDrain() {
	if c.h2 != nil && c.down.Drain.Over == 0 {
		c.drainClose()
	}
}

// EndDrain implements downstream.Drainer.
func (c *conn) EndDrain() { c.wire.CloseWhenFlushed() }

// drainClose, called before each response, lets the client go once the listener
// drains: at once, or in a gradual drain with a chance that grows.
func (c *conn) drainClose() {
	d := c.down
	if d.Drain == nil || c.draining || c.engine == nil {
		return
	}
	if over := int64(d.Drain.Over); over > 0 && rand.Int64N(over) >= c.local.worker.Now()-d.Drain.From {
		return
	}
	c.group.Values[cxDrainClose]++
	c.startDrain()
	if c.h2 != nil { // the GOAWAY that names the last request comes a drain timeout later
		c.drain.start(c.local.worker, c.drainTimeout(), c.onDrained)
	}
}

func (c *conn) drainTimeout() time.Duration {
	if d := c.proxy.config.DrainTimeout; d > 0 {
		return d
	}
	return 5 * time.Second
}
