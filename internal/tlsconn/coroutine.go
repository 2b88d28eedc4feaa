package tlsconn

import "iter"

// maxIdle coroutines are kept for handshakes to come: their stacks have grown.
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

// compute does the next piece of h. The caller has h to itself.
func (h *handshake) compute() {
	if h.co == nil {
		h.co = h.pool.coroutine()
		h.co.h = h
	}
	if over, _ := h.co.next(); over {
		h.pool.free(h.co)
		h.co, h.shaken = nil, true
		h.pool.open.Add(-1)
	}
}

func (p *Pool) coroutine() *coroutine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		co := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return co
	}
	if p.all == nil {
		p.all = make(map[*coroutine]struct{})
	}
	co := newCoroutine()
	p.all[co] = struct{}{}
	return co
}

// free keeps a coroutine for another handshake, or ends it.
func (p *Pool) free(co *coroutine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) < maxIdle {
		p.idle = append(p.idle, co)
		return
	}
	delete(p.all, co)
	co.stop()
}
