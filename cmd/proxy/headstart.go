package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// headStart keeps the collector away from a small heap until the start is over.
// What a start makes stays, so that collections on the way, from 4 MB on, find
// little: with a thousand clusters they take a fifth of its time.
type headStart struct {
	usual int // GOGC
	over  atomic.Bool
}

const headRoom = 48 << 20 // the heap at which it is collected, until twice what is live is more

func beginHeadStart() *headStart {
	const least = 4 << 20 // the runtime's, with 100 %
	h := &headStart{usual: debug.SetGCPercent(headRoom / least * 100)}
	h.next()
	return h
}

// next looks at the heap when it has been collected again.
func (h *headStart) next() {
	type mark [64]byte // alone in its slot: the allocator puts tiny ones together
	runtime.AddCleanup(new(mark), (*headStart).collected, h)
}

func (h *headStart) collected() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := headRoom*100/max(1, int(live[0].Value.Uint64())) - 100
	if h.over.Load() || percent <= h.usual {
		h.end()
		return
	}
	debug.SetGCPercent(percent)
	h.next()
}

// end brings the usual pace.
func (h *headStart) end() {
	h.over.Store(true)
	debug.SetGCPercent(h.usual)
}
