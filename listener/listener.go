// Package listener goes from a socket to a chosen chain: it binds the listeners
// of a snapshot on every worker, accepts, restores the original destination,
// looks at the first bytes, chooses the filter chain, has TLS shaken, asks the
// network filters and hands the connection to the chain's terminal. What the
// terminals do is theirs (tcpproxy, httpproxy). serve.go is a connection's life.
//
// Apply, Drain and Close run on the control goroutine; everything else on the
// workers. What the two share is immutable or posted.
package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/config"
	"sluice/internal/tlsconn"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/filter/tokenbucket"
	"sluice/listener/tcpproxy"
)

// Options of Listeners. Nil functions mean the feature is off.
type Options struct {
	Workers []*worker.Worker
	Log     *slog.Logger
	// OriginalDst asks the kernel where a redirected connection meant to go.
	OriginalDst func(fd int) (netip.AddrPort, error)
	// HTTP makes the terminal of an HTTP chain, once per chain and worker, on the worker.
	HTTP func(w *worker.Worker, l *config.Listener, c *config.FilterChain, m *config.HTTPConnectionManager) downstream.Terminal
	// Filter makes a network filter, once per chain and worker, on the worker. nil: the filter does nothing.
	Filter func(w *worker.Worker, l *config.Listener, c *config.FilterChain, f config.NetworkFilter) downstream.Filter
	TCP    tcpproxy.Options
	// Count is given the name of each statistic of a network filter that goes up,
	// on the worker.
	// It makes known those that start with 0.
	Count func(w *worker.Worker, stat string, by uint64)
	// Limit gives the runtime limit of a listener's connections, 0: none; nil: no runtime.
	Limit func(name string) int
	// PeerFrame is what istio.metadata_exchange sends on TCP (metadataexchange.Frame);
	// nil: nothing. PeerMetadata takes what the peer sent: the protobuf Any.
	PeerFrame    []byte
	PeerMetadata func(c *downstream.Connection, msg []byte)
	// Handshakes runs TLS; Secrets finds SDS secrets by name, from any goroutine.
	Handshakes *tlsconn.Pool
	Secrets    tlsconn.Secrets
	// Closed is told of every connection's end, also of one that no terminal had,
	// for the listener's access log; nil: nobody.
	Closed func(c *downstream.Connection)
	// DrainTime is how long connections of removed or changed chains may go on.
	DrainTime time.Duration
	// Gradual spreads what a drain tells HTTP connections over DrainTime.
	Gradual bool
	// MaxConnections over all listeners that don't ignore it; 0: no limit.
	MaxConnections int64
}

// Listeners is the set of running listeners.
type Listeners struct {
	opts      Options
	mu        sync.Mutex
	current   map[string]*placed
	order     []string // names of current, as they came
	stats     Stats
	departing []departure
	stopping  stopping
	perW      []*onWorker
	global    atomic.Int64 // connections, counted only with MaxConnections
	nextID    atomic.Uint64
}

// placed is a listener as the control goroutine knows it.
type placed struct {
	config  *config.Listener
	addrs   []config.Address
	bound   []netip.AddrPort // with the ports that the kernel chose
	shared  *shared
	active  []*active // by worker
	tls     map[*config.FilterChain]*tlsconn.ServerContext
	rates   map[*config.ConnectionRate]*tokenbucket.Bucket
	stopped bool // its sockets were closed by Close
}

// shared is what all workers of a listener share.
type shared struct {
	open    atomic.Int64 // counted only with MaxConnections
	balance balance      // counted only with ExactBalance
}

// New makes an empty set.
func New(o Options) *Listeners {
	l := &Listeners{opts: o, current: map[string]*placed{}}
	if o.Log == nil {
		l.opts.Log = slog.New(slog.DiscardHandler)
	}
	for _, w := range o.Workers {
		l.perW = append(l.perW, newOnWorker(l, w))
	}
	return l
}

// Apply makes the running listeners those of list. It returns when every worker
// has them, with the errors of those that couldn't be bound: they are missing
// (or, if changed, their predecessor still runs), and tried again next time.
// Connections go on unless their chain was removed or changed.
func (l *Listeners) Apply(ctx context.Context, list []*config.Listener) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	wanted := map[string]bool{}
	taken := config.Addresses{}
	for _, c := range list {
		wanted[c.Name] = true
		if err := taken.Claim(c); err != nil {
			errs = append(errs, err)
			continue
		}
		if old := l.current[c.Name]; old != nil && old.config.Hash == c.Hash {
			continue
		}
		if err := l.place(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("listener %q: %w", c.Name, err))
		}
	}
	for name, p := range l.current {
		if !wanted[name] {
			delete(l.current, name)
			l.order = slices.DeleteFunc(l.order, func(n string) bool { return n == name })
			l.leaves(departure{listener: true})
			errs = append(errs, l.each(ctx, func(o *onWorker, i int) { o.remove(p.active[i]) }))
		}
	}
	for _, p := range l.current {
		for _, x := range p.tls {
			x.Refresh()
		}
	}
	return errors.Join(errs...)
}

// place starts a listener, or puts a changed one in its predecessor's place.
func (l *Listeners) place(ctx context.Context, c *config.Listener) error {
	old := l.current[c.Name]
	p := &placed{config: c, addrs: c.Addresses(), shared: &shared{balance: balance{open: make([]int, len(l.perW))}}}
	keepSockets := old != nil && reflect.DeepEqual(old.addrs, p.addrs) && sameSocket(old.config, c)
	var fds [][]int // by worker
	if keepSockets {
		p.bound = old.bound
	} else if c.BindToPort && !c.Internal && !l.stops(c) {
		var err error
		if fds, p.bound, err = open(c, p.addrs, len(l.perW)); err != nil {
			l.stats.CreateFailure += uint64(len(l.perW))
			return err
		}
	}
	if old != nil {
		p.shared = old.shared
	}
	sameFrame := old != nil && sameButChains(old.config, c)
	p.tls = l.contexts(c, old, sameFrame)
	p.rates = l.buckets(c)
	for i := range l.perW {
		var before *active
		if old != nil {
			before = old.active[i]
		}
		p.active = append(p.active, newActive(l, l.perW[i].w, p, before, sameFrame))
	}
	if old == nil {
		l.order = append(l.order, c.Name)
	}
	l.current[c.Name] = p
	l.stats.CreateSuccess += uint64(len(l.perW))
	if old != nil {
		l.leaves(replaced(old.config, c, sameFrame))
	}
	return l.each(ctx, func(o *onWorker, i int) {
		var before *active
		if old != nil {
			before = old.active[i]
		}
		var mine []int
		if fds != nil {
			mine = fds[i]
		}
		o.install(p.active[i], before, mine, keepSockets)
	})
}

// contexts makes the TLS contexts of a listener's chains, once for all workers:
// a session must resume on whichever of them the client comes to. Chains that
// old (nil: none) has unchanged keep theirs.
func (l *Listeners) contexts(c *config.Listener, old *placed, sameFrame bool) map[*config.FilterChain]*tlsconn.ServerContext {
	m := map[*config.FilterChain]*tlsconn.ServerContext{}
	known := map[uint64]*tlsconn.ServerContext{}
	if sameFrame {
		for f, x := range old.tls {
			known[f.Hash] = x
		}
	}
	for _, f := range append([]*config.FilterChain{c.DefaultChain}, c.Chains...) {
		switch {
		case f == nil || f.TLS == nil:
		case f.Hash != 0 && known[f.Hash] != nil:
			m[f] = known[f.Hash]
		default:
			m[f] = tlsconn.NewServerContext(f.TLS, l.opts.Secrets)
		}
	}
	return m
}

// buckets makes the token buckets of a listener's chains. Filters with one share
// key and equal settings have one bucket, in whatever listener they are.
func (l *Listeners) buckets(c *config.Listener) map[*config.ConnectionRate]*tokenbucket.Bucket {
	m := map[*config.ConnectionRate]*tokenbucket.Bucket{}
	for _, chain := range append([]*config.FilterChain{c.DefaultChain}, c.Chains...) {
		if chain == nil {
			continue
		}
		for _, f := range chain.Filters {
			if r, ok := f.(*config.ConnectionRate); ok && !r.Off {
				if m[r] = l.sharedBucket(m, r); m[r] == nil {
					m[r] = tokenbucket.New(r.Bucket)
				}
			}
		}
	}
	return m
}

func (l *Listeners) sharedBucket(own map[*config.ConnectionRate]*tokenbucket.Bucket, r *config.ConnectionRate) *tokenbucket.Bucket {
	if r.ShareKey == "" {
		return nil
	}
	find := func(m map[*config.ConnectionRate]*tokenbucket.Bucket) *tokenbucket.Bucket {
		for x, b := range m {
			if x.ShareKey == r.ShareKey && x.Bucket == r.Bucket && b != nil {
				return b
			}
		}
		return nil
	}
	if b := find(own); b != nil {
		return b
	}
	for _, p := range l.current {
		if b := find(p.rates); b != nil {
			return b
		}
	}
	return nil
}

// each runs f on every worker and waits.
func (l *Listeners) each(ctx context.Context, f func(o *onWorker, i int)) error {
	done := make(chan struct{}, len(l.perW))
	for i, o := range l.perW {
		o.w.Post(func() {
			f(o, i)
			done <- struct{}{}
		})
	}
	for range l.perW {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a worker: %w", ctx.Err())
		}
	}
	return nil
}

// Bound gives a running listener's socket addresses, with the ports the kernel chose.
func (l *Listeners) Bound(name string) []netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.current[name]; p != nil {
		return p.bound
	}
	return nil
}

// sameSocket reports whether a socket of a serves b as well.
func sameSocket(a, b *config.Listener) bool {
	return a.BindToPort == b.BindToPort && a.Internal == b.Internal && a.Transparent == b.Transparent &&
		a.Freebind == b.Freebind && a.ReusePort == b.ReusePort && a.Backlog == b.Backlog
}

// sameButChains reports whether only filter chains changed: then the others'
// connections go on.
func sameButChains(a, b *config.Listener) bool {
	x, y := *a, *b
	for _, l := range []*config.Listener{&x, &y} {
		l.Meta, l.Chains, l.DefaultChain = config.Meta{}, nil, nil
	}
	return reflect.DeepEqual(x, y)
}

// open makes the sockets of a listener, one per address and worker. Without
// SO_REUSEPORT, and on Unix paths, the workers share one.
func open(c *config.Listener, addrs []config.Address, workers int) (fds [][]int, bound []netip.AddrPort, err error) {
	fds = make([][]int, workers)
	defer func() {
		if err != nil {
			closeAll(fds)
		}
	}()
	o := worker.SocketOptions{ReusePort: c.ReusePort, Transparent: c.Transparent, Freebind: c.Freebind, V6Only: true, Backlog: c.Backlog} // V6Only: the IPv4 side is a listener of its own, as in Envoy
	for _, a := range addrs {
		at := a.IP
		for i := range workers {
			fd := -1
			if i > 0 && (!c.ReusePort || a.Pipe != "") {
				fd, err = unix.FcntlInt(uintptr(fds[0][len(fds[0])-1]), unix.F_DUPFD_CLOEXEC, 0)
			} else {
				fd, err = worker.OpenListener(at, a.Pipe, o)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("address %s: %w", a, err)
			}
			fds[i] = append(fds[i], fd)
			if i == 0 && a.Pipe == "" {
				at = netip.AddrPortFrom(at.Addr(), worker.SocketName(fd).Port())
			}
		}
		bound = append(bound, at)
	}
	return fds, bound, nil
}

func closeAll(fds [][]int) {
	for _, list := range fds {
		for _, fd := range list {
			unix.Close(fd)
		}
	}
}
