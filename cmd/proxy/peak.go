package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A Go process keeps what a peak needed until its heap has doubled again, or two
// minutes have gone by; a sidecar is idle for hours after its peaks. So memory
// is given back once it is quiet, which costs a few milliseconds of CPU.
const (
	peakLook  = time.Second // between two looks
	peakCalm  = 2           // quiet looks in a row end a peak
	peakQuiet = 64 << 10    // bytes allocated between two looks that count as none
	peakWorth = 1 << 20     // bytes allocated since the last time that are worth it, but no less
	peakShare = 8           // than this part of the live heap, which the collector must go through
)

// peak follows how much was allocated.
type peak struct {
	last, settled uint64 // bytes allocated since the start: at the last look, when memory was given back
	calm          int    // quiet looks in a row
}

// over takes a look, at the bytes allocated so far and those that are live, and
// says whether a peak has just ended.
func (p *peak) over(allocated, live uint64) bool {
	quiet := allocated-p.last < peakQuiet
	p.last = allocated
	if !quiet {
		p.calm = 0
		return false
	}
	if p.calm++; p.calm != peakCalm || allocated-p.settled < max(peakWorth, live/peakShare) {
		return false
	}
	p.settled = allocated
	return true
}

// giveBack returns memory to the system after peaks, until ctx ends.
func (p *plane) giveBack(ctx context.Context) error {
	paceCollector(ctx)
	t := time.NewTicker(peakLook)
	defer t.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	k := peak{last: sample[0].Value.Uint64()}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		metrics.Read(sample)
		if !k.over(sample[0].Value.Uint64(), sample[1].Value.Uint64()) {
			continue
		}
		for _, w := range p.workers {
			w.Post(w.Trim)
		}
		debug.FreeOSMemory()
	}
}
