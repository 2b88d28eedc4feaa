package worker

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawWaitMax bounds the first stage of a wait.
const rawWaitMax = 5 * time.Millisecond

// wait fills w.events. It has two stages. A wait that the Go scheduler sees
// hands the P over and wakes a second thread, which at sidecar rates costs more
// than the request; so the first few milliseconds are waited raw, as if the
// goroutine ran, and only then visibly. A stop-the-world reaches the raw wait as
// the runtime's preemption signal: it ends with EINTR, and safePoint is where
// the goroutine then parks. Without that call a stop-the-world never ends.
func (w *Worker) wait() (int, error) {
	limit := w.waitLimit()
	if w.opts.VisibleWait && limit != 0 {
		return w.waitVisible(limit)
	}
	raw := limit
	if raw < 0 || raw > rawWaitMax {
		raw = rawWaitMax
	}
	w.calls.Waits++
	n, e := epollWaitRaw(w.ep, w.events, millis(raw))
	switch {
	case e == unix.EINTR:
		safePoint(n)
		return 0, nil
	case e != 0:
		return 0, e
	case n > 0 || raw == limit:
		return n, nil
	}
	w.tick() // the raw stage took time
	return w.waitVisible(w.waitLimit())
}

func (w *Worker) waitVisible(limit time.Duration) (int, error) {
	w.calls.Waits++
	n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(w.ep), uintptr(unsafe.Pointer(&w.events[0])), uintptr(len(w.events)), uintptr(millis(limit)), 0, 0)
	if e == unix.EINTR {
		return 0, nil
	}
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// waitLimit is how long the worker may sleep; negative means for ever.
func (w *Worker) waitLimit() time.Duration {
	if w.busy() {
		return 0
	}
	next := w.wheel.next()
	if next < 0 {
		return -1
	}
	return max(0, time.Duration(next-w.now))
}

// millis rounds up, so that a timer is due when the wait for it ends.
func millis(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int((d + time.Millisecond - 1) / time.Millisecond)
}

// safePoint has a frame too large for an automatic NOSPLIT (the index keeps it
// from being optimised away): its prologue sees a pending preemption and parks.
//
//go:noinline
func safePoint(i int) byte {
	var x [512]byte
	return x[i&(len(x)-1)]
}
