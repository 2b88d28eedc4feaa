package httpproxy

import (
	"errors"
	"strings"

	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/filter"
	"sluice/upstream"
	"sluice/upstream/pool"
)

// terminates reports whether a CONNECT ends here: its content goes to the
// cluster as a TCP stream.
func (r *request) terminates() bool {
	if len(r.head.Protocol()) > 0 {
		return false
	}
	a := r.action()
	if a.ConnectTermination {
		return true
	}
	for _, u := range a.Upgrades {
		if strings.EqualFold(u.Type, "connect") {
			return u.Connect
		}
	}
	return false
}

// handshakeFailed answers an upgrade that the upstream took for an ordinary
// request: a client that waits for its tunnel gets the head, as from Envoy, and
// no content that it could take for the tunnel's.
func (r *request) handshakeFailed(h *httpmsg.Head) {
	r.cluster.Count(h.Status, r.internal)
	r.reply(filter.Reply{Status: h.Status, Details: "websocket_handshake_unsuccessful", GRPC: -1, Headers: func(out *httpmsg.Head) {
		for i := range h.Len() {
			if id, name, value, ok := h.Field(i); ok && id != httpmsg.ContentLength && id != httpmsg.TransferEncoding {
				out.Add(name, value)
			}
		}
	}})
}

// tcpStream is a TCP connection in the place of an upstream HTTP stream.
type tcpStream struct {
	r   *request
	s   *upstream.Stream
	fin bool
}

func (r *request) dialTunnel(q *upstream.Query) {
	r.up.undial = r.cluster.Connect(q, func(s *upstream.Stream, err error) {
		r.up.undial = nil
		if err != nil {
			r.tunnelRefused(err)
			return
		}
		t := &tcpStream{r: r, s: s}
		r.up.host, r.up.stream, r.up.conn, r.up.sent = s.Host, t, nil, true
		r.rec.UpstreamHost, r.rec.UpstreamLocal, r.rec.UpstreamTLS = s.Host.Name, s.Conn.LocalAddr(), s.TLS()
		s.Conn.SetHandler(t)
		s.Conn.ResumeRead()
		var h httpmsg.Head
		h.Status = 200
		r.tunnel = !r.down.HTTP2()
		if len(r.body) > 0 {
			t.SendData(r.body, false)
			r.body = r.body[:0]
		}
		r.respond(&h, false)
	})
}

func (r *request) tunnelRefused(err error) {
	var f *upstream.Refusal
	if !errors.As(err, &f) || f.Flag == telemetry.UH {
		r.noHost()
		return
	}
	if f.Flag == telemetry.UO {
		r.failed(causeOverflow, "")
		return
	}
	if f.Host != nil {
		r.rec.UpstreamHost = f.Host.Name
	}
	r.rec.UpstreamFailure = f.Reason
	r.failed(failureCause(pool.ConnectFailure), f.Reason)
}

// OnData implements worker.Handler.
func (t *tcpStream) OnData(_ *worker.Conn, b []byte) int {
	t.r.up.OnData(b, false)
	return len(b)
}

// OnEOF implements worker.Handler.
func (t *tcpStream) OnEOF(*worker.Conn) {
	if t.r.up.stream == t {
		t.r.up.OnData(nil, true)
	}
	t.close()
}

// OnDrain implements worker.Handler.
func (t *tcpStream) OnDrain(*worker.Conn) {
	if t.r.up.stream == t {
		t.r.up.OnDrain()
	}
}

// OnClose implements worker.Handler.
func (t *tcpStream) OnClose(*worker.Conn, error) {
	t.s.Close()
	if t.r.up.stream == t {
		t.r.up.OnReset(httpmsg.ResetReason{Kind: httpmsg.ResetConnTerminated})
	}
}

// OnConnect implements worker.Handler.
func (t *tcpStream) OnConnect(*worker.Conn, error) {}

func (t *tcpStream) close() {
	t.s.Conn.CloseWhenFlushed()
	t.s.Close()
}

// SendHead implements httpmsg.Stream: TCP has no heads.
func (t *tcpStream) SendHead(*httpmsg.Head, bool) {}

// SendData implements httpmsg.Stream.
func (t *tcpStream) SendData(p []byte, end bool) {
	if len(p) > 0 {
		t.s.Conn.Write(p)
	}
	if end && !t.fin {
		t.fin = true
		t.s.Conn.ShutdownWrite()
	}
}

// SendTrailers implements httpmsg.Stream.
func (t *tcpStream) SendTrailers(*httpmsg.Head) { t.SendData(nil, true) }

// Reset implements httpmsg.Stream.
func (t *tcpStream) Reset(httpmsg.ResetReason) { t.close() }

// Pause implements httpmsg.Stream.
func (t *tcpStream) Pause() { t.s.Conn.PauseRead() }

// Resume implements httpmsg.Stream.
func (t *tcpStream) Resume() { t.s.Conn.ResumeRead() }

// Buffered implements httpmsg.Stream.
func (t *tcpStream) Buffered() int { return t.s.Conn.Pending() }

// Detach implements httpmsg.Stream.
func (t *tcpStream) Detach() {}

// HTTP2 implements httpmsg.Stream.
func (t *tcpStream) HTTP2() bool { return false }

// ID implements httpmsg.Stream.
func (t *tcpStream) ID() uint64 { return 0 }
