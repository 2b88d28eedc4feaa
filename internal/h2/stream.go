package h2

import (
	"sluice/internal/httpmsg"
)

// Envoy's response code details.
const (
	detailReset      = "http2.remote_reset"
	detailField      = "http2.invalid.header.field"
	detailMessage    = "http2.violation.of.messaging.rule"
	detailTooLarge   = "http2.header_list_size_too_large"
	detailTooMany    = "http2.too_many_headers"
	detailUnderscore = "http2.unexpected_underscore"
)

// stream is one exchange on a connection: the Stream of the handler or of the
// client's user. After its end it goes back to the pool.
type stream struct {
	e      *engine
	rcv    httpmsg.Receiver
	next   *stream // in the table's chain, or in the pool
	later  *stream // in the engine's queue of streams that can send
	before *stream

	id      uint32
	sendWin int32
	recvWin int32 // what the peer may still send
	unacked int32 // received and not yet credited
	left    int64 // of the received message's content-length, -1 unknown

	chunks   [][]byte // DATA that waits for window or room
	off      int      // bytes of the first chunk already sent
	wait     int      // bytes in chunks
	trailers *httpmsg.Head

	inQueue  bool
	headIn   bool // a final head came
	headOut  bool // a final head was sent
	inDone   bool // END_STREAM received
	outDone  bool // END_STREAM sent
	ending   bool // END_STREAM goes behind the chunks
	paused   bool
	high     bool // Buffered went over HighWater
	headOnly bool // HEAD: the response has no DATA, whatever its length
	overflow bool // its window overflowed by a setting
	marked   bool // by SweepStalled, and nothing moved since

	// protocol is of an extended CONNECT (RFC 8441), which the engine's user sees
	// as the Upgrade request of HTTP/1 that it stands for.
	protocol string
}

// slot gives the chain of an id.
func (e *engine) slot(id uint32) **stream { return &e.table[int(id>>1)&(len(e.table)-1)] }

func (e *engine) find(id uint32) *stream {
	if len(e.table) == 0 {
		return nil
	}
	st := *e.slot(id)
	for st != nil && st.id != id {
		st = st.next
	}
	return st
}

// open puts a new stream into the table.
func (e *engine) open(id uint32) *stream {
	if e.active >= len(e.table) {
		e.grow()
	}
	st := e.pool.stream()
	st.e, st.id, st.sendWin, st.recvWin, st.left = e, id, e.peerInit, int32(e.opts.InitialStreamWindow), -1
	p := e.slot(id)
	st.next, *p = *p, st
	e.active++
	e.in.opened++
	return st
}

func (e *engine) grow() {
	old := e.table
	e.table = make([]*stream, max(8, 2*len(old)))
	for _, st := range old {
		for st != nil {
			next, p := st.next, e.slot(st.id)
			st.next, *p = *p, st
			st = next
		}
	}
}

func (e *engine) unlink(st *stream) {
	for p := e.slot(st.id); *p != nil; p = &(*p).next {
		if *p == st {
			*p = st.next
			return
		}
	}
}

// renumber gives a client's stream the next id, when one with a higher id was
// sent first: ids must go up on the wire (RFC 9113 section 5.1.1).
func (e *engine) renumber(st *stream) {
	e.unlink(st)
	e.lastID += 2
	st.id = e.lastID
	p := e.slot(st.id)
	st.next, *p = *p, st
}

// release takes a stream out; its memory is used again.
func (e *engine) release(st *stream) {
	e.unlink(st)
	e.active--
	e.dequeue(st)
	for _, c := range st.chunks {
		e.pool.PutChunk(c)
	}
	e.pool.PutHead(st.trailers)
	e.pool.putStream(st)
}

// drop ends a stream and tells its receiver.
func (e *engine) drop(st *stream, r httpmsg.ResetReason) {
	rcv := st.rcv
	e.release(st)
	if rcv != nil {
		rcv.OnReset(r)
	}
}

// abort resets a stream for what the peer did, and tells its receiver.
func (e *engine) abort(st *stream, code uint32, r httpmsg.ResetReason) {
	r.Code, r.BeforeHead = code, !st.headIn
	e.countEarly(st)
	e.sendReset(st.id, code)
	e.drop(st, r)
}

// countData checks DATA against content-length (RFC 9113 section 8.1.1).
func (st *stream) countData(n int, end bool) bool {
	if st.headOnly && n > 0 {
		return false
	}
	if st.left < 0 || st.headOnly {
		return true
	}
	st.left -= int64(n)
	return st.left == 0 || st.left > 0 && !end
}

// credit lets the peer send n more bytes, in steps of a quarter of the window,
// unless the receiver paused.
func (st *stream) credit(n int32) {
	if st.unacked += n; st.paused || st.inDone || st.unacked < int32(st.e.opts.InitialStreamWindow)/4 {
		return
	}
	st.recvWin += st.unacked
	st.e.sendUpdate(st.id, st.unacked)
	st.unacked = 0
}

// Pause implements httpmsg.Stream.
func (st *stream) Pause() { st.paused = st.e != nil }

// Resume implements httpmsg.Stream.
func (st *stream) Resume() {
	if st.paused = false; st.e != nil {
		st.credit(0)
	}
}

// Buffered implements httpmsg.Stream.
func (st *stream) Buffered() int { return st.wait }

// Detach implements httpmsg.Stream; on HTTP/2 a tunnel is DATA.
func (st *stream) Detach() {}

// HTTP2 implements httpmsg.Stream.
func (st *stream) HTTP2() bool { return true }

// ID implements httpmsg.Stream.
func (st *stream) ID() uint64 { return uint64(st.id) }

// Reset implements httpmsg.Stream. Code is sent when it isn't zero; else
// REFUSED_STREAM for that kind, and what Envoy sends, INTERNAL_ERROR.
func (st *stream) Reset(r httpmsg.ResetReason) {
	e := st.e
	if e == nil || e.dead {
		return
	}
	code := r.Code
	switch {
	case code != 0:
	case r.Kind == httpmsg.ResetRefused:
		code = CodeRefused
	case r.Kind == httpmsg.ResetNone:
		code = CodeNo
	default:
		code = CodeInternal
	}
	id, unsent := st.id, e.client && !st.headOut
	e.release(st)
	if !unsent {
		e.sendReset(id, code)
	}
	e.leaveWhenDone()
}
