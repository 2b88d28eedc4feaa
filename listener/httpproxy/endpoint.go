package httpproxy

import "sluice/internal/worker"

// endpoint is a connection's socket as its engine sees it: the engine says that
// it ends, here is decided how.
type endpoint struct {
	*worker.Conn
	of *conn
}

// CloseWhenFlushed implements httpmsg.Conn.
func (e *endpoint) CloseWhenFlushed() {
	c := e.of
	if c.h1 != nil && c.h1.DelayedClose() {
		c.late = true
		e.Conn.CloseDelayed(c.proxy.config.DelayedCloseTimeout)
		return
	}
	e.Conn.CloseWhenFlushed()
}

// Abort implements httpmsg.Conn.
func (e *endpoint) Abort() { e.Conn.Abort() }
