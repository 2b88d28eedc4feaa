package httpmsg

// Chunk is the size of a Pool's buffers in bytes.
const Chunk = 16 << 10

// keepHead is the buffer size above which a Head isn't kept for reuse.
const keepHead = 64 << 10

// Pool keeps the heads and buffers of the engines of one worker for reuse, so
// that an idle connection holds none. It is not safe for concurrent use; the
// zero value is ready.
type Pool struct {
	heads  []*Head
	chunks [][]byte
}

// Head gives an empty head.
func (p *Pool) Head() *Head {
	if n := len(p.heads); n > 0 {
		h := p.heads[n-1]
		p.heads = p.heads[:n-1]
		return h
	}
	return &Head{buf: make([]byte, 0, 1024), fields: make([]field, 0, 24)}
}

// PutHead takes a head back; nil is ignored.
func (p *Pool) PutHead(h *Head) {
	if h == nil || cap(h.buf) > keepHead || len(p.heads) >= 1024 {
		return
	}
	h.Reset()
	p.heads = append(p.heads, h)
}

// Chunk gives an empty buffer with room for Chunk bytes.
func (p *Pool) Chunk() []byte {
	if n := len(p.chunks); n > 0 {
		b := p.chunks[n-1]
		p.chunks = p.chunks[:n-1]
		return b
	}
	return make([]byte, 0, Chunk)
}

// PutChunk takes a buffer of Chunk back.
func (p *Pool) PutChunk(b []byte) {
	if cap(b) == Chunk && len(p.chunks) < 256 {
		p.chunks = append(p.chunks, b[:0])
	}
}
