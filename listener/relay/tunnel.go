package relay

import (
	"fmt"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/tcpproxy"
	"sluice/upstream"
	"sluice/upstream/pool"
)

// tunnel is tunneling_config: a TCP connection as the content of a CONNECT or
// POST request. tcpproxy relays between sockets; so the tunnel gives it one end
// of a socket pair and itself moves bytes between the other end and the stream.
// That costs a copy more than a stream of tcpproxy's own would; tunnels are few.
type tunnel struct {
	c      *upstream.Cluster
	host   *upstream.Host
	w      *worker.Worker
	filter *config.TCPProxy
	done   func(tcpproxy.Upstream, error)
	wait   pool.Request
	head   httpmsg.Head
	lease  *pool.Conn
	stream httpmsg.Stream // nil before there is one and after its end
	far    *worker.Conn   // our end of the pair; nil before the answer

	began    bool // Connect has returned
	settled  bool // done was called, or must not be
	sent     bool // our end of the stream is over
	received bool // theirs is
	released bool
}

// connectTunnel is Connect for a filter with tunneling_config.
func connectTunnel(c *upstream.Cluster, d *downstream.Connection, f *config.TCPProxy, q *upstream.Query, done func(tcpproxy.Upstream, error)) func() {
	t := &tunnel{c: c, w: d.Conn.Worker(), filter: f, done: done}
	t.host = c.Pick(q)
	if t.host == nil {
		t.fail(&tcpproxy.Failure{Flag: "UH", Cluster: c.Config.Name})
		return t.cancel
	}
	t.request(d)
	t.wait.User = t
	t.host.Active++
	c.Acquire(t.host, &t.wait, &upstream.StreamOptions{Connection: d.ID})
	t.began = true
	return t.cancel
}

// request fills the head.
func (t *tunnel) request(d *downstream.Connection) {
	facts := Facts(d)
	r := telemetry.Record{Conn: &facts, TCP: true, Wall: d.BeganAt(), Start: d.Start, Remote: d.Src, Dynamic: d.Notes().Dynamic}
	format := telemetry.NewFormatter(func(string) string { return "" })
	t.head.SetAuthority(format.Header(nil, t.filter.TunnelHost, &r))
	t.head.SetMethod([]byte("CONNECT"))
	if t.filter.TunnelPost {
		t.head.SetMethod([]byte("POST"))
		t.head.SetPath([]byte(t.filter.TunnelPath))
		t.head.SetScheme([]byte("http"))
		if t.host.TLS() != nil {
			t.head.SetScheme([]byte("https"))
		}
	}
	for _, h := range t.filter.TunnelHeaders {
		t.head.AddName(h.Name, format.Header(nil, h.Value, &r))
	}
}

// fail tells of no connection, later than Connect returns.
func (t *tunnel) fail(f *tcpproxy.Failure) {
	if t.settled {
		return
	}
	t.settled = true
	if t.began {
		t.done(tcpproxy.Upstream{}, f)
		return
	}
	t.w.Later(&worker.Deferred{Run: func() { t.done(tcpproxy.Upstream{}, f) }})
}

// failed is fail for a host that was tried.
func (t *tunnel) failed(reason string) {
	t.fail(&tcpproxy.Failure{Flag: "UF", Reason: reason, Cluster: t.c.Config.Name, Host: t.host.Endpoint, Address: t.host.Addr})
}

// cancel gives up before done was called.
func (t *tunnel) cancel() {
	t.done = func(tcpproxy.Upstream, error) {}
	if t.settled {
		return
	}
	t.settled = true
	if t.wait.Waiting() {
		t.wait.Cancel()
	}
	t.reset()
}

// reset gives the stream up.
func (t *tunnel) reset() {
	if s := t.stream; s != nil {
		t.stream = nil
		s.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetLocal})
	}
	t.release()
}

func (t *tunnel) release() {
	if t.released || t.host == nil {
		return
	}
	t.released = true
	t.host.Active--
	if t.lease != nil {
		t.lease.Release(t.wait.Priority)
	}
}

// OnStream implements pool.User.
func (t *tunnel) OnStream(s httpmsg.Stream, c *pool.Conn) {
	t.stream, t.lease = s, c
	t.host.Report(upstream.Connected)
	s.SendHead(&t.head, false)
}

// OnNoStream implements pool.User.
func (t *tunnel) OnNoStream(f pool.Failure) {
	t.release()
	if f.Kind == pool.Overflow || f.Kind == pool.PoolOverflow {
		t.fail(&tcpproxy.Failure{Flag: "UO", Cluster: t.c.Config.Name})
		return
	}
	t.host.Report(upstream.LocalFailure)
	t.failed(f.Reason)
}

// OnHead implements httpmsg.Receiver: 200 opens the tunnel.
func (t *tunnel) OnHead(h *httpmsg.Head, end bool) {
	switch {
	case h.Status < 200 || t.settled:
		return
	case h.Status != 200:
		t.failed(fmt.Sprintf("tunnel_response:%d", h.Status))
		t.reset()
		return
	}
	near, far, err := t.w.Pair(idle{}, &farEnd{t})
	if err != nil {
		t.failed(err.Error())
		t.reset()
		return
	}
	t.far = far
	if !t.filter.TunnelPost {
		t.stream.Detach()
	}
	t.settled = true
	t.done(tcpproxy.Upstream{Conn: near, Host: t.host.Endpoint, Cluster: t.c.Config.Name, TLS: t.lease.TLS}, nil)
	if end {
		t.ended()
	}
}

// OnData implements httpmsg.Receiver.
func (t *tunnel) OnData(p []byte, end bool) {
	if t.far == nil {
		return
	}
	t.far.Write(p)
	if !end && t.far.Pending() >= worker.HighWater {
		t.stream.Pause()
	}
	if end {
		t.ended()
	}
}

// OnTrailers implements httpmsg.Receiver: TCP has none.
func (t *tunnel) OnTrailers(*httpmsg.Head) { t.ended() }

// OnReset implements httpmsg.Receiver.
func (t *tunnel) OnReset(httpmsg.ResetReason) {
	t.stream = nil
	t.release()
	if t.far != nil {
		t.far.CloseWhenFlushed()
		return
	}
	t.failed("")
}

// OnDrain implements httpmsg.Receiver.
func (t *tunnel) OnDrain() {
	if t.far != nil {
		t.far.ResumeRead()
	}
}

// ended is the end of what the upstream has to say.
func (t *tunnel) ended() {
	if t.far == nil || t.received {
		return
	}
	t.received = true
	t.far.ShutdownWrite()
	t.over()
}

// over lets go once both directions have ended.
func (t *tunnel) over() {
	if t.sent && t.received {
		t.stream = nil
		t.release()
		t.far.CloseWhenFlushed()
	}
}

// farEnd is the handler of our end of the pair: what it reads is the client's.
type farEnd struct{ t *tunnel }

func (e *farEnd) OnData(c *worker.Conn, b []byte) int {
	if s := e.t.stream; s != nil && !e.t.sent {
		s.SendData(b, false)
		if s.Buffered() >= httpmsg.HighWater {
			c.PauseRead()
		}
	}
	return len(b)
}

func (e *farEnd) OnEOF(*worker.Conn) {
	if s := e.t.stream; s != nil && !e.t.sent {
		e.t.sent = true
		s.SendData(nil, true)
		if !s.HTTP2() && !e.t.filter.TunnelPost {
			e.t.ended() // HTTP/1 closes the connection, in Envoy too: there is no half of it
		}
		e.t.over()
	}
}

func (e *farEnd) OnDrain(*worker.Conn) {
	if s := e.t.stream; s != nil {
		s.Resume()
	}
}

func (e *farEnd) OnClose(*worker.Conn, error)   { e.t.reset() }
func (e *farEnd) OnConnect(*worker.Conn, error) {}

// idle is the handler of the other end until tcpproxy sets its own.
type idle struct{}

func (idle) OnData(*worker.Conn, []byte) int { return 0 }
func (idle) OnEOF(*worker.Conn)              {}
func (idle) OnDrain(*worker.Conn)            {}
func (idle) OnClose(*worker.Conn, error)     {}
func (idle) OnConnect(*worker.Conn, error)   {}
