// Package pool reuses a worker's upstream HTTP connections: HTTP/1 connections
// last in first out, HTTP/2 connections until their streams run out, and the
// queue of requests that wait for one. It chooses no host and retries nothing;
// upstream owns the pools, listener/httpproxy uses the streams.
//
// Everything here belongs to one worker's goroutine.
package pool

import (
	"slices"

	"net/netip"
	"time"

	"sluice/internal/config"
	"sluice/internal/h1"
	"sluice/internal/h2"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
)

// Cluster is what the pools of one cluster on one worker share.
type Cluster struct {
	Worker   *worker.Worker
	Config   *config.Cluster
	Breakers *[2]Breakers
	Stats    []uint64
	H1       *h1.Options
	H2       *h2.Options
	Secure   SecureFunc
	NextID   func() uint64 // connection ids
}

// SecureFunc makes a client handshake on a connected socket and calls done on
// the worker when it is over; the connection then carries plaintext.
type SecureFunc func(c *worker.Conn, t *config.UpstreamTLS, o SecureOptions, done func(*Session, error))

// SecureOptions are what a handshake needs besides its configuration. SNI and
// ALPN override the configured ones when set.
type SecureOptions struct {
	SNI     string
	ALPN    []string
	Timeout time.Duration
}

// Session is the outcome of a handshake.
type Session struct {
	ALPN string
	TLS  *telemetry.TLS
}

// Target is where a pool's connections go.
type Target struct {
	Addr netip.AddrPort
	Pipe string
	Name string // as logs show it
	Dial worker.DialOptions
	TLS  *config.UpstreamTLS // nil: plaintext
	SNI  string
}

// Protocol is what a pool speaks; Auto follows ALPN.
type Protocol uint8

// The protocols.
const (
	HTTP1 Protocol = iota
	HTTP2
	Auto
)

// Key tells the pools of one host apart.
type Key struct {
	Protocol   Protocol
	ALPN       string // joined override, "" for none
	Downstream uint64 // connection_pool_per_downstream_connection
	TLS        *config.UpstreamTLS
	SNI        string
}

// Kind says why no stream came.
type Kind uint8

// The kinds of failure.
const (
	Overflow Kind = iota // a circuit breaker
	ConnectFailure
	ConnectTimeout
	LocalConnectFailure
	PoolOverflow
)

// Failure is why no stream came; Reason is the transport's word.
type Failure struct {
	Kind   Kind
	Reason string
	Host   string
}

// User wants a stream and receives its response.
type User interface {
	httpmsg.Receiver
	// OnStream hands a stream over; nothing was sent on it yet. Lease.Release
	// must be called once, when the exchange is over.
	OnStream(s httpmsg.Stream, c *Conn)
	// OnNoStream ends the wait.
	OnNoStream(f Failure)
}

// Request is one wait for a stream; its owner embeds it.
type Request struct {
	User       User
	Priority   config.Priority
	next, prev *Request
	pool       *Pool
}

// Waiting reports whether the request is in a queue.
func (r *Request) Waiting() bool { return r.pool != nil }

// Pool is the connections to one host with one Key.
type Pool struct {
	Key     Key
	Target  Target
	ALPN    []string
	cluster *Cluster
	conns   []*Conn
	ready   []*Conn // with room for a stream; the last is the most recent

	first, last *Request
	waiting     int
	connecting  int // streams that connections under way will give
	draining    bool
	soon        *worker.Timer // when connections are opened that a turn had no time for; nil: there never were
	perHost     func() int    // connections of all pools of the host
	place       *Limit        // max_connection_pools, which the pool counts in; nil: in none
}

// New makes an empty pool. perHost counts the host's connections.
func New(c *Cluster, k Key, t Target, alpn []string, perHost func() int) *Pool {
	return &Pool{Key: k, Target: t, ALPN: alpn, cluster: c, perHost: perHost}
}

// Conns is the number of connections.
func (p *Pool) Conns() int { return len(p.conns) }

// Idle reports that the pool has neither connections nor waiting requests.
func (p *Pool) Idle() bool { return len(p.conns) == 0 && p.first == nil }

// Busy reports that a request has a stream or waits for one.
func (p *Pool) Busy() bool {
	return p.first != nil || slices.ContainsFunc(p.conns, func(c *Conn) bool { return c.streams > 0 })
}

// TakePlace counts the pool among those of a limit, LeavePlace no more.
func (p *Pool) TakePlace(l *Limit) {
	l.Inc()
	p.place = l
}

// LeavePlace is explained at TakePlace; it may be called again.
func (p *Pool) LeavePlace() {
	if p.place != nil {
		p.place.Dec()
		p.place = nil
	}
}

// Acquire gets r a stream: at once when a connection has room, else later. Its
// User is called in either case, once.
func (p *Pool) Acquire(r *Request) {
	for len(p.ready) > 0 {
		c := p.ready[len(p.ready)-1]
		if c.usable() {
			p.attach(c, r)
			return
		}
		p.discard(c)
	}
	b := &p.cluster.Breakers[r.Priority]
	if !b.Pending.Allow() {
		p.cluster.Stats[RqPendingOverflow]++
		r.User.OnNoStream(Failure{Kind: Overflow})
		return
	}
	b.Pending.Inc()
	p.push(r)
	p.cluster.Stats[RqPendingTotal]++
	p.grow(r.Priority)
}

// Cancel takes r out of the queue.
func (p *Request) Cancel() {
	if q := p.pool; q != nil {
		q.remove(p)
		q.cluster.Stats[RqCancelled]++
	}
}

func (p *Pool) push(r *Request) {
	r.pool, r.prev, r.next = p, p.last, nil
	if p.last != nil {
		p.last.next = r
	} else {
		p.first = r
	}
	p.last = r
	p.waiting++
	p.cluster.Stats[RqPendingActive]++
}

func (p *Pool) remove(r *Request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		p.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		p.last = r.prev
	}
	r.pool, r.next, r.prev = nil, nil, nil
	p.waiting--
	p.cluster.Stats[RqPendingActive]--
	p.cluster.Breakers[r.Priority].Pending.Dec()
}

// grow opens a connection when those under way don't suffice for the queue. A
// client's hundred streams are not as many connects in one turn.
func (p *Pool) grow(priority config.Priority) {
	if p.connecting >= p.waiting {
		return
	}
	if p.cluster.Worker.Late() {
		if p.soon == nil {
			p.soon = &worker.Timer{Fire: p.catchUp}
		}
		p.cluster.Worker.Start(p.soon, 0)
		return
	}
	b := &p.cluster.Breakers[priority]
	perHost := b.PerHost != 0 && b.PerHost != config.Unlimited && p.perHost() >= int(b.PerHost)
	if !b.Connections.Allow() || perHost {
		p.cluster.Stats[CxOverflow]++
		if len(p.conns) > 0 {
			return
		}
		// One connection is always allowed, else nothing could ever go there.
	}
	p.dial(priority)
}

// catchUp opens the connections that were put off.
func (p *Pool) catchUp() {
	for p.connecting < p.waiting {
		n := len(p.conns)
		if p.grow(p.first.Priority); len(p.conns) == n {
			return // put off again, or not allowed
		}
	}
}

// attach opens a stream for r, which is in no queue.
func (p *Pool) attach(c *Conn, r *Request) {
	b := &p.cluster.Breakers[r.Priority]
	if !b.Requests.Allow() {
		p.cluster.Stats[RqActiveOverflow]++
		r.User.OnNoStream(Failure{Kind: Overflow})
		return
	}
	b.Requests.Inc()
	p.cluster.Stats[RqTotal]++
	p.cluster.Stats[RqActive]++
	c.take(r.Priority)
	s := c.engine.Open(r.User)
	r.User.OnStream(s, c)
}

// serve gives waiting requests the room there is.
func (p *Pool) serve() {
	for p.first != nil && len(p.ready) > 0 {
		c := p.ready[len(p.ready)-1]
		if !c.usable() {
			p.discard(c)
			continue
		}
		r := p.first
		p.remove(r)
		p.attach(c, r)
	}
}

// replace opens a connection for the queue after one was lost.
func (p *Pool) replace() {
	if p.serve(); p.first != nil {
		p.grow(p.first.Priority)
	}
}

// fail ends the wait of everybody in the queue.
func (p *Pool) fail(f Failure) {
	// A user may queue again at once: only those who wait now are told.
	for n := p.waiting; n > 0 && p.first != nil; n-- {
		r := p.first
		p.remove(r)
		p.cluster.Stats[RqPendingFailureEject]++
		r.User.OnNoStream(f)
	}
}

// Drain closes idle connections, and the others when their streams end.
func (p *Pool) Drain() {
	p.draining = true
	p.CloseIdle()
}

// CloseIdle retires every connection: those without streams close now.
func (p *Pool) CloseIdle() {
	for i := len(p.conns) - 1; i >= 0; i-- {
		if c := p.conns[i]; c.state == up {
			c.retire()
		}
	}
}

// discard takes a connection that has no room off the ready list, for good
// unless it is only out of streams.
func (p *Pool) discard(c *Conn) {
	if c.full() {
		p.notReady(c)
		return
	}
	c.retire()
}

func (p *Pool) makeReady(c *Conn) {
	if c.inReady {
		return
	}
	c.inReady = true
	p.ready = append(p.ready, c)
}

func (p *Pool) notReady(c *Conn) {
	if !c.inReady {
		return
	}
	c.inReady = false
	p.ready = cut(p.ready, c)
}

// cut removes c, which is usually near the end.
func cut(list []*Conn, c *Conn) []*Conn {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == c {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			return list[:len(list)-1]
		}
	}
	return list
}
