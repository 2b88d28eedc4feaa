package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The collector runs each time the heap has doubled, which for a heap of 4 MB
// under a few thousand handshakes a second is thirty times a second, and a sixth
// of the CPU. So at least gcRoom is allocated between two collections; a heap that
// is larger than that doubles as ever. What a quiet proxy has of it goes back, see giveBack.
const (
	gcRoom    = 16 << 20
	gcDefault = 100 // percent
	gcMost    = 400
)

// paceCollector sets the collector's pace anew after each collection, until ctx
// ends. A pace that GOGC sets stays.
func paceCollector(ctx context.Context) {
	if n := debug.SetGCPercent(gcDefault); n != gcDefault {
		debug.SetGCPercent(n)
		return
	}
	k := &pacer{ctx: ctx, sample: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	k.collected()
}

// pacer is told of each collection by a finalizer: the runtime has no other way.
type pacer struct {
	ctx     context.Context
	sample  []metrics.Sample
	percent int
}

type collection struct{ told *pacer }

func (k *pacer) collected() {
	if k.ctx.Err() != nil {
		return
	}
	metrics.Read(k.sample)
	if n := gcPercent(k.sample[0].Value.Uint64()); n != k.percent {
		k.percent = n
		debug.SetGCPercent(n)
	}
	runtime.SetFinalizer(&collection{k}, func(c *collection) { c.told.collected() })
}

// gcPercent is the growth at which to collect when live bytes are live, in steps
// of a quarter: setting it stops the world for a moment.
func gcPercent(live uint64) int {
	n := gcMost
	for n > gcDefault && live*uint64(n)/100 > gcRoom {
		n -= n / 4
	}
	return max(n, gcDefault)
}
