// Package tlsconn puts TLS between a worker's socket and its handler. crypto/tls
// makes every handshake, in pieces between which the worker goes on; afterwards a
// worker.Layer seals and opens records in the worker's buffers: our own for TLS
// 1.3 with AES, a tls.Conn fed from memory for the rest. Contexts hold what a
// handshake needs and follow the secrets of the snapshot. listener and upstream
// call it; it knows nothing of either.
package tlsconn

import (
	"context"
	"crypto/tls"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/worker"
)

// Pool runs handshakes. A piece of one, from a flight of the peer's to the answer,
// is 50 to 400 µs of computing. The worker does it itself when nothing else is to
// be done: handing it over and back would cost a tenth on top. A handshake that
// begins when more than a few pieces wait or many handshakes are under way, or whose
// pieces are long, is done by goroutines, at most one for each CPU: in a storm the
// worker has little to do, and the kernel lets it run when a neighbour's request comes.
type Pool struct {
	// Legacy switches our own record layer off.
	Legacy bool
	// Max handshakes may be under way; further ones fail. 0: 16384.
	Max int64

	open atomic.Int64
	wg   sync.WaitGroup

	away home // of handshakes that goroutines do

	mu      sync.Mutex // guards what follows
	homes   map[*worker.Worker]*home
	queue   []*handshake
	running int // goroutines
	ended   bool
}

// maxPieces is how many pieces may wait for a worker that has other things to do.
const maxPieces = 4

// storm is how many handshakes may be under way while the worker takes them up.
const storm = 16

// NewPool makes a pool. It starts nothing.
func NewPool() *Pool { return &Pool{} }

// Wait gives up the handshakes that wait for their peers and returns when none
// is under way; call it after the workers ended.
func (p *Pool) Wait() {
	p.mu.Lock()
	p.ended, p.queue = true, nil
	p.mu.Unlock()
	p.wg.Wait()
	p.away.end()
}

// homeOf gives a worker's, which ends with the worker. It is called there.
func (p *Pool) homeOf(w *worker.Worker) *home {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.homes[w]
	if m == nil {
		if p.homes == nil {
			p.homes = make(map[*worker.Worker]*home)
		}
		m = &home{}
		p.homes[w] = m
		w.AtEnd(m.end)
	}
	return m
}

// Server makes the server's side of a handshake on c, and then sets the layer.
// done runs on c's worker, once: with the state, after which done must set a
// handler, or with an *Error, when the socket is closed already. limit bounds it all.
func (p *Pool) Server(c *worker.Conn, x *ServerContext, limit time.Duration, done func(*State, error)) {
	h := p.begin(c, limit, done)
	h.long = x.built.slow()
	h.setup = func() (*tls.Conn, error) {
		cfg, err := x.prepare(h)
		if err != nil {
			return nil, err
		}
		return tls.Server(h, cfg), nil
	}
	c.SetHandler(h) // it begins with the first whole record
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
	h.long = x.built.slow()
	h.remote = c.RemoteAddr().String()
	h.setup = func() (*tls.Conn, error) {
		cfg, err := x.prepare(h, o)
		if err != nil {
			return nil, err
		}
		return tls.Client(h, cfg), nil
	}
	c.SetHandler(h)
	h.goOn()
}

func (p *Pool) begin(c *worker.Conn, limit time.Duration, done func(*State, error)) *handshake {
	h := &handshake{pool: p, c: c, w: c.Worker(), done: done}
	h.piece.Run = h.onWorker
	h.timer.Fire = func() {
		h.abandon(&Error{Kind: Timeout, Text: "TLS_error:|handshake timeout:TLS_error_end", Cause: context.DeadlineExceeded})
		c.Close()
	}
	if limit > 0 {
		h.w.Start(&h.timer, limit)
	}
	return h
}

// admit counts a handshake that begins; false: there are too many.
func (p *Pool) admit() bool {
	limit := p.Max
	if limit == 0 {
		limit = 16384
	}
	if p.open.Add(1) > limit {
		p.open.Add(-1)
		return false
	}
	return true
}

// give has a goroutine do h's next piece, or what it set aside of one, and then
// tell its worker.
func (p *Pool) give(h *handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.queue = append(p.queue, h)
	if p.running < runtime.NumCPU() {
		p.running++
		p.wg.Go(p.work)
	}
}

// work does pieces until none waits.
func (p *Pool) work() {
	for h := p.take(); h != nil; h = p.take() {
		if f := h.judge; f != nil {
			f()
			h.w.Post(h.judged)
			continue
		}
		h.compute()
		h.w.Post(h.computed)
	}
}

func (p *Pool) take() *handshake {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.queue = nil
		p.running--
		return nil
	}
	h := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	return h
}
