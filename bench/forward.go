package main

import (
	"context"
	"net/netip"
	"runtime"
	"runtime/debug"
	"time"

	"sluice/bench/loop"
)

// forward is the bare forwarder: one epoll loop, one upstream connection for
// each accepted one, read and write and nothing else. What it costs is what the
// kernel costs; it is the floor under every row.
func forward(ctx context.Context, listen, to netip.AddrPort) error {
	runtime.LockOSThread()
	debug.SetGCPercent(1000)
	l, err := loop.New()
	if err != nil {
		return err
	}
	if err := l.Listen(listen, func() loop.Handler { return &half{loop: l, to: to} }); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := l.Poll(100 * time.Millisecond); err != nil {
			return err
		}
		runtime.Gosched() // for the signal that ends ctx
	}
	return nil
}

// half is one direction's reader; the accepted half dials the other.
type half struct {
	loop   *loop.Loop
	to     netip.AddrPort
	own    *loop.Conn
	peer   *half
	paused bool
}

// Drained implements loop.Handler: the first time it is the connection's birth.
func (h *half) Drained(c *loop.Conn) {
	switch {
	case h.own == nil && h.peer == nil:
		h.own = c
		other := &half{loop: h.loop, peer: h}
		up, err := h.loop.Dial(h.to, other)
		if err != nil {
			return
		}
		other.own, h.peer = up, other
	case h.peer != nil && h.peer.paused:
		h.peer.paused = false
		h.peer.own.Resume()
	}
}

// Feed implements loop.Handler.
func (h *half) Feed(c *loop.Conn, in []byte) (int, error) {
	if h.peer == nil || h.peer.own == nil {
		return len(in), nil
	}
	out := h.peer.own
	out.Out = append(out.Out, in...)
	if !out.Flush() && !h.paused && len(out.Out) > 0 {
		h.paused = true
		c.Pause()
	}
	return len(in), nil
}

// Closed implements loop.Handler.
func (h *half) Closed(*loop.Conn, error) {
	if h.peer != nil && h.peer.own != nil {
		p := h.peer.own
		h.peer.own, h.peer.peer = nil, nil
		p.Close(nil)
	}
	h.own = nil
}
