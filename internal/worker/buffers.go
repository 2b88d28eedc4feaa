package worker

import "math/bits"

// bufferPool lends byte buffers by size class. It belongs to one worker, so it
// needs no lock; what it holds is bounded, the rest is left to the collector.
type bufferPool struct {
	free [bufferClasses][][]byte
	held []*held // places for buffers, all empty
}

// heldKept bounds the idle places.
const heldKept = 1 << 10

// The classes are 2, 4, 8, ... 1,024 KiB: what ten thousand slow readers leave
// behind is of any size below a read's.
const bufferClasses = 10

func classSize(i int) int { return 2 << 10 << i }

// classFor is the smallest class that has room for n bytes, bufferClasses for none.
func classFor(n int) int { return min(bits.Len(uint(max(n-1, 0))>>11), bufferClasses) }

// poolBytes bounds the idle buffers of one class.
const poolBytes = 1 << 20

func (p *bufferPool) take(n int) []byte {
	i := classFor(n)
	if i == bufferClasses {
		return make([]byte, 0, n)
	}
	if k := len(p.free[i]); k > 0 {
		b := p.free[i][k-1]
		p.free[i][k-1] = nil
		p.free[i] = p.free[i][:k-1]
		return b
	}
	return make([]byte, 0, classSize(i))
}

func (w *Worker) takeHeld() *held {
	p := &w.buffers
	if k := len(p.held); k > 0 {
		h := p.held[k-1]
		p.held = p.held[:k-1]
		return h
	}
	return &held{}
}

func (w *Worker) giveHeld(h *held) {
	if p := &w.buffers; len(p.held) < heldKept {
		p.held = append(p.held, h)
	}
}

// OnTrim adds to what Trim does: f lets go of what others keep for reuse. It is
// called before Run.
func (w *Worker) OnTrim(f func()) { w.trims = append(w.trims, f) }

// Trim lets go of the buffers, places and pipes that lie idle.
func (w *Worker) Trim() {
	for _, f := range w.trims {
		f()
	}
	w.buffers = bufferPool{}
	w.pipes.close()
}

// give files a buffer under the largest class it can serve, whoever made it.
func (p *bufferPool) give(b []byte) {
	i := min(bits.Len(uint(cap(b))>>11), bufferClasses) - 1
	if i < 0 || cap(b) > 4*classSize(i) || len(p.free[i])*classSize(i) >= poolBytes {
		return
	}
	p.free[i] = append(p.free[i], b[:0])
}
