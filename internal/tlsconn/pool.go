// Package tlsconn puts TLS between a worker's socket and its handler. crypto/tls
// makes every handshake, on a goroutine, while the worker goes on; afterwards a
// worker.Layer seals and opens records in the worker's buffers: our own for TLS
// 1.3 with AES, a tls.Conn fed from memory for the rest. Contexts hold what a
// handshake needs and follow the secrets of the snapshot. listener and upstream
// call it; it knows nothing of either.
package tlsconn

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/worker"
)

// Pool runs handshakes. At most as many as there are CPUs compute at a time;
// waiting for the peer costs a goroutine, and no more than Max of those are made.
type Pool struct {
	// Legacy switches our own record layer off.
	Legacy bool
	// Max handshakes may be under way; further ones fail. 0: 16384.
	Max int64

	run  chan struct{}
	open atomic.Int64
	wg   sync.WaitGroup

	mu    sync.Mutex // guards under and ended; taken on handshakes' goroutines only
	under map[*handshake]struct{}
	ended bool
}

// NewPool makes a pool. It starts nothing.
func NewPool() *Pool {
	return &Pool{run: make(chan struct{}, runtime.NumCPU())}
}

// Wait gives up the handshakes that wait for their peers and returns when none
// is under way; call it after the workers ended.
func (p *Pool) Wait() {
	p.mu.Lock()
	p.ended = true
	for h := range p.under {
		h.giveUp()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// enter and leave keep the handshakes that Wait has to give up.
func (p *Pool) enter(h *handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		h.giveUp()
	}
	if p.under == nil {
		p.under = make(map[*handshake]struct{})
	}
	p.under[h] = struct{}{}
}

func (p *Pool) leave(h *handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.under, h)
}

// Server makes the server's side of a handshake on c, and then sets the layer.
// done runs on c's worker, once: with the state, after which done must set a
// handler, or with an *Error, when the socket is closed already. limit bounds it all.
func (p *Pool) Server(c *worker.Conn, x *ServerContext, limit time.Duration, done func(*State, error)) {
	h := p.begin(c, limit, done)
	h.setup = func() (*tls.Conn, error) {
		cfg, err := x.prepare(h)
		if err != nil {
			return nil, err
		}
		return tls.Server(h, cfg), nil
	}
	c.SetHandler(h) // the goroutine starts with the first whole record
}

// ClientOptions vary per connection.
type ClientOptions struct {
	SNI  string   // "" uses the context's
	ALPN []string // nil uses the context's
}

// Client is Server's counterpart for a dialed connection.
func (p *Pool) Client(c *worker.Conn, x *ClientContext, o ClientOptions, limit time.Duration, done func(*State, error)) {
	h := p.begin(c, limit, done)
	h.client = true
	h.remote = c.RemoteAddr().String()
	h.setup = func() (*tls.Conn, error) {
		cfg, err := x.prepare(h, o)
		if err != nil {
			return nil, err
		}
		return tls.Client(h, cfg), nil
	}
	c.SetHandler(h)
	h.start()
}

func (p *Pool) begin(c *worker.Conn, limit time.Duration, done func(*State, error)) *handshake {
	h := &handshake{pool: p, c: c, w: c.Worker(), done: done}
	h.ready.L = &h.mu
	h.timer.Fire = func() {
		h.abandon(&Error{Kind: Timeout, Text: "TLS_error:|handshake timeout:TLS_error_end", Cause: context.DeadlineExceeded})
		c.Close()
	}
	if limit > 0 {
		h.w.Start(&h.timer, limit)
	}
	return h
}

// start runs the handshake's goroutine, once.
func (h *handshake) start() {
	if h.started {
		return
	}
	h.started = true
	p := h.pool
	limit := p.Max
	if limit == 0 {
		limit = 16384
	}
	if p.open.Add(1) > limit {
		p.open.Add(-1)
		h.abandon(&Error{Text: "TLS_error:|too many handshakes:TLS_error_end"})
		h.c.Close()
		return
	}
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		defer p.open.Add(-1)
		p.enter(h)
		defer p.leave(h)
		p.run <- struct{}{}
		r := h.shake()
		<-p.run
		h.w.Post(func() { h.finish(r) })
	}()
}

// result is what the goroutine hands back.
type result struct {
	state *State
	layer worker.Layer
	err   *Error
}

// shake runs on the goroutine.
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
