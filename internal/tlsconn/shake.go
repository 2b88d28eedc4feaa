package tlsconn

import (
	"crypto/tls"
	"errors"
	"io"

	"sluice/internal/worker"
)

// result is what a handshake comes to.
type result struct {
	state *State
	layer worker.Layer
	err   *Error
}

// shake runs in the coroutine.
func (h *handshake) shake() result {
	conn, err := h.setup()
	if err == nil {
		err = conn.Handshake()
	}
	if err != nil {
		e := h.verdict
		if e == nil {
			e = asError(err)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, errGone) {
			e = &Error{Kind: Gone, Text: "", Cause: err}
		}
		r := result{err: e}
		if conn != nil {
			r.state = describe(conn.ConnectionState(), h)
		}
		return r
	}
	cs := conn.ConnectionState()
	r := result{state: describe(cs, h)}
	if !h.pool.Legacy && cs.Version == tls.VersionTLS13 && owns(cs.CipherSuite) && h.inKey != nil && h.outKey != nil {
		layer, err := h.takeover(cs.CipherSuite)
		r.layer = layer
		if h.client && h.keepsSessions && err == nil {
			h.mem = &memory{}
			layer.learner = &learner{conn: conn, mem: h.mem}
		}
		if err != nil {
			return result{err: &Error{Text: "TLS_error:|" + err.Error() + ":TLS_error_end", Cause: err}}
		}
	} else {
		h.mem = &memory{}
		r.layer = &legacy{conn: conn, mem: h.mem}
	}
	return r
}

// finish runs on the worker.
func (h *handshake) finish(r result) {
	if h.over {
		return
	}
	h.over = true
	h.w.Stop(&h.timer)
	h.flushOut()
	if r.err == nil && h.c.Closed() {
		r.err = &Error{Kind: Gone, Cause: errGone}
	}
	if r.err != nil {
		h.c.SetHandler(nobody{})
		h.c.CloseWhenFlushed()
		h.done(r.state, r.err)
		return
	}
	h.c.SetLayer(r.layer)
	h.takeArrived()
	h.c.Unread(h.in)
	h.in = nil
	h.c.ResumeRead()
	h.done(r.state, nil)
}

// nobody waits for the end of a connection whose handshake failed.
type nobody struct{}

func (nobody) OnData(_ *worker.Conn, b []byte) int { return len(b) }
func (nobody) OnEOF(*worker.Conn)                  {}
func (nobody) OnDrain(*worker.Conn)                {}
func (nobody) OnClose(*worker.Conn, error)         {}
func (nobody) OnConnect(*worker.Conn, error)       {}
