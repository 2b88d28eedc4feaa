package conform

import (
	"time"

	"golang.org/x/net/http2/hpack"
)

// write sends bytes between other writes.
func (c *h2Conn) write(data []byte) bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.wire.send(data, after(10*time.Second))
}

// encode is the header block of hand-made frames.
func (c *h2Conn) encode(fields []pair) []byte {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.encodeLocked(fields)
}

func (c *h2Conn) encodeLocked(fields []pair) []byte {
	c.block.Reset()
	for _, f := range fields {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: string(rawBytes(f.name)), Value: string(rawBytes(f.value))})
	}
	return append([]byte{}, c.block.Bytes()...)
}

// limitTable tells the encoder the peer's limit. One that changes nothing must
// not be announced: it would stand inside a block that hand-made frames cut.
func (c *h2Conn) limitTable(size uint32) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if size != c.table {
		c.encoder.SetMaxDynamicTableSize(size)
		c.table = size
	}
}

func (c *h2Conn) openStream() *h2Stream {
	c.state.Lock()
	defer c.state.Unlock()
	s := &h2Stream{id: c.nextID, window: c.initial}
	c.streams[s.id] = s
	c.nextID += 2
	return s
}

// adopt makes a stream that hand-made frames speak of known.
func (c *h2Conn) adopt(id uint32) {
	c.state.Lock()
	defer c.state.Unlock()
	if id != 0 && c.streams[id] == nil {
		c.streams[id] = &h2Stream{id: id, window: c.initial}
		c.nextID = max(c.nextID, id+2)
	}
}

// sendHeaders sends a block, cut into CONTINUATION where it must be.
func (c *h2Conn) sendHeaders(s *h2Stream, fields []pair, end bool) bool {
	c.state.Lock()
	size := c.maxFrame
	c.state.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	block := c.encodeLocked(fields)
	kind, flags := byte(frameHeaders), byte(0)
	if end {
		flags = flagEndStream
	}
	var out []byte
	for {
		n := min(size, len(block))
		if n == len(block) {
			flags |= flagEndHeaders
		}
		out = append(out, frame(kind, flags, s.id, block[:n])...)
		if block = block[n:]; len(block) == 0 {
			return c.wire.send(out, after(10*time.Second))
		}
		kind, flags = frameContinuation, 0
	}
}

// sendData sends under flow control; false when the stream or the connection
// ended first.
func (c *h2Conn) sendData(s *h2Stream, data []byte, end bool, deadline time.Time) bool {
	for {
		n := 0
		c.state.Lock()
		ok := c.state.await(deadline, func() bool {
			n = int(min(int64(len(data)), c.window, s.window, int64(c.maxFrame)))
			return len(data) == 0 || n > 0 || s.reset != nil || c.wire.end() != ""
		})
		if ok && (len(data) == 0 || n > 0) {
			n = max(n, 0)
			c.window -= int64(n)
			s.window -= int64(n)
		} else {
			ok = false
		}
		c.state.Unlock()
		if !ok {
			return false
		}
		part, flags := data[:n], byte(0)
		if data = data[n:]; end && len(data) == 0 {
			flags = flagEndStream
		}
		if !c.write(frame(frameData, flags, s.id, part)) {
			return false
		}
		if len(data) == 0 {
			return true
		}
	}
}

func (c *h2Conn) resetStream(s *h2Stream, code string) {
	c.write(frame(frameRSTStream, 0, s.id, number32(codeNumber(code))))
}

func (c *h2Conn) goAway(last uint32, code string) {
	c.write(frame(frameGoAway, 0, 0, append(number32(last), number32(codeNumber(code))...)))
}
