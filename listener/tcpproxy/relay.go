package tcpproxy

import (
	"errors"

	"golang.org/x/sys/unix"

	"sluice/internal/worker"
	"sluice/listener/downstream"
)

// relay is one downstream connection and its upstream one.
type relay struct {
	p        *Proxy
	d        *downstream.Connection
	down, up side
	upstream Upstream
	request  Request
	cancel   func()
	idle     worker.Timer
	max      worker.Timer
	report   worker.Timer
	last     int64  // when something moved
	seen     uint64 // bytes moved at the last idle check
	over     bool   // the downstream connection is gone
	prev     *relay // in Live
	next     *relay
	rec      Record
}

// side is one of the two connections; it is that connection's Handler.
type side struct {
	r      *relay
	conn   *worker.Conn // nil: not there yet
	other  *side
	full   int    // reads in a row that filled the buffer
	stalls uint64 // of a splice, counted already
	isDown bool
	eof    bool
	closed bool
}

// spliceAfter is how many full reads in a row make a direction bulk.
const spliceAfter = 2

// OnData passes bytes to the other side. All are taken: what the kernel there
// refuses is kept as that side's output, which is bounded by pausing this one.
func (s *side) OnData(c *worker.Conn, b []byte) int {
	if s.isDown && s.r.d.Guard != nil && !s.r.guarded() {
		return len(b)
	}
	o := s.other.conn
	s.r.last = c.Worker().Now()
	o.WriteNow(b)
	if o.Pending() >= worker.HighWater {
		s.pause()
		s.full = 0
		return len(b)
	}
	if len(b) < worker.ReadSize {
		s.full = 0
		return len(b)
	}
	if s.full++; s.full >= spliceAfter && c.Splice(o) {
		s.full = 0
	}
	return len(b)
}

// pause stops reading until the other side has room.
func (s *side) pause() {
	*s.count(&s.r.rec.Paused, &s.r.rec.UpstreamPaused)++
	s.conn.PauseRead()
}

func (s *side) count(down, up *uint64) *uint64 {
	if s.isDown {
		return down
	}
	return up
}

// OnDrain lets the other side go on.
func (s *side) OnDrain(*worker.Conn) {
	if o := s.other.conn; o != nil {
		s.r.last = s.r.p.w.Now()
		if o.Paused() {
			*s.other.count(&s.r.rec.Resumed, &s.r.rec.UpstreamResumed)++
		}
		o.ResumeRead()
	}
}

// OnEOF passes a half-close on; after the second one the relay is over.
func (s *side) OnEOF(*worker.Conn) {
	s.eof = true
	s.r.last = s.r.p.w.Now()
	if s.other.conn == nil || s.isDown && !s.r.guarded() {
		return
	}
	if s.other.eof {
		s.r.closeBoth()
		return
	}
	s.other.conn.ShutdownWrite()
}

// guarded asks the filters that judge by the first bytes; refused, both sides go.
func (r *relay) guarded() bool {
	if r.d.Guarded() {
		return true
	}
	r.down.conn.Close()
	r.up.conn.Close()
	return false
}

// OnConnect is never called: Connect gives established connections.
func (s *side) OnConnect(*worker.Conn, error) {}

// OnClose ends the relay: the other side is closed as this one was.
func (s *side) OnClose(c *worker.Conn, err error) {
	if s.closed {
		return
	}
	s.closed = true
	r := s.r
	reset := errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
	s.note(err, reset)
	if o := s.other; o.conn != nil && !o.closed {
		if reset {
			o.conn.ResetWhenFlushed()
		} else {
			o.conn.SetLinger(0)
			o.conn.CloseWhenFlushed()
		}
	}
	if s.isDown {
		r.over = true
		if r.cancel != nil {
			r.cancel()
			r.cancel = nil
		}
		r.d.Gone()
	} else {
		r.release(r.upstream, err != nil || s.eof)
	}
	if r.down.closed && (r.up.conn == nil || r.up.closed) {
		r.finish()
	}
}

// note keeps how the connection ended; the side that ends first decides.
func (s *side) note(err error, reset bool) {
	rec := &s.r.rec
	if rec.DownstreamClose != "" {
		return
	}
	rec.DownstreamClose, rec.UpstreamEnds = "Normal", "Normal"
	switch {
	case reset && s.isDown:
		rec.DownstreamClose = "RemoteReset"
	case reset:
		rec.DownstreamClose, rec.UpstreamEnds = "LocalReset", "RemoteReset"
		rec.Flags = append(rec.Flags, "UR")
	case err != nil && !s.isDown:
		rec.TransportFailure = err.Error()
	}
}

func (s *side) splicing() bool { return s.conn != nil && s.conn.Splicing() }

func (r *relay) moved() uint64 {
	n := r.down.conn.BytesRead() + r.down.conn.BytesWritten()
	if r.up.conn != nil {
		n += r.up.conn.BytesRead() + r.up.conn.BytesWritten()
	}
	return n
}

// closeBoth sends what is pending and closes.
func (r *relay) closeBoth() {
	for _, s := range [...]*side{&r.down, &r.up} {
		if s.conn != nil && !s.closed {
			s.conn.SetLinger(0)
			s.conn.CloseWhenFlushed()
		}
	}
}

// release tells upstream that its connection isn't used any more.
func (r *relay) release(u Upstream, remote bool) {
	if u.Closed != nil {
		u.Closed(remote)
	}
}

// finish reports the connection, once both sides are gone.
func (r *relay) finish() {
	w := r.p.w
	w.Stop(&r.idle)
	w.Stop(&r.max)
	w.Stop(&r.report)
	r.rec.End = w.Now()
	r.measure()
	r.p.live.remove(r)
	if r.p.opts.Log != nil {
		r.p.opts.Log(&r.rec)
	}
}

// measure brings the record's byte counts up to date.
func (r *relay) measure() {
	r.rec.Received, r.rec.Sent = r.down.conn.BytesRead(), r.down.conn.BytesWritten()
	r.stalls(&r.down, &r.rec.Paused, &r.rec.Resumed)
	if u := r.up.conn; u != nil {
		r.rec.UpstreamReceived, r.rec.UpstreamSent = u.BytesRead(), u.BytesWritten()
		r.stalls(&r.up, &r.rec.UpstreamPaused, &r.rec.UpstreamResumed)
	}
}

// stalls counts the pauses of a splice, which go by without a call.
func (r *relay) stalls(s *side, paused, resumed *uint64) {
	n := s.conn.Stalls()
	*paused += n - s.stalls
	*resumed += n - s.stalls
	s.stalls = n
}

// Live is the list of a worker's relays, for whoever counts their bytes before
// they end: spliced bytes pass no code that could. It is used on the worker only.
type Live struct{ first *relay }

func (l *Live) add(r *relay) {
	if r.next = l.first; r.next != nil {
		r.next.prev = r
	}
	l.first = r
}

func (l *Live) remove(r *relay) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// Each calls f with every relay's record as of now.
func (l *Live) Each(f func(*Record)) {
	for r := l.first; r != nil; r = r.next {
		r.measure()
		f(&r.rec)
	}
}
