package listener

import (
	"net/netip"
	"slices"
	"time"

	"sluice/internal/config"
	"sluice/internal/tlsconn"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/filter/connectionrate"
	"sluice/listener/filter/metadataexchange"
	"sluice/listener/filter/networkrbac"
	"sluice/listener/filter/tokenbucket"
	"sluice/listener/tcpproxy"
)

// onWorker is one worker's listeners, by address too: that is where a virtual
// listener finds the listener of an original destination.
type onWorker struct {
	all    *Listeners
	w      *worker.Worker
	byName map[string]*active
	byAddr map[netip.AddrPort]*active
	live   int // accepted and not gone
}

func newOnWorker(l *Listeners, w *worker.Worker) *onWorker {
	return &onWorker{all: l, w: w, byName: map[string]*active{}, byAddr: map[netip.AddrPort]*active{}}
}

// active is one listener on one worker.
type active struct {
	all     *Listeners
	w       *worker.Worker
	home    *onWorker
	config  *config.Listener
	bound   []netip.AddrPort
	shared  *shared
	matcher *matcher
	chains  []*chain // the default one included
	deflt   *chain
	named   map[string]*chain // by the names a filter_chain_matcher chooses
	sockets []*acceptor
	count   *Counters
	limit   int64 // of connections, over all workers; 0: none
}

// acceptor is a listening socket; to changes when the listener does.
type acceptor struct {
	to    *active
	addr  netip.AddrPort // invalid: a Unix socket
	fixed bool           // addr is what getsockname of a connection gives
	lis   *worker.Listening
}

// chain is a filter chain on one worker. Its identity outlives changes of the
// listener that leave it alone.
type chain struct {
	config   *config.FilterChain
	tls      *tlsconn.ServerContext // nil: raw
	rates    map[*config.ConnectionRate]*tokenbucket.Bucket
	terminal downstream.Terminal // made by the first connection
	filters  []downstream.Filter
	first    *conn // live connections
	open     int
	draining *downstream.Drain // nil: it doesn't
	ended    bool              // the drain time is over
	timer    worker.Timer
	drainFor time.Duration // set when draining has an end
}

// newActive prepares a listener for a worker, on the control goroutine. Chains
// that before has unchanged are taken over.
func newActive(l *Listeners, w *worker.Worker, p *placed, before *active, sameFrame bool) *active {
	a := &active{all: l, w: w, config: p.config, bound: p.bound, shared: p.shared, count: &Counters{}, limit: int64(p.config.MaxConnections)}
	if f := l.opts.Limit; f != nil && a.limit == 0 {
		a.limit = int64(f(p.config.Name))
	}
	old := map[uint64]*chain{}
	if before != nil {
		a.count = before.count
		if sameFrame {
			for _, c := range before.chains {
				old[c.config.Hash] = c
			}
		}
	}
	take := func(f *config.FilterChain) *chain {
		if c := old[f.Hash]; c != nil && f.Hash != 0 && c.config.Name == f.Name {
			return c
		}
		return &chain{config: f, tls: p.tls[f], rates: p.rates}
	}
	for _, f := range p.config.Chains {
		a.chains = append(a.chains, take(f))
	}
	if a.matcher = compile(a.chains); p.config.Matcher != nil {
		a.named = map[string]*chain{}
		for _, c := range a.chains {
			a.named[c.config.Name] = c
		}
	}
	if f := p.config.DefaultChain; f != nil {
		a.deflt = take(f)
		a.chains = append(a.chains, a.deflt)
	}
	return a
}

// install puts a in before's place (nil: none) and starts its sockets.
func (o *onWorker) install(a, before *active, fds []int, keepSockets bool) {
	a.home = o
	if before != nil {
		o.forget(before)
		if keepSockets {
			a.sockets = before.sockets
			before.sockets = nil
		}
		for _, s := range a.sockets {
			s.to = a
		}
		before.closeSockets()
		o.drainMissing(before, a)
	}
	o.byName[a.config.Name] = a
	for i, addr := range a.config.Addresses() {
		at := addr.IP
		if i < len(a.bound) {
			at = a.bound[i]
		}
		if at.IsValid() {
			o.byAddr[at] = a
		}
		if i < len(fds) {
			o.listen(a, fds[i], at)
		}
	}
}

func (o *onWorker) listen(a *active, fd int, at netip.AddrPort) {
	s := &acceptor{to: a, addr: at}
	s.fixed = at.IsValid() && !at.Addr().IsUnspecified() && !a.config.Transparent
	lis, err := o.w.Listen(fd, func(fd int, peer netip.AddrPort) { s.to.accept(s, fd, peer) })
	if err != nil {
		o.all.opts.Log.Error("listener can't accept", "listener", a.config.Name, "err", err)
		return
	}
	s.lis = lis
	a.sockets = append(a.sockets, s)
}

func (o *onWorker) forget(a *active) {
	if o.byName[a.config.Name] == a {
		delete(o.byName, a.config.Name)
	}
	for at, x := range o.byAddr {
		if x == a {
			delete(o.byAddr, at)
		}
	}
}

// remove takes a listener away: no new connections, the others drain.
func (o *onWorker) remove(a *active) {
	o.forget(a)
	a.closeSockets()
	o.drainMissing(a, nil)
}

func (a *active) closeSockets() {
	for _, s := range a.sockets {
		s.lis.Close()
	}
	a.sockets = nil
}

// drainMissing drains the chains of before that after doesn't have.
func (o *onWorker) drainMissing(before, after *active) {
	kept := map[*chain]bool{}
	if after != nil {
		for _, c := range after.chains {
			kept[c] = true
		}
	}
	for _, c := range before.chains {
		if !kept[c] {
			c.drain(o.w, o.all.drainOf(o.w), o.all.opts.DrainTime)
		}
	}
}

// destination finds the listener of an original destination: that of the very
// address, else the wildcard of its port.
func (o *onWorker) destination(dst netip.AddrPort) *active {
	if a := o.byAddr[dst]; a != nil {
		return a
	}
	if dst.Addr().Is4() {
		if a := o.byAddr[netip.AddrPortFrom(netip.IPv4Unspecified(), dst.Port())]; a != nil {
			return a
		}
	}
	return o.byAddr[netip.AddrPortFrom(netip.IPv6Unspecified(), dst.Port())]
}

// counted counts a network filter's own statistic.
func (a *active) counted(stat string, by uint64) {
	if f := a.all.opts.Count; f != nil {
		f(a.w, stat, by)
	}
}

// asks says that a service is asked before there are bytes.
func (c *chain) asks() bool {
	return slices.ContainsFunc(c.config.Filters, func(f config.NetworkFilter) bool { _, ok := f.(*config.NetworkExtAuthz); return ok })
}

// build makes the chain's filters and terminal, at its first connection.
func (c *chain) build(a *active) {
	o := &a.all.opts
	for _, f := range c.config.Filters {
		switch f := f.(type) {
		case *config.TCPProxy:
			c.terminal = tcpproxy.New(a.w, f, o.TCP)
		case *config.EchoFilter:
			c.terminal = echoTerminal{}
		case *config.DirectResponse:
			c.terminal = directTerminal{f.Body}
		case *config.HTTPConnectionManager:
			if o.HTTP != nil {
				c.terminal = o.HTTP(a.w, a.config, c.config, f)
			}
		case *config.NetworkRBAC:
			x := networkrbac.New(f.RBAC, func(stat string) { a.counted(stat, 1) })
			for _, stat := range x.Stats() {
				a.counted(stat, 0)
			}
			if c.asks() {
				c.filters = append(c.filters, x.Early())
			} else {
				c.filters = append(c.filters, x)
			}
		case *config.ConnectionRate:
			stat := "local_rate_limit." + f.StatPrefix + ".rate_limited"
			a.counted(stat, 0)
			if b := c.rates[f]; b != nil {
				c.filters = append(c.filters, connectionrate.New(b, func() { a.counted(stat, 1) }))
			}
		case *config.MetadataExchange:
			c.filters = append(c.filters, metadataexchange.New(f.Protocol, o.PeerFrame, o.PeerMetadata))
		case *config.SNICluster:
			c.filters = append(c.filters, sniCluster{})
		default:
			if o.Filter == nil {
				continue
			}
			if x := o.Filter(a.w, a.config, c.config, f); x != nil {
				c.filters = append(c.filters, x)
			}
		}
	}
	if c.terminal == nil {
		c.terminal = closeTerminal{}
	}
}
