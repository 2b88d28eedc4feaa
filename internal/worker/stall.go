package worker

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	stallLogEvery = time.Second
	// sampleEvery is how exact the processor time of a turn is known: reading it
	// is a system call, which not every turn can pay for.
	sampleEvery = time.Millisecond
)

// Turns is what the stall detector has seen. A turn takes long because it does
// much, or because its thread doesn't get a processor; Busiest tells them apart.
type Turns struct {
	Stalls  uint64        // turns that took longer than Options.StallLimit
	Longest time.Duration // a turn took
	Busiest time.Duration // a turn took of its thread's processor time: a millisecond more at most, and what else ran there
}

// turns is the detector. The worker writes and others may read the counters.
type turns struct {
	stalls           atomic.Uint64
	longest, busiest atomic.Int64
	sampledAt        int64 // Now of the sample
	sampled          clock
	lastLog          int64
}

// clock is a reading of a thread's processor time.
type clock struct{ thread, nanos int64 }

// Turns may be called from any goroutine.
func (w *Worker) Turns() Turns {
	t := &w.turns
	return Turns{Stalls: t.stalls.Load(), Longest: time.Duration(t.longest.Load()), Busiest: time.Duration(t.busiest.Load())}
}

func (t *turns) sample(now int64) { t.sampledAt, t.sampled = now, threadClock() }

// noteTurn is the end of a turn that began then.
func (w *Worker) noteTurn(began int64) {
	t := &w.turns
	took := int64(time.Since(w.base)) - began
	if took > t.longest.Load() {
		t.longest.Store(took)
	}
	slow := took > int64(w.opts.StallLimit)
	if !slow && took <= t.busiest.Load() {
		return
	}
	busy := t.busy(took)
	t.busiest.Store(max(busy, t.busiest.Load()))
	if slow {
		w.stalled(time.Duration(took), time.Duration(busy))
	}
}

// busy is how much of a turn was processor time, 0 when the scheduler moved the
// turn to another thread: it was stopped then and what it did isn't known.
func (t *turns) busy(took int64) int64 {
	if c := threadClock(); c.thread == t.sampled.thread {
		return min(took, c.nanos-t.sampled.nanos)
	}
	return 0
}

func (w *Worker) stalled(took, busy time.Duration) {
	t := &w.turns
	t.stalls.Add(1)
	if w.now-t.lastLog >= int64(stallLogEvery) || t.lastLog == 0 {
		t.lastLog = w.now
		w.opts.Log.Warn("worker turn was slow", "worker", w.opts.Index, "took", took, "busy", busy, "stage", w.stage)
	}
}

func threadClock() clock {
	var ts unix.Timespec
	id, _, _ := unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&ts)), 0)
	return clock{int64(id), ts.Nano()}
}
