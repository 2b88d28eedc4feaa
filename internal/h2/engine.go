package h2

import (
	"encoding/binary"

	"sluice/internal/h2/hpack"
	"sluice/internal/httpmsg"
)

// highOutput is how many bytes may wait for the kernel before DATA stays in its
// stream's own queue.
const highOutput = 128 << 10

// engine is what both roles share: the state of one connection.
type engine struct {
	io      httpmsg.Conn
	opts    *Options
	pool    *Pool
	handler httpmsg.ServerHandler // server only
	dec     hpack.Decoder
	enc     hpack.Encoder

	// OnPingAck, when set, is called with the opaque number of each PING ACK.
	OnPingAck func(opaque uint64)

	table  []*stream // by id, chained
	active int
	first  *stream // streams that have DATA and window, in turn
	last   *stream

	sendWin  int32 // of the connection
	recvWin  int32
	peerInit int32 // window of new streams towards the peer
	maxFrame int32 // the peer's
	maxOpen  uint32
	lastID   uint32 // highest stream the peer opened, or we did
	sentID   uint32 // client: highest stream whose HEADERS went out
	goneLast uint32 // last id of a GOAWAY, sent or received
	block    block  // header block being received
	out      outCount
	in       inCount

	client   bool
	prefaced bool // the preface came
	settled  bool // the first SETTINGS came
	acked    bool // our SETTINGS were acknowledged
	extended bool // the peer takes extended CONNECT
	goneAway bool // GOAWAY received
	draining bool // first GOAWAY sent
	leaving  bool // last GOAWAY sent
	toldGone bool
	anyReset bool // we reset a stream or ended one early: late frames are no error
	dead     bool
	yielded  bool
}

// outCount bounds frames that the kernel has not taken.
type outCount struct {
	written      uint64 // bytes ever put
	all, control generations
	data         uint64 // DATA frames ever sent
}

// inCount counts what a peer may only do so often.
type inCount struct {
	opened, priority, updates uint64
	empty                     uint32
	requests, earlyResets     uint32
}

func (e *engine) init(conn httpmsg.Conn, opts *Options, client bool) {
	if !opts.complete {
		opts = opts.WithDefaults(client)
	}
	e.io, e.opts, e.pool, e.client = conn, opts, opts.Pool, client
	opts.Counters.Used = true
	e.dec, e.enc = hpack.NewDecoder(opts.HeaderTableSize), hpack.NewEncoder(4096)
	e.sendWin, e.peerInit, e.maxFrame, e.maxOpen = 65535, 65535, maxFrame, 100
	e.recvWin, e.goneLast = int32(opts.InitialConnWindow), maxWindow
	e.hello()
}

// hello sends what each side begins with, in Envoy's order.
func (e *engine) hello() {
	b := e.io.Grab()
	if e.client {
		b = append(b, preface...)
	}
	at := len(b)
	b = appendFrame(b, frameSettings, 0, 0, 0)
	if e.client {
		b = appendSetting(b, settingPush, 0)
	}
	b = appendSetting(b, settingTableSize, e.opts.HeaderTableSize)
	connect := uint32(0)
	if e.opts.AllowConnect {
		connect = 1
	}
	b = appendSetting(b, settingConnectProt, connect)
	b = appendSetting(b, settingMaxStreams, e.opts.MaxConcurrentStreams)
	b = appendSetting(b, settingWindow, e.opts.InitialStreamWindow)
	patchLength(b, at)
	if w := e.opts.InitialConnWindow; w > 65535 {
		b = appendFrame(b, frameWindow, 0, 0, 4)
		b = binary.BigEndian.AppendUint32(b, w-65535)
	}
	e.io.Put(b)
}

// Feed takes received bytes, and says how many; the rest, part of a frame, must
// come again in front of later bytes. An error means that the engine has told
// all receivers and closes the connection.
func (e *engine) Feed(b []byte) (consumed int, err error) {
	if e.dead {
		return len(b), nil
	}
	e.yielded = false
	n, f := e.feed(b)
	if f == nil {
		f = e.outboundFault()
	}
	if f != nil {
		e.fail(f)
		return len(b), f
	}
	if e.dead {
		return len(b), nil
	}
	e.leaveWhenDone()
	return n, nil
}

// Yield ends the Feed that is under way after this frame. Who calls it feeds the
// rest later: a peer may put a thousand requests into one read.
func (e *engine) Yield() { e.yielded = true }

func (e *engine) feed(b []byte) (n int, f *fault) {
	if !e.prefaced && !e.client {
		k := min(len(b), len(preface))
		if string(b[:k]) != preface[:k] {
			return 0, faultPreface
		}
		if k < len(preface) {
			return 0, nil
		}
		n, e.prefaced = k, true
	}
	for len(b)-n >= frameHead && !e.dead && !e.yielded {
		h := b[n : n+frameHead]
		size := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if size > maxFrame {
			return n, faultFrameSize
		}
		if len(b)-n-frameHead < size {
			break
		}
		id := binary.BigEndian.Uint32(h[5:]) & maxWindow
		if f := e.frame(h[3], h[4], id, b[n+frameHead:n+frameHead+size]); f != nil {
			return n, f
		}
		if f := e.earlyFault(); f != nil {
			return n, f
		}
		n += frameHead + size
	}
	return n, nil
}

func (e *engine) frame(typ, flags byte, id uint32, p []byte) *fault {
	if e.block.id != 0 && (typ != frameContinuation || id != e.block.id) {
		return faultContinue
	}
	if !e.settled {
		if typ != frameSettings || flags&flagAck != 0 {
			return faultPreface
		}
		e.settled = true
	}
	switch typ {
	case frameData:
		return e.data(flags, id, p)
	case frameHeaders:
		return e.headers(flags, id, p)
	case frameContinuation:
		return e.continuation(flags, id, p)
	case framePriority:
		return e.priority(p)
	case frameReset:
		return e.reset(id, p)
	case frameSettings:
		return e.settings(flags, id, p)
	case framePush:
		return faultPush
	case framePing:
		return e.ping(flags, id, p)
	case frameGoAway:
		return e.goAway(id, p)
	case frameWindow:
		return e.windowUpdate(id, p)
	}
	return nil // RFC 9113 section 4.1: unknown types are ignored
}

// empties counts frames that carry nothing, which cost us more than the sender.
func (e *engine) empties(empty bool) *fault {
	if !empty {
		e.in.empty = 0
		return nil
	}
	if e.in.empty++; e.in.empty > e.opts.MaxConsecutiveEmpty {
		e.opts.Counters.InboundEmptyFramesFlood++
		return faultEmpty
	}
	return nil
}

// idle reports whether a stream id was never used; even ones never are, since
// there are no pushes.
func (e *engine) idle(id uint32) bool { return id%2 == 0 || id > e.lastID }

func (e *engine) data(flags byte, id uint32, p []byte) *fault {
	if id == 0 || e.idle(id) {
		return faultStreamID
	}
	size := int32(len(p))
	p, f := unpad(flags, p)
	if f != nil {
		return f
	}
	end := flags&flagEndStream != 0
	if f := e.empties(len(p) == 0 && !end); f != nil {
		return f
	}
	if e.recvWin -= size; e.recvWin < 0 {
		return faultFlow
	}
	e.replenish()
	st := e.find(id)
	if st == nil {
		return e.late()
	}
	if st.inDone || !st.headIn {
		e.abort(st, CodeClosed, httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Detail: detailReset})
		return nil
	}
	if st.recvWin -= size; st.recvWin < 0 {
		e.abort(st, CodeFlowControl, httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Detail: detailReset})
		return nil
	}
	if !st.countData(len(p), end) {
		e.abort(st, CodeProtocol, httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Detail: detailReset})
		return nil
	}
	st.credit(size)
	if len(p) > 0 || end {
		e.deliver(st, p, end)
	}
	return nil
}

// late is a frame for a stream that is over. It is no error when it can have
// crossed a frame of ours that ended the stream.
func (e *engine) late() *fault {
	if e.anyReset || e.leaving {
		return nil
	}
	return faultClosed
}

// deliver passes DATA on; the end of the stream is noted before the receiver
// hears of it.
func (e *engine) deliver(st *stream, p []byte, end bool) {
	rcv := st.rcv
	if end {
		st.inDone = true
		if st.outDone {
			e.release(st)
		}
	}
	rcv.OnData(p, end)
}

// replenish gives the connection window back at once: what bounds memory are
// the windows of streams, and one that stalls must not stop the others.
func (e *engine) replenish() {
	if used := int32(e.opts.InitialConnWindow) - e.recvWin; used >= int32(e.opts.InitialConnWindow)/4 {
		e.recvWin += used
		e.sendUpdate(0, used)
	}
}

func (e *engine) priority(p []byte) *fault {
	if len(p) != 5 {
		return faultFrameSize
	}
	if e.in.priority++; e.in.priority > uint64(e.opts.MaxPriorityPerStream)*(1+e.in.opened) {
		e.opts.Counters.InboundPriorityFramesFlood++
		return faultPriority
	}
	return nil
}

func (e *engine) reset(id uint32, p []byte) *fault {
	if len(p) != 4 {
		return faultFrameSize
	}
	if id == 0 || e.idle(id) {
		return faultStreamID
	}
	st := e.find(id)
	if st == nil {
		return nil
	}
	e.opts.Counters.RxReset++
	code := binary.BigEndian.Uint32(p)
	r := httpmsg.ResetReason{Kind: httpmsg.ResetRemote, Code: code, Detail: detailReset, BeforeHead: !st.headIn}
	switch {
	case code == CodeRefused:
		r.Kind = httpmsg.ResetRefused
	case code == CodeProtocol && e.client:
		r.Kind = httpmsg.ResetProtocolError
	case code == CodeConnect && e.client:
		r.Kind = httpmsg.ResetConnectError
	}
	e.countEarly(st)
	e.drop(st, r)
	return nil
}

// countEarly counts a request that is reset before its answer, by the client or
// for what the client did: it makes work upstream either way, so a client that
// has us send the resets gains nothing (CVE-2025-8671).
func (e *engine) countEarly(st *stream) {
	if !e.client && !st.headOut {
		e.in.earlyResets++
	}
}

// earlyFault checks the share of such requests.
func (e *engine) earlyFault() *fault {
	if e.in.earlyResets <= e.in.requests/2 || e.in.requests <= e.opts.MaxEarlyResets || e.dead {
		return nil
	}
	e.opts.Counters.PrematureReset++
	return faultResets
}

func (e *engine) ping(flags byte, id uint32, p []byte) *fault {
	if len(p) != 8 {
		return faultFrameSize
	}
	if id != 0 {
		return faultStreamID
	}
	if flags&flagAck != 0 {
		if e.OnPingAck != nil {
			e.OnPingAck(binary.BigEndian.Uint64(p))
		}
		return nil
	}
	b := appendFrame(e.io.Grab(), framePing, flagAck, 0, 8)
	e.put(append(b, p...), frameHead+8, true)
	return e.outboundFault()
}

func (e *engine) goAway(id uint32, p []byte) *fault {
	if len(p) < 8 {
		return faultFrameSize
	}
	if id != 0 {
		return faultStreamID
	}
	if !e.client {
		return nil // a client's GOAWAY is about pushes, which there are none of
	}
	e.goneAway = true
	last := binary.BigEndian.Uint32(p) & maxWindow
	if last > e.goneLast {
		return faultStreamID
	}
	e.goneLast = last
	e.refuseAbove(last)
	return nil
}

// refuseAbove resets the streams that the peer says it never looked at.
func (e *engine) refuseAbove(last uint32) {
	for i := range e.table {
		for st := e.table[i]; st != nil; {
			next := st.next
			if st.id > last {
				e.drop(st, httpmsg.ResetReason{Kind: httpmsg.ResetRefused, Code: CodeRefused, BeforeHead: !st.headIn})
				if e.dead {
					return
				}
				next = e.table[i] // the receiver may have changed the chain
			}
			st = next
		}
	}
}
