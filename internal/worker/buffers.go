package worker

// bufferPool lends byte buffers by size class. It belongs to one worker, so it
// needs no lock; what it holds is bounded, the rest is left to the collector.
type bufferPool struct {
	free [bufferClasses][][]byte
}

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
