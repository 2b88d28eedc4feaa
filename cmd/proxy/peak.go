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
	peakLeave = 64          // connections closed between two looks that count as none
	peakLeft  = 256         // closed since there were most that are worth it, but no less than peakShare of those
	peakStill = 3           // quiet looks in a row without a collection end what reads much of the binary
)

// peak follows how much was allocated, and how many connections there are: ten
// thousand that waited quietly leave much behind and allocate nothing as they go.
type peak struct {
	last, settled uint64 // bytes allocated since the start: at the last look, when memory was given back
	conns, most   int    // connections at the last look, most since memory was given back
	calm          int    // quiet looks in a row
	cycles        uint64 // collections at the last look
	still         int    // quiet looks in a row without one
}

// over takes a look, at the bytes allocated so far, those that are live and the
// connections, and says whether a peak has just ended.
func (p *peak) over(allocated, live uint64, conns int) bool {
	quiet := allocated-p.last < peakQuiet && p.conns-conns < peakLeave
	p.last, p.conns, p.most = allocated, conns, max(p.most, conns)
	if !quiet {
		p.calm = 0
		return false
	}
	grown := allocated-p.settled >= max(peakWorth, live/peakShare)
	left := p.most-conns >= max(peakLeft, p.most/peakShare)
	if p.calm++; p.calm != peakCalm || !grown && !left {
		return false
	}
	p.settled, p.most = allocated, conns
	return true
}

// unread says once, after over and with the collections so far, that pages of the
// binary are there which nothing looks at any more. Requests read them, but so does
// each collection: the tables of every function on a stack, and once more as the
// stacks that it shrank grow. An idle process collects every two minutes.
func (p *peak) unread(cycles uint64) bool {
	if p.calm == 0 || cycles != p.cycles {
		p.cycles, p.still = cycles, 0
		return false
	}
	p.still++
	return p.still == peakStill
}

// giveBack returns memory to the system after peaks, until ctx ends. What the
// start needed goes back at the first look after it, out of the way of the first
// requests.
func (p *plane) giveBack(ctx context.Context) error {
	t := time.NewTicker(peakLook)
	defer t.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	k := peak{last: sample[0].Value.Uint64()}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		metrics.Read(sample)
		if p.untrimmed.Swap(false) {
			if p.started != nil {
				p.started()
			}
			if err := trim(); err != nil {
				p.log.Debug("memory", "error", err)
			}
			k.settled = sample[0].Value.Uint64()
		}
		conns := 0
		for _, w := range p.workers {
			conns += w.Conns()
		}
		if k.over(sample[0].Value.Uint64(), sample[1].Value.Uint64(), conns) {
			if err := p.trimWorkers(ctx); err != nil {
				return err
			}
			debug.FreeOSMemory()
		}
		if k.unread(sample[2].Value.Uint64()) {
			if err := dropPages(); err != nil {
				p.log.Debug("memory", "error", err)
			}
		}
	}
}

// trimWorkers has the workers let go of what they keep, and waits for that: what
// the collector still finds in use stays for minutes.
func (p *plane) trimWorkers(ctx context.Context) error {
	done := make(chan struct{}, len(p.workers))
	for _, w := range p.workers {
		w.Post(func() { w.Trim(); done <- struct{}{} })
	}
	for range p.workers {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-done:
		}
	}
	return nil
}
