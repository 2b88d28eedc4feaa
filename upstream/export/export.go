// Package export sends what was gathered, log records and spans, to collectors:
// in batches, by calls of the worker that gathered it. A collector that doesn't
// keep up loses entries; traffic never waits for it.
package export

import (
	"time"

	"sluice/internal/worker"
	"sluice/upstream/call"
)

// flights bounds the calls to one destination that have no answer yet.
const flights = 4

// waiting bounds the entries that wait for one destination, in bytes.
const waiting = 1 << 20

// Destination is where entries go, and when. It is shared by all workers.
type Destination struct {
	// Request makes the call that delivers n entries; it must not keep them.
	Request  func(entries []byte, n int) *call.Request
	Entries  int           // so many are sent at once; 0: any number waits
	Bytes    int           // so many bytes too; 0: waiting
	Interval time.Duration // nothing waits longer
	// Lost says how many of n entries an answer doesn't take; nil: none.
	Lost func(a *call.Answer, n int) int
	// Told is called on the worker with what became of n entries; nil: nobody is.
	Told func(w *worker.Worker, n int, o Outcome)
}

// Outcome is what became of entries.
type Outcome uint8

// The outcomes.
const (
	Delivered Outcome = iota // the collector answered, and doesn't say they are lost
	Failed                   // it didn't, or they are
	Dropped                  // they were too many
)

// Exporter gathers and sends on one worker.
type Exporter struct {
	caller  *call.Caller
	batches map[*Destination]*batch
	empty   func() // called once there are none; nil: nobody waits
}

// batch is the entries for one destination, and the calls on their way there. It
// exists while there are any.
type batch struct {
	to     *Destination
	data   []byte
	n      int
	flying int
	timer  worker.Timer
}

// New makes the Exporter of the caller's worker.
func New(c *call.Caller) *Exporter {
	return &Exporter{caller: c, batches: make(map[*Destination]*batch)}
}

// Add takes an entry, which it copies.
func (e *Exporter) Add(to *Destination, entry []byte) {
	b := e.batches[to]
	if b == nil {
		b = &batch{to: to}
		b.timer.Fire = func() { e.send(b) }
		e.batches[to] = b
	}
	if len(b.data)+len(entry) > waiting {
		b.told(e, 1, Dropped)
		return
	}
	b.data = append(b.data, entry...)
	if b.n++; b.full() {
		e.send(b)
	} else if b.n == 1 {
		e.caller.Worker.Start(&b.timer, to.Interval)
	}
}

func (b *batch) full() bool {
	return b.to.Entries > 0 && b.n >= b.to.Entries || b.to.Bytes > 0 && len(b.data) >= b.to.Bytes
}

// send delivers what there is, unless too many calls are under way: then it goes
// with the answer to one.
func (e *Exporter) send(b *batch) {
	if b.flying >= flights || b.n == 0 {
		return
	}
	e.caller.Worker.Stop(&b.timer)
	n := b.n
	r := b.to.Request(b.data, n)
	b.data, b.n = b.data[:0], 0 // its memory goes with the batch
	b.flying++
	e.caller.Do(r, func(a *call.Answer) { e.answered(b, n, a) })
}

// Flush sends what waits, and calls done, which may be at once, when nothing is on
// its way any more.
func (e *Exporter) Flush(done func()) {
	for _, b := range e.batches {
		e.send(b)
	}
	e.empty = done
	e.emptied()
}

func (e *Exporter) emptied() {
	if done := e.empty; done != nil && len(e.batches) == 0 {
		e.empty = nil
		done()
	}
}

func (e *Exporter) answered(b *batch, n int, a *call.Answer) {
	b.flying--
	lost := 0
	if a.Status == 0 {
		lost = n
	} else if b.to.Lost != nil {
		lost = b.to.Lost(a, n)
	}
	b.told(e, n-lost, Delivered)
	b.told(e, lost, Failed)
	switch {
	case b.n > 0 && (b.full() || b.flying == flights-1):
		e.send(b)
	case b.n == 0 && b.flying == 0 && e.batches[b.to] == b:
		delete(e.batches, b.to)
		e.emptied()
	}
}

func (b *batch) told(e *Exporter, n int, o Outcome) {
	if b.to.Told != nil && n > 0 {
		b.to.Told(e.caller.Worker, n, o)
	}
}
