package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// The collector runs each time the heap has doubled, for a small one from 4 MB
// on. What a start makes stays, so that those on the way find little: with a
// thousand clusters they take a fifth of its time. Later a few thousand
// handshakes a second would have it run thirty times a second, for a sixth of the
// CPU. So this much is allocated between two collections at least; a heap that is
// larger doubles as ever. What a quiet proxy has of it goes back, see giveBack.
const (
	startRoom = 44 << 20
	gcRoom    = 16 << 20
	gcDefault = 100 // percent
)

// pacer sets the collector's pace anew after each collection, so that a heap that
// grows fast isn't let run away.
type pacer struct {
	started atomic.Bool
	percent atomic.Int64
}

// paceCollector begins. It is told of collections by cleanups: the runtime has no other way.
func paceCollector() *pacer {
	k := &pacer{}
	k.set(0)
	k.next()
	return k
}

// settle ends the start.
func (k *pacer) settle() {
	k.started.Store(true)
	k.collected()
}

func (k *pacer) next() {
	type mark [64]byte // alone in its slot: the allocator puts tiny ones together
	runtime.AddCleanup(new(mark), func(k *pacer) { k.collected(); k.next() }, k)
}

func (k *pacer) collected() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	k.set(live[0].Value.Uint64())
}

func (k *pacer) set(live uint64) {
	room := uint64(startRoom)
	if k.started.Load() {
		room = gcRoom
	}
	if n := gcPercent(live, room); k.percent.Swap(n) != n {
		debug.SetGCPercent(int(n))
	}
}

// gcPercent is the growth at which to collect when live bytes are live, in steps
// of a quarter: setting it stops the world for a moment.
func gcPercent(live, room uint64) int64 {
	const least = 4 << 20 // the runtime takes a smaller heap for that
	n := int64(room * gcDefault / least)
	for n > gcDefault && live*uint64(n)/100 > room {
		n -= n / 4
	}
	return max(n, gcDefault)
}
