package h2

import (
	"encoding/binary"

	"sluice/internal/httpmsg"
)

// generations count frames in the output. The old one is forgotten when all its
// bytes are gone, and the new one becomes the old.
type generations struct {
	n   [2]uint32
	end [2]uint64
}

func (g *generations) add(end uint64) uint32 {
	g.n[1]++
	g.end[1] = end
	return g.n[0] + g.n[1]
}

func (g *generations) flushed(to uint64) {
	for g.n[0]+g.n[1] > 0 && g.end[0] <= to {
		g.n[0], g.end[0] = g.n[1], g.end[1]
		g.n[1] = 0
		if g.n[0] == 0 {
			return
		}
	}
}

// put stores the output with one more frame of n bytes at its end.
func (e *engine) put(b []byte, n int, control bool) {
	e.io.Put(b)
	e.out.written += uint64(n)
	e.out.all.add(e.out.written)
	if control {
		e.out.control.add(e.out.written)
	}
}

// outboundFault checks the limits on frames that the peer doesn't read.
func (e *engine) outboundFault() *fault {
	if e.out.control.n[0]+e.out.control.n[1] > e.opts.MaxOutboundControl {
		e.opts.Counters.OutboundControlFlood++
		return faultControl
	}
	if e.out.all.n[0]+e.out.all.n[1] > e.opts.MaxOutboundFrames {
		e.opts.Counters.OutboundFlood++
		return faultOutbound
	}
	return nil
}

func (e *engine) sendReset(id, code uint32) {
	e.anyReset = true
	e.opts.Counters.TxReset++
	b := appendFrame(e.io.Grab(), frameReset, 0, id, 4)
	e.put(binary.BigEndian.AppendUint32(b, code), frameHead+4, true)
}

func (e *engine) sendUpdate(id uint32, n int32) {
	b := appendFrame(e.io.Grab(), frameWindow, 0, id, 4)
	e.put(binary.BigEndian.AppendUint32(b, uint32(n)), frameHead+4, false)
}

// SendPing sends a PING; its ACK comes to OnPingAck.
func (e *engine) SendPing(opaque uint64) {
	if !e.dead {
		b := appendFrame(e.io.Grab(), framePing, 0, 0, 8)
		e.put(binary.BigEndian.AppendUint64(b, opaque), frameHead+8, false)
	}
}

func (e *engine) sendGoAway(last, code uint32) {
	e.opts.Counters.GoawaySent++
	b := appendFrame(e.io.Grab(), frameGoAway, 0, 0, 8)
	b = binary.BigEndian.AppendUint32(b, last)
	e.put(binary.BigEndian.AppendUint32(b, code), frameHead+8, false)
}

// SendData implements httpmsg.Stream.
func (st *stream) SendData(p []byte, end bool) {
	e := st.e
	if e == nil || e.dead || !st.headOut || st.outDone || st.ending {
		return
	}
	if st.wait == 0 {
		p = st.sendNow(p, end)
		if st.e == nil || st.outDone || p == nil {
			return
		}
	}
	st.keep(p)
	st.ending = end
	if st.high = st.high || st.wait > httpmsg.HighWater; st.sendWin > 0 {
		e.enqueue(st)
	}
}

// sendNow sends what windows and output allow and gives the rest; nil means
// that all is done, the end too.
func (st *stream) sendNow(p []byte, end bool) []byte {
	e := st.e
	for len(p) > 0 {
		n := min(int32(len(p)), e.sendWin, st.sendWin, e.maxFrame)
		if n <= 0 || e.io.Pending() >= highOutput {
			return p
		}
		st.frame(p[:n], end && int(n) == len(p))
		p = p[n:]
	}
	if end && !st.outDone {
		st.frame(nil, true)
	}
	if st.outDone {
		st.sent()
	}
	return nil
}

// frame sends one DATA frame.
func (st *stream) frame(p []byte, end bool) {
	e, flags := st.e, byte(0)
	if end {
		flags, st.outDone = flagEndStream, true
	}
	b := appendFrame(e.io.Grab(), frameData, flags, st.id, len(p))
	e.put(append(b, p...), frameHead+len(p), false)
	e.sendWin -= int32(len(p))
	st.sendWin -= int32(len(p))
	st.marked = false
	e.out.data++
}

// keep copies DATA into the stream's chunks.
func (st *stream) keep(p []byte) {
	st.wait += len(p)
	for len(p) > 0 {
		k := len(st.chunks) - 1
		if k < 0 || len(st.chunks[k]) == cap(st.chunks[k]) {
			st.chunks = append(st.chunks, st.e.pool.Chunk())
			k++
		}
		c := st.chunks[k]
		n := min(len(p), cap(c)-len(c))
		st.chunks[k] = append(c, p[:n]...)
		p = p[n:]
	}
}

// queued reports that something waits for window or room.
func (st *stream) queued() bool { return st.wait > 0 || st.ending && !st.outDone || st.trailers != nil }

// enqueue puts a stream behind the others that can send.
func (e *engine) enqueue(st *stream) {
	if st.inQueue {
		return
	}
	st.inQueue, st.before = true, e.last
	if e.last == nil {
		e.first = st
	} else {
		e.last.later = st
	}
	e.last = st
}

func (e *engine) dequeue(st *stream) {
	if !st.inQueue {
		return
	}
	if st.before == nil {
		e.first = st.later
	} else {
		st.before.later = st.later
	}
	if st.later == nil {
		e.last = st.before
	} else {
		st.later.before = st.before
	}
	st.inQueue, st.before, st.later = false, nil, nil
}

// pump gives each waiting stream a frame in turn, while the connection's window
// and output allow.
func (e *engine) pump() {
	for e.first != nil && !e.dead && e.io.Pending() < highOutput {
		st := e.first
		if e.sendWin <= 0 && st.wait > 0 {
			return
		}
		e.dequeue(st)
		if st.sendSome() {
			e.enqueue(st)
		}
	}
}

// sendSome sends up to a frame of what waits, and says whether the stream can
// send more.
func (st *stream) sendSome() bool {
	e := st.e
	if st.wait > 0 {
		c := st.chunks[0][st.off:]
		n := min(int32(len(c)), e.sendWin, st.sendWin, e.maxFrame)
		if n <= 0 {
			return false // a WINDOW_UPDATE brings it back
		}
		st.wait -= int(n)
		st.frame(c[:n], st.wait == 0 && st.ending && st.trailers == nil)
		if st.off += int(n); st.off == len(st.chunks[0]) {
			st.shift()
		}
	}
	if st.wait > 0 {
		id := st.id
		st.drained()
		return st.id == id && st.sendWin > 0 && st.wait > 0
	}
	if st.trailers != nil {
		t := st.trailers
		st.trailers = nil
		st.sendTrailers(t)
		e.pool.PutHead(t)
		return false
	}
	if st.ending {
		st.endStream()
		return false
	}
	st.drained()
	return false
}

// endStream finishes a queue that ran empty.
func (st *stream) endStream() {
	if !st.outDone {
		st.frame(nil, true)
	}
	st.sent()
}

func (st *stream) shift() {
	st.e.pool.PutChunk(st.chunks[0])
	n := copy(st.chunks, st.chunks[1:])
	st.chunks[n] = nil
	st.chunks, st.off = st.chunks[:n], 0
}

// drained tells the sender that it may go on.
func (st *stream) drained() {
	if st.high && st.wait < httpmsg.LowWater {
		st.high = false
		st.rcv.OnDrain()
	}
}

// sent is the end of our side of the stream. A server that has answered before
// the request was complete asks the client to stop (RFC 9113 section 8.1).
func (st *stream) sent() {
	e := st.e
	if st.inDone {
		e.release(st)
	} else if !e.client {
		id := st.id
		e.release(st)
		e.sendReset(id, CodeNo)
	} else {
		return
	}
	e.leaveWhenDone()
}

// SendTrailers implements httpmsg.Stream.
func (st *stream) SendTrailers(h *httpmsg.Head) {
	e := st.e
	if e == nil || e.dead || !st.headOut || st.outDone || st.ending {
		return
	}
	if st.wait > 0 {
		st.ending, st.trailers = true, e.pool.Head()
		st.trailers.CopyFrom(h)
		return
	}
	st.sendTrailers(h)
}

func (st *stream) sendTrailers(h *httpmsg.Head) {
	e := st.e
	st.outDone = true
	b := e.io.Grab()
	at := len(b)
	b = appendFrame(b, frameHeaders, flagEndHeaders|flagEndStream, st.id, 0)
	b = e.appendFields(e.enc.Start(b), h)
	e.putHead(b, at)
	st.sent()
}

// SendHead implements httpmsg.Stream.
func (st *stream) SendHead(h *httpmsg.Head, end bool) {
	e := st.e
	if e == nil || e.dead || st.headOut {
		return
	}
	if e.client {
		if st.id < e.sentID {
			e.renumber(st)
		}
		e.sentID = st.id
		if u := h.Get(httpmsg.Upgrade); len(u) > 0 && httpmsg.HasToken(h.Get(httpmsg.Connection), "upgrade") {
			st.protocol = string(u)
		}
	}
	b := e.io.Grab()
	at := len(b)
	flags := byte(flagEndHeaders)
	if end {
		flags |= flagEndStream
	}
	b = e.enc.Start(appendFrame(b, frameHeaders, flags, st.id, 0))
	if e.client {
		b = e.appendRequest(b, h, st.protocol)
		st.headOut, st.headOnly = true, string(h.Method()) == "HEAD"
	} else {
		status := h.Status
		if status == 101 && st.protocol != "" {
			status = 200
		}
		b = e.enc.Status(b, status)
		st.headOut = status >= 200
	}
	e.putHead(e.appendFields(b, h), at)
	if end {
		st.outDone = true
		st.sent()
	}
}

// appendRequest encodes the pseudo headers; an Upgrade to protocol becomes an
// extended CONNECT.
func (e *engine) appendRequest(b []byte, h *httpmsg.Head, protocol string) []byte {
	if protocol != "" {
		b = e.enc.Method(b, []byte("CONNECT"))
	} else {
		b = e.enc.Method(b, h.Method())
	}
	connect := string(h.Method()) == "CONNECT" && protocol == ""
	if !connect {
		scheme := h.Scheme()
		if len(scheme) == 0 {
			scheme = []byte("http")
		}
		b = e.enc.Scheme(b, scheme)
	}
	if h.HasAuthority() {
		b = e.enc.Authority(b, h.Authority())
	}
	if !connect {
		b = e.enc.Path(b, h.Path())
	}
	if protocol != "" {
		b = e.enc.Protocol(b, []byte(protocol))
	}
	return b
}

// appendFields encodes the fields but those that HTTP/2 forbids (RFC 9113
// section 8.2.2).
func (e *engine) appendFields(b []byte, h *httpmsg.Head) []byte {
	for i := range h.Len() {
		id, name, value, ok := h.Field(i)
		if !ok || connectionField(id) || id == httpmsg.Host || id == httpmsg.TE && string(value) != "trailers" {
			continue
		}
		b = e.enc.Field(b, id, name, value, h.Sensitive(i))
	}
	return b
}

// connectionField reports names that mean something for one HTTP/1 connection.
func connectionField(id httpmsg.ID) bool {
	switch id {
	case httpmsg.Connection, httpmsg.KeepAlive, httpmsg.ProxyConnection, httpmsg.TransferEncoding, httpmsg.Upgrade:
		return true
	}
	return false
}

// putHead finishes a HEADERS frame that begins at, splitting off CONTINUATIONs
// when it is larger than the peer takes.
func (e *engine) putHead(b []byte, at int) {
	size := len(b) - at - frameHead
	if limit := int(e.maxFrame); size > limit {
		b = e.splitHead(b, at, limit)
	} else {
		patchLength(b, at)
	}
	e.put(b, len(b)-at, false)
}

func (e *engine) splitHead(b []byte, at, limit int) []byte {
	flags, id := b[at+4], binary.BigEndian.Uint32(b[at+5:])
	block := append([]byte(nil), b[at+frameHead:]...)
	b = b[:at]
	typ, f := byte(frameHeaders), flags&^flagEndHeaders
	for len(block) > 0 {
		n := min(len(block), limit)
		if n == len(block) {
			f |= flagEndHeaders
		}
		b = append(appendFrame(b, typ, f, id, n), block[:n]...)
		block = block[n:]
		typ, f = frameContinuation, 0
	}
	return b
}
