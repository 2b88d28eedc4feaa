package worker

// bufferPool lends byte buffers by size class. It belongs to one worker, so it
// needs no lock; what it holds is bounded, the rest is left to the collector.
type bufferPool struct {
	free [bufferClasses][][]byte
	held []*held // places for buffers, all empty
}

// heldKept bounds the idle places.
const heldKept = 1 << 10

// The classes are 2, 16, 128 and 1,024 KiB.
const bufferClasses = 4

func classSize(i int) int { return 2 << 10 << (3 * i) }

// poolBytes bounds the idle buffers of one class.
const poolBytes = 1 << 20

func (p *bufferPool) take(n int) []byte {
	for i := range bufferClasses {
		size := classSize(i)
		if n > size {
			continue
		}
		if k := len(p.free[i]); k > 0 {
			b := p.free[i][k-1]
			p.free[i][k-1] = nil
			p.free[i] = p.free[i][:k-1]
			return b
		}
		return make([]byte, 0, size)
	}
	return make([]byte, 0, n)
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

// Trim lets go of the buffers, places and pipes that lie idle.
func (w *Worker) Trim() {
	w.buffers = bufferPool{}
	w.pipes.close()
}

// give files a buffer under the largest class it can serve, whoever made it.
func (p *bufferPool) give(b []byte) {
	for i := bufferClasses - 1; i >= 0; i-- {
		if cap(b) < classSize(i) {
			continue
		}
		if cap(b) <= 4*classSize(i) && len(p.free[i])*classSize(i) < poolBytes {
			p.free[i] = append(p.free[i], b[:0])
		}
		return
	}
}
