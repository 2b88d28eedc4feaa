package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/tlsconn"
	"sluice/internal/worker"
	"sluice/listener"
	"sluice/listener/downstream"
	"sluice/listener/filter/chain"
	"sluice/listener/filter/metadataexchange"
	"sluice/listener/httpproxy"
	"sluice/listener/relay"
	"sluice/listener/tcpproxy"
	"sluice/redirect"
	"sluice/upstream"
	"sluice/upstream/call"
	"sluice/upstream/export"
)

// plane is the data plane: workers, and what runs on them, wired in the order
// of traffic. Build it with newPlane, start it with Run, feed it with Apply.
type plane struct {
	log        *slog.Logger
	base       time.Time // of the workers' clocks
	workers    []*worker.Worker
	threads    chan int         // ids of the workers' threads, as they begin
	sets       []*telemetry.Set // by worker
	metrics    *telemetry.Registry
	files      *telemetry.Files
	handshakes *tlsconn.Pool
	clusters   *upstream.Clusters
	calls      []*call.Caller     // by worker
	exports    []*export.Exporter // by worker
	http       *httpproxy.Server
	listeners  *listener.Listeners
	snapshot   atomic.Pointer[config.Snapshot] // in force
	whole      *config.Snapshot                // its complete part, when that is in force; of Apply
	untrimmed  atomic.Bool                     // the start is over and its memory not yet given back
	started    func()                          // told then
	reports    *reporting
	admin      atomic.Pointer[admin.Admin]
	env        func(name string) string // answers %ENVIRONMENT(X)% of logs
}

// planeOptions are what the command line and the bootstrap say of the plane.
type planeOptions struct {
	workers     int
	visibleWait bool
	drain       time.Duration
	gradual     bool
	flush       time.Duration
	maxConns    uint64
	keep        func(cluster string) bool
	tags        *telemetry.Tags
	node        *config.Node
	runtime     config.Struct
}

func newPlane(h host, log *slog.Logger, o planeOptions) (*plane, error) {
	p := &plane{log: log, base: time.Now(), started: h.started, threads: make(chan int, o.workers), metrics: &telemetry.Registry{Tags: o.tags}, handshakes: tlsconn.NewPool()}
	runtime.GOMAXPROCS(processors(o.workers))
	for i := range o.workers {
		w, err := worker.New(worker.Options{Index: i, Base: p.base, VisibleWait: o.visibleWait, Log: log, StallLimit: 5 * time.Millisecond,
			Thread: func(id int) { p.threads <- id }})
		if err != nil {
			return nil, fmt.Errorf("making worker %d: %w", i, err)
		}
		set := telemetry.NewSet()
		p.metrics.Register(w.Post, set)
		p.workers, p.sets = append(p.workers, w), append(p.sets, set)
	}
	p.files = telemetry.NewFiles(o.workers+1, o.flush, h.stdout, h.stderr)
	p.clusters = upstream.New(upstream.Options{Workers: p.workers, Sets: p.sets, Handshakes: p.handshakes, Secrets: p.secret, Log: log, Keep: o.keep})
	for i, w := range p.workers {
		c := &call.Caller{Worker: w, Clusters: p.clusters.Local(i), Own: firstAddress(), Random: rand.NewPCG(rand.Uint64(), rand.Uint64())}
		p.calls, p.exports = append(p.calls, c), append(p.exports, export.New(c))
	}
	p.files.Stream = p.stream(o.node)
	p.env = func(name string) string { v, _ := h.lookup(name); return v }
	node := telemetry.NewNode(o.node, nil)
	frame := metadataexchange.Frame(node.Any)
	p.reports = newReporting(p, node, p.env)
	filters := &chain.Builder{Node: node, Workers: o.workers, Cluster: o.node.Cluster, Failing: p.failing}
	p.http = httpproxy.New(httpproxy.Options{
		Workers: p.workers, Sets: p.sets, Clusters: p.clusters, Files: p.files, LocalAddress: firstAddress(), Tracer: p.tracers(&o),
		Filters: filters.Build, Env: p.env, Draining: p.failing, StripFragments: o.off("envoy.reloadable_features.http_reject_path_with_fragment"),
	})
	p.listeners = listener.New(listener.Options{
		Workers: p.workers, Log: log, OriginalDst: redirect.OriginalDst,
		HTTP: p.httpTerminal, TCP: tcpproxy.Options{Connect: relay.Connect(p.clusters, frame), Log: p.reports.relay.Log, Began: p.reports.relay.Began, Live: p.reports.relay.Live,
			Report: p.reports.relay.Report, Interval: p.reports.relay.Interval},
		Closed: p.reports.closed, Filter: p.networkFilter,
		Count: p.reports.count, PeerFrame: frame, PeerMetadata: peerMetadata,
		Handshakes: p.handshakes, Secrets: p.secret, DrainTime: o.drain, Gradual: o.gradual, Limit: o.limit, MaxConnections: int64(o.maxConns),
	})
	return p, nil
}

// processors is what the scheduler gets: one for each worker, which keeps it
// through its raw waits, and three for the control path, the collector and one
// in passing. With fewer, a worker waits up to 10 ms for its turn while a large
// push is collected; which thread runs then is the kernel's to say. The
// collector takes a quarter of them, and where that isn't near a whole number,
// as with 2, 3 or 6, it takes its share of each worker's time instead.
func processors(workers int) int {
	if workers == 3 {
		return 7
	}
	return workers + 3
}

// off says that a runtime feature is set, to false.
func (o planeOptions) off(feature string) bool {
	on, set := o.runtime[feature].(bool)
	return set && !on
}

// whole is a runtime value that is a whole number.
func (o *planeOptions) whole(key string, other int) int {
	if v, ok := o.runtime[key].(float64); ok && v >= 0 {
		return int(v)
	}
	return other
}

func (o *planeOptions) milliseconds(key string, other int) time.Duration {
	return time.Duration(o.whole(key, other)) * time.Millisecond
}

// limit is envoy.resource_limits.listener.NAME.connection_limit.
func (o planeOptions) limit(name string) int {
	v, _ := o.runtime["envoy.resource_limits.listener."+name+".connection_limit"].(float64)
	return int(v)
}

// failing reports that the process is told to fail its health checks.
func (p *plane) failing() bool {
	a := p.admin.Load()
	return a != nil && a.HealthFailed()
}

// descriptors is how many a process has room for from the start: 128 KiB in the kernel.
const descriptors = 16 << 10

// reserve makes room before connections need it.
func (p *plane) reserve(context.Context) error {
	if err := worker.ReserveDescriptors(descriptors); err != nil {
		p.log.Warn("descriptors", "error", err)
	}
	return nil
}

// behind is the nice value of all threads but the workers': one of them gets a
// third of what a worker gets where both want a processor.
const behind = 5

// standBack puts the control path and the collector behind the workers.
func (p *plane) standBack(ctx context.Context) error {
	var ids []int
	for range p.workers {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case id := <-p.threads:
			ids = append(ids, id)
		}
	}
	if err := worker.StandBack(ids, behind); err != nil {
		p.log.Warn("threads", "error", err)
	}
	return nil
}

// Run runs workers and their helpers until ctx ends. When it returns nothing of
// the plane runs any more.
func (p *plane) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(p.workers)+5)
	start := func(f func(context.Context) error) {
		wg.Go(func() { errs <- f(ctx) })
	}
	for _, w := range p.workers {
		start(w.Run)
	}
	start(p.standBack)
	start(p.clusters.Run)
	start(p.files.Run)
	start(p.giveBack)
	start(p.reserve)
	wg.Wait()
	p.handshakes.Wait()
	close(errs)
	var all []error
	for err := range errs {
		if !errors.Is(err, context.Canceled) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// Apply makes s what the plane obeys: clusters first, so that no request names
// one that isn't there yet, then routes and listeners. The error names what
// could not be bound; everything else is in force. A change of endpoints
// and routes alone ends with them. Apply is called by one goroutine.
func (p *plane) Apply(ctx context.Context, s *config.Snapshot) error {
	p.snapshot.Store(s)
	if err := p.clusters.Apply(ctx, s); err != nil {
		return fmt.Errorf("applying clusters: %w", err)
	}
	p.http.Apply(s.Routes)
	if s.Base != nil && s.Base == p.whole {
		return nil
	}
	p.whole = nil
	if err := p.http.Rediscover(s.Listeners); err != nil {
		p.log.Error("discovered filters", "error", err)
	}
	defer p.http.Retire(s.Listeners)
	if err := p.listeners.Apply(ctx, s.Listeners); err != nil {
		return err // the next Apply tries again
	}
	p.whole = s.Whole()
	return nil
}

func (p *plane) secret(name string) *config.Secret {
	if s := p.snapshot.Load(); s != nil {
		return s.Secrets[name]
	}
	return nil
}

func (p *plane) httpTerminal(_ *worker.Worker, l *config.Listener, c *config.FilterChain, m *config.HTTPConnectionManager) downstream.Terminal {
	t, err := p.http.Terminal(m, l, c)
	if err != nil {
		p.log.Error("connection manager", "listener", l.Name, "error", err)
	}
	return t
}
