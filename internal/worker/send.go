package worker

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

const (
	grabSize = 16 << 10
	flushAt  = 64 << 10 // output is written before the turn ends when it is this long
	sealAt   = 128 << 10

	flushTimeout = 10 * time.Second // without a byte taken, of a connection that closes
)

// Grab gives the output buffer to append to; Put stores it back longer. It is
// flushed at the end of the turn, or earlier when it is long. Nothing else may
// be done with c between the two. On a closed Conn the bytes go nowhere.
func (c *Conn) Grab() []byte {
	h := c.hold()
	if h.out == nil {
		h.out = c.w.buffers.take(grabSize)
	}
	return h.out
}

// Put stores the buffer of Grab back.
func (c *Conn) Put(b []byte) {
	h := c.hold()
	if cap(b) > cap(h.out) {
		c.w.buffers.give(h.out) // append moved it
	}
	h.out = b
	if len(b) == 0 {
		c.allOut()
		return
	}
	c.wrote()
}

// Write appends a copy of p to the output.
func (c *Conn) Write(p []byte) {
	if len(p) == 0 {
		return // an idle conn would hold a buffer for it
	}
	b := c.Grab()
	if need := len(b) + len(p); need > cap(b) {
		nb := append(c.w.buffers.take(need), b...)
		c.w.buffers.give(b)
		b = nb
	}
	c.held.out = append(b, p...)
	c.wrote()
}

// WriteNow writes p at once if nothing is pending before it, and keeps a copy
// of what the kernel doesn't take.
func (c *Conn) WriteNow(p []byte) {
	const wait = blocked | connecting | dead | closing | finSent
	if len(p) == 0 || c.Pending() > 0 || c.flags&wait != 0 || c.werr != 0 {
		c.Write(p)
		return
	}
	if c.layer != nil {
		if n := c.sealAndWrite(p); n < len(p) {
			c.Write(p[n:])
		} else if c.Pending() > 0 {
			c.wrote()
		}
		return
	}
	n, e := c.write(p)
	if e != 0 {
		n = 0
		if e != unix.EAGAIN {
			c.writeFailed(e)
			return
		}
	}
	c.tx += uint64(n)
	if n < len(p) {
		c.flags |= blocked
		c.Write(p[n:])
	}
}

func (c *Conn) wrote() {
	if c.flags&(dead|finSent) != 0 || c.werr != 0 {
		c.dropOut()
		return
	}
	n := c.Pending()
	if n >= flushAt && c.flags&(blocked|connecting) == 0 {
		c.writeOut()
		n = c.Pending()
	}
	if n >= HighWater {
		c.flags |= above
	}
	c.touch()
}

// Pending is how many output bytes the kernel hasn't taken.
func (c *Conn) Pending() int {
	h := c.held
	if h == nil {
		return 0
	}
	return len(h.out) - h.outOff + len(h.wire) - h.wirOff
}

// ShutdownWrite sends FIN (close_notify before it, with a Layer) after what is pending.
func (c *Conn) ShutdownWrite() {
	c.flags |= finAfter
	c.touch()
}

// CloseWhenFlushed sends what is pending, then FIN, and closes when the peer
// does, at the latest after the linger time (1 s, see SetLinger): closing with
// unread bytes would send RST and may destroy the response on its way. A peer
// that takes no byte for flushTimeout loses the rest, see Patient, and gets RST:
// FIN would pass the part for the whole.
func (c *Conn) CloseWhenFlushed() {
	if c.flags&(closing|dead) != 0 {
		return
	}
	if c.splice != nil {
		c.unsplice()
		c.flags |= readable
	}
	c.flags |= closing | finAfter
	c.flags &^= paused
	if c.flags&patient == 0 {
		c.deadline(flushTimeout, c.closeTimeout)
		c.ending.mark = c.tx
	}
	c.touch()
}

// Patient has CloseWhenFlushed wait for a peer that takes nothing for as long as
// its caller does. Called after it, it changes nothing.
func (c *Conn) Patient() { c.flags |= patient }

// CloseDelayed sends what is pending and closes when the peer does, at the latest
// d after the last byte left. Until then the peer sees no FIN: Envoy's
// delayed_close_timeout, for peers that are still sending.
func (c *Conn) CloseDelayed(d time.Duration) {
	c.flags |= keepOpen
	c.SetLinger(d)
	c.CloseWhenFlushed()
}

// ResetWhenFlushed sends what is pending, then RST.
func (c *Conn) ResetWhenFlushed() {
	c.flags |= resetAfter
	c.flags &^= closing
	c.CloseWhenFlushed()
}

// closeTimeout ends a close that the peer holds up.
func (c *Conn) closeTimeout() {
	if e := c.ending; c.flags&finSent == 0 && e.mark != c.tx {
		e.mark = c.tx
		c.w.Start(&e.timer, flushTimeout)
		return
	}
	c.flags |= timedOut
	if c.flags&finSent == 0 {
		c.Abort()
		return
	}
	c.Close()
}

// TimedOut reports a close that we waited for, and the peer didn't, in time.
func (c *Conn) TimedOut() bool { return c.flags&timedOut != 0 }

// SetLinger sets how long CloseWhenFlushed waits for the peer; 0: not at all.
// Part milliseconds count as whole ones.
func (c *Conn) SetLinger(d time.Duration) {
	c.linger = int32(min((d+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
}

// touch puts c on the list of what is settled at the end of the turn.
func (c *Conn) touch() {
	if c.flags&inDirty == 0 {
		c.flags |= inDirty
		c.w.dirty = append(c.w.dirty, c)
	}
}

// settle is the end of a turn for a conn that has something to write or tell.
func (c *Conn) settle() {
	if c.flags&dead != 0 {
		c.tell()
		return
	}
	if c.flags&connecting != 0 {
		return
	}
	if c.flags&blocked == 0 && c.Pending() > 0 {
		c.writeOut()
	}
	n := c.Pending()
	if n == 0 && c.flags&(finAfter|blocked) == finAfter {
		c.finish()
	}
	if c.flags&dead != 0 {
		return // told in the next round
	}
	if c.flags&above != 0 && n <= LowWater {
		c.flags &^= above
		c.h.OnDrain(c)
	}
}

// tell makes the last call to the handler.
func (c *Conn) tell() {
	if c.flags&told != 0 {
		return
	}
	c.flags |= told
	if c.flags&connecting != 0 {
		if err := c.why(); err != nil {
			c.h.OnConnect(c, err)
		}
		return
	}
	c.h.OnClose(c, c.why())
}

// finish sends FIN once everything pending is out, and closes if that is wanted.
func (c *Conn) finish() {
	if c.flags&resetAfter != 0 {
		c.Abort()
		return
	}
	first := c.flags&finSent == 0
	if c.flags&(finSent|keepOpen) == keepOpen && c.linger > 0 {
		c.flags |= finSent // for writes the connection is over
	}
	if c.flags&finSent == 0 && c.werr == 0 {
		if c.layer != nil && c.flags&closeSealed == 0 {
			c.flags |= closeSealed
			c.hold().wire = c.layer.SealClose(c.w.buffers.take(64))
			if !c.writeWire() {
				return
			}
		}
		c.flags |= finSent
		if c.flags&(closing|eof) != closing|eof { // else closing it sends the FIN
			c.w.calls.Others++
			sysShutdown(int(c.fd))
		}
	}
	if c.flags&closing == 0 {
		return
	}
	if c.flags&eof != 0 || c.linger == 0 || c.werr != 0 {
		c.Close()
		return
	}
	if first {
		c.deadline(time.Duration(c.linger)*time.Millisecond, c.closeTimeout)
		c.enqueue()
	}
}

// notify sends close_notify, which a peer behind a layer takes for a clean end as
// others do FIN. Behind output that is dropped it would hide the loss.
func (c *Conn) notify() {
	if c.layer == nil || c.flags&(closeSealed|connecting) != 0 || c.werr != 0 || c.Pending() > 0 {
		return
	}
	c.flags |= closeSealed
	b := c.layer.SealClose(c.w.buffers.take(64))
	c.write(b) // what the kernel doesn't take the peer does without
	c.w.buffers.give(b)
}

// writeOut writes pending bytes until they are gone or the kernel is full.
func (c *Conn) writeOut() {
	if !c.writeWire() || c.held == nil || c.held.outOff == len(c.held.out) {
		return
	}
	if c.layer != nil {
		c.writeSealed()
		return
	}
	for h := c.held; h.outOff < len(h.out); {
		n, e := c.write(h.out[h.outOff:])
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			c.notWritten(e)
			return
		}
		h.outOff += n
		c.tx += uint64(n)
	}
	c.allOut()
}

func (c *Conn) write(b []byte) (int, unix.Errno) {
	c.w.calls.Writes++
	return sysWrite(int(c.fd), b)
}

// allOut gives the buffer back whose bytes are all written.
func (c *Conn) allOut() {
	h := c.held
	c.w.buffers.give(h.out)
	h.out, h.outOff = nil, 0
	c.unhold()
}

// writeSealed seals and writes pending plaintext.
func (c *Conn) writeSealed() {
	n := c.sealAndWrite(c.held.out[c.held.outOff:])
	h := c.held
	if h == nil || h.out == nil {
		return // the write failed
	}
	if h.outOff += n; h.outOff >= len(h.out) {
		c.allOut()
	}
}

// sealAndWrite seals p in the shared buffer and writes it, until the kernel is
// full; what it doesn't take of the sealed bytes is kept. It returns how much of
// p was sealed.
func (c *Conn) sealAndWrite(p []byte) (n int) {
	w := c.w
	if w.seal == nil {
		w.seal = make([]byte, 0, sealAt+4<<10)
	}
	for n < len(p) {
		part := p[n:min(len(p), n+sealAt)]
		b := c.layer.Seal(w.seal[:0], part)
		n += len(part)
		c.tx += uint64(len(part))
		k, e := c.write(b)
		if e != 0 {
			k = 0
		}
		if k < len(b) {
			h := c.hold()
			h.wire, h.wirOff = append(w.buffers.take(len(b)-k), b[k:]...), 0
			if e == 0 {
				e = unix.EAGAIN
			}
			c.notWritten(e)
			break
		}
	}
	return n
}

// writeWire writes sealed bytes and reports whether all are out.
func (c *Conn) writeWire() bool {
	h := c.held
	if h == nil || h.wire == nil {
		return true
	}
	for h.wirOff < len(h.wire) {
		n, e := c.write(h.wire[h.wirOff:])
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			c.notWritten(e)
			return false
		}
		h.wirOff += n
	}
	c.w.buffers.give(h.wire)
	h.wire, h.wirOff = nil, 0
	c.unhold()
	return true
}

func (c *Conn) notWritten(e unix.Errno) {
	if e != unix.EAGAIN {
		c.writeFailed(e)
		return
	}
	c.flags |= blocked
	if h := c.held; h.outOff > len(h.out)/2 {
		h.out = h.out[:copy(h.out, h.out[h.outOff:])]
		h.outOff = 0
	}
}

// writeFailed gives output up but reads on: a peer that answered and closed,
// not waiting for our bytes, has its answer in the receive queue still.
func (c *Conn) writeFailed(e unix.Errno) {
	c.werr = e
	c.dropOut()
	if c.flags&(paused|closing|eof) != 0 {
		c.fail(e)
		return
	}
	c.flags |= readable | hup
	c.requeue()
}

func (c *Conn) dropOut() {
	h := c.held
	if h == nil {
		return
	}
	if h.out != nil {
		c.w.buffers.give(h.out)
	}
	if h.wire != nil {
		c.w.buffers.give(h.wire)
	}
	h.out, h.wire, h.outOff, h.wirOff = nil, nil, 0, 0
	c.unhold()
}
