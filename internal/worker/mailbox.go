package worker

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mailbox carries calls from other goroutines to the worker.
type mailbox struct {
	mu      sync.Mutex
	calls   []func()
	spare   []func()
	closed  bool
	waiting atomic.Bool
}

// Post runs f on the worker, in this turn or the next. It may be called from any
// goroutine; calls of one goroutine keep their order. After Run has ended f is dropped.
func (w *Worker) Post(f func()) {
	m := &w.mail
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.calls = append(m.calls, f)
	if m.waiting.CompareAndSwap(false, true) {
		one := [8]byte{1}
		unix.RawSyscall(unix.SYS_WRITE, uintptr(w.efd), uintptr(unsafe.Pointer(&one)), 8)
	}
}

func (m *mailbox) drain(efd int) {
	var b [8]byte
	unix.RawSyscall(unix.SYS_READ, uintptr(efd), uintptr(unsafe.Pointer(&b)), 8)
}

func (w *Worker) runMail() {
	m := &w.mail
	if !m.waiting.Load() {
		return
	}
	m.mu.Lock()
	calls := m.calls
	m.calls = m.spare[:0]
	m.waiting.Store(false)
	m.mu.Unlock()
	for i, f := range calls {
		calls[i] = nil
		f()
	}
	m.spare = calls[:0]
}

func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.calls, m.spare = true, nil, nil
}
