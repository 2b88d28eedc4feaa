package upstream

import (
	"errors"
	"time"

	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/upstream/pool"
)

// Stream is an established upstream TCP connection; a handshake is over. Close
// must be called once when it is given up, whatever ended it.
type Stream struct {
	Conn    *worker.Conn
	Host    *Host
	Session *pool.Session // of the handshake; nil: plain
	cluster *Cluster
	closed  bool
}

// Close is Ended by our side.
func (s *Stream) Close() { s.Ended(false) }

// TLS is what the handshake told; nil: plain.
func (s *Stream) TLS() *telemetry.TLS {
	if s.Session == nil {
		return nil
	}
	return s.Session.TLS
}

// Ended takes the connection out of the books; remote: the upstream ended it.
func (s *Stream) Ended(remote bool) {
	if s.closed {
		return
	}
	s.closed = true
	s.cluster.release(s.Host, remote)
	st := s.cluster.Stats
	st[pool.RqActive]-- // Envoy counts a TCP client's use of a connection as a request
	st[pool.CxDestroyActive]++
	if remote {
		st[pool.CxDestroyRemoteActive]++
	} else {
		st[pool.CxDestroyLocalActive]++
	}
}

// Refusal is why there is no connection.
type Refusal struct {
	Flag   telemetry.Flag
	Reason string
	Host   *Host // nil when none was chosen
	late   bool  // the connect timeout
}

func (r *Refusal) Error() string { return "connecting upstream: " + r.Flag.String() + " " + r.Reason }

// dialing is a TCP connection under way: the worker's handler of its socket.
type dialing struct {
	c     *Cluster
	h     *Host
	from  *From
	w     *worker.Conn
	timer worker.Timer
	done  func(*Stream, error)
	over  bool
}

// Connect opens a connection for a TCP client. done is called once on the
// worker, later than Connect returns, unless cancel was called before.
func (c *Cluster) Connect(q *Query, done func(*Stream, error)) (cancel func()) {
	d := &dialing{c: c, from: q.From, done: done}
	h := c.Pick(q)
	if h == nil {
		d.later(&Refusal{Flag: telemetry.UH})
		return d.cancel
	}
	b := c.Breakers(0)
	if !b.Connections.Allow() {
		c.Stats[pool.CxOverflow]++
		d.later(&Refusal{Flag: telemetry.UO})
		return d.cancel
	}
	d.h = h
	b.Connections.Inc()
	c.Stats[pool.CxTotal]++
	c.Stats[pool.CxActive]++
	h.Active++
	d.timer.Fire = d.late
	c.local.worker.Start(&d.timer, connectTimeout(c.Config))
	d.w = c.local.worker.Dial(h.Addr, h.state.pipe, h.dialOptions(), d)
	return d.cancel
}

func (c *Cluster) release(h *Host, remote bool) {
	c.Breakers(0).Connections.Dec()
	c.Stats[pool.CxActive]--
	c.Stats[pool.CxDestroy]++
	if remote {
		c.Stats[pool.CxDestroyRemote]++
	} else {
		c.Stats[pool.CxDestroyLocal]++
	}
	h.Active--
}

// later reports a refusal that needed no socket.
func (d *dialing) later(r *Refusal) {
	d.c.local.worker.Later(&worker.Deferred{Run: func() { d.fail(r) }})
}

func (d *dialing) fail(err error) {
	if d.over {
		return
	}
	d.over = true
	d.c.local.worker.Stop(&d.timer)
	if d.h != nil {
		var r *Refusal
		d.c.release(d.h, errors.As(err, &r) && !r.late)
	}
	d.done(nil, err)
}

func (d *dialing) cancel() {
	if d.over {
		return
	}
	d.over = true
	d.c.local.worker.Stop(&d.timer)
	if d.h != nil {
		d.c.release(d.h, false)
	}
	if d.w != nil {
		d.w.Close()
	}
}

func (d *dialing) late() {
	st := d.c.Stats
	st[pool.CxConnectFail]++
	st[pool.CxConnectTimeout]++
	st[pool.RqPendingFailureEject]++
	d.h.Report(LocalTimeout)
	w := d.w
	d.fail(&Refusal{Flag: telemetry.UF, Host: d.h, late: true})
	w.Close()
}

// OnConnect implements worker.Handler.
func (d *dialing) OnConnect(w *worker.Conn, err error) {
	if d.over {
		return
	}
	if err != nil {
		d.refused(pool.ConnectReason(err))
		return
	}
	t, header := d.h.transport()
	if header != nil && d.from != nil {
		w.Write(appendProxy(nil, header, d.from))
	}
	if t == nil {
		d.ready(nil)
		return
	}
	o := pool.SecureOptions{Timeout: time.Duration(0)}
	if t.AutoHostSNI && d.h.Hostname != "" {
		o.SNI = d.h.Hostname
	}
	d.c.pools.Secure(w, t, o, func(s *pool.Session, err error) {
		switch {
		case d.over:
		case err != nil:
			d.refused(err.Error())
		default:
			d.ready(s)
		}
	})
}

func (d *dialing) refused(reason string) {
	d.c.Stats[pool.CxConnectFail]++
	d.c.Stats[pool.RqPendingFailureEject]++
	d.h.Report(LocalFailure)
	d.fail(&Refusal{Flag: telemetry.UF, Reason: reason, Host: d.h})
}

// ready hands the connection over; its new owner sets the handler.
func (d *dialing) ready(s *pool.Session) {
	d.over = true
	d.c.local.worker.Stop(&d.timer)
	d.h.Report(Connected)
	d.h.Report(RequestDone)
	d.w.PauseRead()
	d.c.Stats[pool.RqTotal]++
	d.c.Stats[pool.RqActive]++
	d.done(&Stream{Conn: d.w, Host: d.h, Session: s, cluster: d.c}, nil)
}

// OnData implements worker.Handler: bytes that came before the hand-over wait.
func (d *dialing) OnData(*worker.Conn, []byte) int { return 0 }

// OnEOF implements worker.Handler; the new owner is told again.
func (d *dialing) OnEOF(*worker.Conn) {}

// OnDrain implements worker.Handler.
func (d *dialing) OnDrain(*worker.Conn) {}

// OnClose implements worker.Handler: the peer left during the handshake.
func (d *dialing) OnClose(_ *worker.Conn, err error) {
	if err == nil {
		err = errors.New("connection closed")
	}
	if !d.over {
		d.refused(err.Error())
	}
}

// Refuse calls f later in the turn, unless cancel is called before: the shape
// of a Connect that fails without a cluster.
func (l *Local) Refuse(f func()) (cancel func()) {
	off := false
	l.worker.Later(&worker.Deferred{Run: func() {
		if !off {
			f()
		}
	}})
	return func() { off = true }
}
