// Package tcpproxy is the terminal that relays bytes between a downstream and
// an upstream connection: the only relay of the proxy. It copies through the
// worker's read buffer, and splices once a direction has filled a read twice.
// It chooses the cluster; which host serves it and how it is dialed is upstream's,
// reached through Connect. listener makes one Proxy per chain and worker.
package tcpproxy

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
)

// Request is what an upstream connection is wanted for.
type Request struct {
	Cluster  string
	Filter   *config.TCPProxy // HashSourceIP and the like
	Metadata config.Struct    // subset selection: the filter's, then the weighted cluster's
	Attempt  int              // from 1
}

// Upstream is an established upstream connection: its handshake, if any, is
// over. Host is nil if it is none of configuration (an original destination).
type Upstream struct {
	Conn    *worker.Conn
	Host    *config.Endpoint
	Remote  *netip.AddrPort // shared by the host's connections; nil: the socket knows
	Cluster string
	TLS     *telemetry.TLS // nil: plain
	Peer    *Peer          // nil: the connection has no metadata exchange
	// Closed is called once, when the connection is over; remote: by the upstream's
	// end, not ours. nil: nobody wants to know.
	Closed func(remote bool)
}

// Peer is what the upstream's istio.metadata_exchange tells: Metadata is nil until
// its frame came.
type Peer struct{ Metadata []byte }

// Connect opens an upstream connection for d. done is called once on d's
// worker, later than Connect returns, with an established connection or an
// error, unless cancel was called before. An error that is a *Failure says what
// Envoy would.
type Connect func(d *downstream.Connection, r *Request, done func(u Upstream, err error)) (cancel func())

// Failure is why there is no upstream connection.
type Failure struct {
	// Flag is Envoy's response flag: NC, UH, UF, UO. With UF another attempt is made if allowed.
	Flag    string
	Reason  string // %UPSTREAM_TRANSPORT_FAILURE_REASON%
	Host    *config.Endpoint
	Address netip.AddrPort
	Cluster string // "" if it isn't known
}

func (f *Failure) Error() string { return "connecting upstream: " + f.Flag + " " + f.Reason }

// Options of a Proxy.
type Options struct {
	Connect Connect
	// Log takes each finished connection's record, which is its to keep; nil: nobody.
	Log func(*Record)
	// Began is told of a connection at its start; nil: nobody.
	Began func(w *worker.Worker, f *config.TCPProxy)
	// Report is told of a connection when it is established and at each Interval
	// from then on. It says false while it has to be told again soon, for something
	// it waits for. Interval gives 0 for a connection that isn't reported.
	Report   func(*Record) bool
	Interval func(d *downstream.Connection) time.Duration
	// Live gives the list that a worker's relays are on while they last; nil: none.
	Live func(w *worker.Worker) *Live
}

// Proxy is the terminal of one chain on one worker.
type Proxy struct {
	w      *worker.Worker
	filter *config.TCPProxy
	opts   Options
	total  uint64 // of the weights
	live   *Live
}

// New makes the terminal for filter.
func New(w *worker.Worker, filter *config.TCPProxy, o Options) *Proxy {
	p := &Proxy{w: w, filter: filter, opts: o, live: &Live{}}
	if o.Live != nil {
		p.live = o.Live(w)
	}
	for i := range filter.Weighted {
		p.total += uint64(filter.Weighted[i].Weight)
	}
	return p
}

// wanted is an upstream connection under way.
type wanted struct {
	request Request
	cancel  func()
}

// Serve takes a connection over.
func (p *Proxy) Serve(d *downstream.Connection) {
	r := &relay{p: p, d: d, wanted: &wanted{request: Request{Filter: p.filter, Metadata: p.filter.MetadataMatch}}}
	r.down.conn = d.Conn
	if p.opts.Began != nil {
		p.opts.Began(p.w, p.filter)
	}
	p.live.add(r)
	d.Conn.PauseRead() // bytes wait in the socket until someone can take them
	d.Conn.SetHandler((*downHandler)(r))
	d.Drainer = r
	r.wanted.request.Cluster = p.cluster(d, &r.wanted.request)
	if p.filter.AccessLogOnStart {
		r.log(AtStart)
	}
	r.deadlines()
	r.connect()
}

// cluster chooses the cluster of one connection.
func (p *Proxy) cluster(d *downstream.Connection, r *Request) string {
	if c := d.Notes().Cluster; c != "" {
		return c
	}
	if p.total == 0 {
		return p.filter.Cluster
	}
	at := rand.Uint64N(p.total)
	for i := range p.filter.Weighted {
		w := &p.filter.Weighted[i]
		if at < uint64(w.Weight) {
			if w.MetadataMatch != nil {
				r.Metadata = w.MetadataMatch
			}
			return w.Name
		}
		at -= uint64(w.Weight)
	}
	return p.filter.Cluster
}

// connect makes one attempt.
func (r *relay) connect() {
	q := &r.wanted.request
	q.Attempt++
	r.attempts, r.cluster = uint32(q.Attempt), q.Cluster
	if r.p.opts.Connect == nil {
		r.p.w.Later(&worker.Deferred{Run: func() { r.connected(Upstream{}, &Failure{Flag: "NC"}) }})
		return
	}
	r.wanted.cancel = r.p.opts.Connect(r.d, q, r.connected)
}

// connected is the outcome of an attempt.
func (r *relay) connected(u Upstream, err error) {
	r.wanted.cancel = nil
	if r.over {
		if u.Conn != nil {
			u.Conn.Close()
			r.release(u.Closed, false)
		}
		return
	}
	if err != nil {
		r.failed(err)
		return
	}
	r.wanted = nil
	r.host, r.tls, r.peer, r.closed = u.Host, u.TLS, u.Peer, u.Closed
	if u.Cluster != "" {
		r.cluster = u.Cluster
	}
	r.connectedAt, r.local, r.remote = r.p.w.Now(), u.Conn.LocalAddr(), u.Remote
	if r.remote == nil {
		a := u.Conn.RemoteAddr()
		r.remote = &a
	}
	r.up.conn = u.Conn
	r.note()
	if d := r.down.conn; d.Layer() != nil || u.Conn.Layer() != nil {
		d.ReadBig()
		u.Conn.ReadBig()
	}
	u.Conn.SetHandler((*upHandler)(r))
	u.Conn.ResumeRead()
	r.down.conn.ResumeRead()
	if r.p.filter.AccessLogOnConnected {
		r.log(Connected)
	}
	r.report()
}

// reports has the connection reported while it lasts.
type reports struct {
	timer worker.Timer
	told  Progress
}

// askAgain is how soon a Report that had to wait is made again.
const askAgain = time.Second

// report begins to report the connection.
func (r *relay) report() {
	if r.p.opts.Interval == nil || r.p.opts.Report == nil {
		return
	}
	every := r.p.opts.Interval(r.d)
	if every <= 0 {
		return
	}
	r.reports = &reports{}
	r.reports.timer.Fire = func() {
		var rec Record
		r.fill(&rec)
		next := every
		if !r.p.opts.Report(&rec) {
			next = min(every, askAgain)
		}
		r.p.w.Start(&r.reports.timer, next)
	}
	r.reports.timer.Fire()
}

// failed tries again if that may help, else closes the client's connection.
func (r *relay) failed(err error) {
	var f *Failure
	if !errors.As(err, &f) {
		f = &Failure{Flag: "UF", Reason: err.Error(), Cluster: r.cluster}
	}
	if f.Flag == "UF" && int(r.attempts) < r.p.filter.MaxConnectAttempts {
		r.connect()
		return
	}
	if f.Flag != "UF" {
		r.attempts-- // nothing was attempted
	}
	r.cluster, r.host, r.remote = f.Cluster, f.Host, &f.Address
	n := r.ended()
	n.TransportFailure = f.Reason
	n.Flags = append(n.Flags, f.Flag)
	if f.Flag == "UF" {
		n.Flags = append(n.Flags, "URX")
	}
	r.down.conn.Close()
}

// deadlines starts the timers that the filter asks for.
func (r *relay) deadlines() {
	r.note()
	if d := r.p.filter.IdleTimeout; d > 0 {
		r.idle.Fire = r.checkIdle
		r.p.w.Start(&r.idle, d)
	}
	every, most := r.p.filter.FlushAccessLogInterval, r.p.filter.MaxConnectionDuration
	if every <= 0 && most <= 0 {
		return
	}
	r.clocks = &clocks{}
	if every > 0 {
		r.clocks.logs.Fire = func() {
			r.log(Periodic)
			r.p.w.Start(&r.clocks.logs, every)
		}
		r.p.w.Start(&r.clocks.logs, every)
	}
	if most > 0 {
		r.clocks.max.Fire = r.tooOld
		r.p.w.Start(&r.clocks.max, most)
	}
}

// tooOld is the end of max_downstream_connection_duration.
func (r *relay) tooOld() {
	if r.ending == nil {
		n := r.ended()
		n.MaxDuration = true
		n.Flags = append(n.Flags, "DT")
	}
	r.cut()
}

// note notes that something moved now, and how much had by now.
func (r *relay) note() { r.last, r.seen = r.p.w.Now(), r.moved() }

// checkIdle runs once an idle period at most: activity only notes the time. What
// moved since the last note, spliced or out of a buffer, moved without a call: when
// isn't known, and too late an end is better than one of a busy connection.
func (r *relay) checkIdle() {
	if r.moved() != r.seen {
		r.note()
	}
	idle := time.Duration(r.p.w.Now() - r.last)
	if limit := r.p.filter.IdleTimeout; idle < limit {
		r.p.w.Start(&r.idle, limit-idle)
		return
	}
	if r.ending == nil {
		r.ended().IdleTimeout = true
	}
	r.cut()
}
