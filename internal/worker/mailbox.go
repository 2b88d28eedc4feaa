package worker

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mailTurn bounds how long a turn runs calls of other goroutines: traffic comes
// between the ten thousand of a large change of configuration.
const mailTurn = time.Millisecond

// mailbox carries calls from other goroutines to the worker.
type mailbox struct {
	taken   []func() // being run, the worker's own
	next    int      // of taken
	mu      sync.Mutex
	calls   []func() // that came
	closed  bool
	waiting atomic.Bool
	ringing atomic.Int32 // who is about to wake the worker
}

// Post runs f on the worker, in this turn or, when many calls wait, a later one.
// It may be called from any goroutine; calls of one goroutine keep their order.
// After Run has ended f is dropped.
func (w *Worker) Post(f func()) {
	m := &w.mail
	if !m.put(f) {
		return
	}
	// Not under the lock: the kernel may run the worker at once in our place.
	one := [8]byte{1}
	unix.RawSyscall(unix.SYS_WRITE, uintptr(w.efd), uintptr(unsafe.Pointer(&one)), 8)
	m.ringing.Add(-1)
}

// put reports whether the worker has to be woken.
func (m *mailbox) put(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.calls = append(m.calls, f)
	if !m.waiting.CompareAndSwap(false, true) {
		return false
	}
	m.ringing.Add(1)
	return true
}

func (m *mailbox) drain(efd int) {
	var b [8]byte
	unix.RawSyscall(unix.SYS_READ, uintptr(efd), uintptr(unsafe.Pointer(&b)), 8)
}

// runMail runs the calls that have come, in order. What the turn has no time for
// is left to the next.
func (w *Worker) runMail() {
	m := &w.mail
	if m.next == len(m.taken) && !m.take() {
		return
	}
	began := time.Now()
	for m.next < len(m.taken) {
		f := m.taken[m.next]
		m.taken[m.next] = nil
		m.next++
		f()
		if time.Since(began) > mailTurn {
			return
		}
	}
}

// take fetches what has come since all that was taken has run. It doesn't wait
// for the lock: who holds it may have lost its processor, and a worker that parks
// is behind every handshake. It offers its own, and the next turn comes at once.
func (m *mailbox) take() bool {
	if !m.waiting.Load() {
		return false
	}
	if !m.mu.TryLock() {
		unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		return false
	}
	defer m.mu.Unlock()
	m.calls, m.taken, m.next = m.taken[:0], m.calls, 0
	m.waiting.Store(false)
	return true
}

// left says that calls wait for the next turn.
func (m *mailbox) left() bool { return m.next < len(m.taken) || m.waiting.Load() }

// close drops what has come, and returns when nobody will use the eventfd any more.
func (m *mailbox) close() {
	m.mu.Lock()
	m.closed, m.calls, m.taken, m.next = true, nil, nil, 0
	m.mu.Unlock()
	for m.ringing.Load() > 0 {
		runtime.Gosched()
	}
}
