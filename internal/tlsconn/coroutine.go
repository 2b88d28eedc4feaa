package tlsconn

import (
	"iter"
	"sync"
)

// maxIdle coroutines of a home are kept for handshakes to come: their stacks have grown.
const maxIdle = 8

// coroutine runs handshakes, one after the other and each piece by piece: a piece
// ends when crypto/tls wants bytes that aren't there. Whoever calls next does the
// piece, on its own thread and without the scheduler.
type coroutine struct {
	next  func() (over bool, ok bool)
	stop  func()
	yield func(over bool) bool
	h     *handshake
}

func newCoroutine() *coroutine {
	co := &coroutine{}
	co.next, co.stop = iter.Pull(co.run)
	return co
}

func (co *coroutine) run(yield func(bool) bool) {
	co.yield = yield
	for more := true; more; more = yield(true) {
		co.h.result = co.h.shake()
		co.h = nil
	}
}

// wait ends a piece; false: there will be no other.
func (co *coroutine) wait() bool { return co.yield(false) }

// home is where coroutines live. A coroutine that a goroutine bound to its thread
// made, as a worker is, can be resumed there only; so each worker has a home, and
// the pool's goroutines share one.
type home struct {
	mu   sync.Mutex // contended in the pool's only
	all  map[*coroutine]struct{}
	idle []*coroutine
}

// compute does the next piece of h, where its home is. The caller has h to itself.
func (h *handshake) compute() {
	if h.co == nil {
		h.co = h.home.take()
		h.co.h = h
	}
	if over, _ := h.co.next(); over {
		h.home.give(h.co)
		h.co, h.shaken = nil, true
		h.pool.open.Add(-1)
	}
}

func (m *home) take() *coroutine {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.idle); n > 0 {
		co := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return co
	}
	if m.all == nil {
		m.all = make(map[*coroutine]struct{})
	}
	co := newCoroutine()
	m.all[co] = struct{}{}
	return co
}

// give keeps a coroutine for another handshake, or ends it.
func (m *home) give(co *coroutine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.idle) < maxIdle {
		m.idle = append(m.idle, co)
		return
	}
	delete(m.all, co)
	co.stop()
}

// end gives up what waits there for its peer. Nothing may be under way.
func (m *home) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for co := range m.all {
		co.stop()
	}
	m.all, m.idle = nil, nil
}
