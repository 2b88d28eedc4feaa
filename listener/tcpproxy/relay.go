package tcpproxy

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
)

// relay is one downstream connection and its upstream one. What only some have,
// or have for a while, is behind pointers: an idle connection costs its size.
type relay struct {
	p           *Proxy
	d           *downstream.Connection
	down, up    side
	wanted      *wanted // nil once there is an upstream connection
	idle        worker.Timer
	clocks      *clocks
	reports     *reports
	ending      *Ending
	prev, next  *relay // in Live
	last        int64  // when something moved
	connectedAt int64
	cluster     string
	host        *config.Endpoint
	tls         *telemetry.TLS
	peer        *Peer
	closed      func(remote bool)
	local       netip.AddrPort
	remote      *netip.AddrPort
	counted     Traffic
	seen        uint32 // bytes moved by then, modulo 2³²
	attempts    uint32
	over        bool // the downstream connection is gone
}

// clocks are what few filters ask for.
type clocks struct {
	max  worker.Timer // max_downstream_connection_duration
	logs worker.Timer // access_log_flush_interval
}

// side is one of the two connections.
type side struct {
	conn            *worker.Conn // nil: not there yet
	paused, resumed uint32       // how often reading was
	full            uint8        // reads in a row that filled the buffer
	eof             bool
	closing         bool // closes when its output is out
	closed          bool
}

// downHandler and upHandler are the relay as the handler of its two connections.
type (
	downHandler relay
	upHandler   relay
)

// spliceAfter is how many full reads in a row make a direction bulk.
const spliceAfter = 2

// OnData passes the client's bytes on.
func (h *downHandler) OnData(_ *worker.Conn, b []byte) int {
	r := (*relay)(h)
	if r.d.Guard == nil || r.guarded() {
		r.pass(&r.down, &r.up, b)
	}
	return len(b)
}

// OnData passes the upstream's bytes on.
func (h *upHandler) OnData(_ *worker.Conn, b []byte) int {
	(*relay)(h).pass(&h.up, &h.down, b)
	return len(b)
}

// pass writes to the other side. All bytes are taken: what the kernel there
// refuses is kept as that side's output, which is bounded by pausing this one.
func (r *relay) pass(from, to *side, b []byte) {
	to.conn.WriteNow(b)
	r.note()
	if to.conn.Pending() >= worker.HighWater {
		from.paused++
		from.conn.PauseRead()
		from.full = 0
		return
	}
	if len(b) < worker.ReadSize {
		from.full = 0
		return
	}
	if from.full++; from.full >= spliceAfter && from.conn.Splice(to.conn) {
		from.full = 0
	}
}

// OnDrain lets the upstream go on.
func (h *downHandler) OnDrain(*worker.Conn) { (*relay)(h).resume(&h.up) }

// OnDrain lets the client go on.
func (h *upHandler) OnDrain(*worker.Conn) { (*relay)(h).resume(&h.down) }

func (r *relay) resume(s *side) {
	if s.conn == nil {
		return
	}
	r.note()
	if s.conn.Paused() {
		s.resumed++
	}
	s.conn.ResumeRead()
}

// OnEOF passes the client's half-close on.
func (h *downHandler) OnEOF(*worker.Conn) {
	r := (*relay)(h)
	r.down.eof = true
	if r.up.conn != nil && r.guarded() {
		r.halfClose(&r.up)
	}
}

// OnEOF passes the upstream's half-close on.
func (h *upHandler) OnEOF(*worker.Conn) {
	h.up.eof = true
	(*relay)(h).halfClose(&h.down)
}

// halfClose ends writing to a side; after the second end the relay is over.
func (r *relay) halfClose(to *side) {
	r.note()
	if to.eof {
		r.closeBoth()
		return
	}
	to.conn.ShutdownWrite()
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

// OnConnect is never called: the connection was accepted.
func (h *downHandler) OnConnect(*worker.Conn, error) {}

// OnConnect is never called: Connect gives established connections.
func (h *upHandler) OnConnect(*worker.Conn, error) {}

// OnClose ends the relay.
func (h *downHandler) OnClose(_ *worker.Conn, err error) {
	r := (*relay)(h)
	if r.down.closed {
		return
	}
	if n := r.ended(); n.DownstreamClose == "" {
		n.DownstreamClose, n.UpstreamEnds = "Normal", "Normal"
		if isReset(err) {
			n.DownstreamClose = "RemoteReset"
		}
	}
	r.down.closed = true
	closeAs(&r.up, err)
	r.over = true
	if r.wanted != nil && r.wanted.cancel != nil {
		r.wanted.cancel()
		r.wanted.cancel = nil
	}
	r.d.Gone()
	r.finishIfOver()
}

// OnClose ends the relay.
func (h *upHandler) OnClose(_ *worker.Conn, err error) {
	r := (*relay)(h)
	if r.up.closed {
		return
	}
	if n := r.ended(); n.DownstreamClose == "" {
		n.DownstreamClose, n.UpstreamEnds = "Normal", "Normal"
		if isReset(err) {
			n.DownstreamClose, n.UpstreamEnds = "LocalReset", "RemoteReset"
			n.Flags = append(n.Flags, "UR")
		} else if err != nil {
			n.TransportFailure = err.Error()
		}
	}
	r.up.closed = true
	closeAs(&r.down, err)
	r.release(r.closed, err != nil || r.up.eof)
	r.finishIfOver()
}

func isReset(err error) bool {
	return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// closeAs closes a side as the other one was closed. Its peer may take its time, as
// long as the connection isn't idle, for the other one won't send that again.
func closeAs(s *side, err error) {
	if s.conn == nil || s.closed {
		return
	}
	s.closing = true
	s.conn.Patient()
	if isReset(err) {
		s.conn.ResetWhenFlushed()
		return
	}
	s.conn.SetLinger(0)
	s.conn.CloseWhenFlushed()
}

// ended gives the notes on the end; the side that ends first makes them.
func (r *relay) ended() *Ending {
	if r.ending == nil {
		r.ending = &Ending{}
	}
	return r.ending
}

// moved is how many bytes both sides read and wrote, modulo 2³².
func (r *relay) moved() uint32 { return uint32(r.down.moved() + r.up.moved()) }

func (s *side) moved() uint64 {
	if s.conn == nil {
		return 0
	}
	return s.conn.BytesRead() + s.conn.BytesWritten()
}

// closeBoth sends what is pending and closes.
func (r *relay) closeBoth() {
	closeAs(&r.down, nil)
	closeAs(&r.up, nil)
}

// cut ends both sides at the end of their time: what a peer doesn't take soon, or
// hasn't since the other side's end, is lost.
func (r *relay) cut() {
	for _, s := range [...]*side{&r.down, &r.up} {
		switch {
		case s.conn == nil || s.closed:
		case s.closing:
			s.conn.Abort()
		default:
			s.conn.SetLinger(0)
			s.conn.CloseWhenFlushed()
		}
	}
}

// BeginDrain implements downstream.Drainer: TCP has no word for it.
func (r *relay) BeginDrain() {}

// EndDrain implements downstream.Drainer.
func (r *relay) EndDrain() { r.cut() }

// release tells upstream that its connection isn't used any more.
func (r *relay) release(closed func(remote bool), remote bool) {
	if closed != nil {
		closed(remote)
	}
}

// finishIfOver reports the connection, once both sides are gone.
func (r *relay) finishIfOver() {
	if !r.down.closed || r.up.conn != nil && !r.up.closed {
		return
	}
	w := r.p.w
	w.Stop(&r.idle)
	if r.clocks != nil {
		w.Stop(&r.clocks.max)
		w.Stop(&r.clocks.logs)
	}
	if r.reports != nil {
		w.Stop(&r.reports.timer)
	}
	r.p.live.remove(r)
	r.log(AtEnd)
}
