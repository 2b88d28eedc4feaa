// Package upstream is the way from a cluster's name to a connection: the
// clusters of the current snapshot, their hosts and health, and each worker's
// pools. listener's terminals use a worker's Local; the control path calls
// Apply. It decides nothing about requests: retries and timeouts are the
// terminals'.
package upstream

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/tlsconn"
	"sluice/internal/worker"
	"sluice/upstream/pool"
)

// Options of New. Sets and Workers go together by index.
type Options struct {
	Workers []*worker.Worker
	Sets    []*telemetry.Set
	// Handshakes makes upstream handshakes; nil: TLS endpoints fail. Secrets finds
	// SDS secrets by name, from any goroutine.
	Handshakes *tlsconn.Pool
	Secrets    tlsconn.Secrets
	Log        *slog.Logger // nil: silent
	// Keep says which clusters have Envoy-named statistics; nil: all.
	Keep func(cluster string) bool
	// Resolve looks a host name up; nil: the system's resolver.
	Resolve ResolveFunc
}

// Clusters are all clusters of the process. Apply and Run are safe for
// concurrent use; the data path uses only Local.
type Clusters struct {
	opts     Options
	locals   []*Local
	nextID   atomic.Uint64
	contexts sync.Map // *config.UpstreamTLS → *tlsconn.ClientContext

	shared sync.Map // name → *shared; changed under mu, read by workers at a cluster's first use
	timed  sync.Map // *shared → nil: those with names to resolve or hosts to sweep
	mu     sync.Mutex
	whole  *config.Snapshot // the last complete one applied
	wake   chan struct{}
	busy   sync.WaitGroup
}

// shared is what the workers' parts of a cluster have in common. It is changed
// under Clusters.mu, and what follows mu under both: a worker that begins to use
// the cluster holds mu alone.
type shared struct {
	name  string          // of the cluster
	given *config.Cluster // as Apply got it

	mu     sync.Mutex
	config *config.Cluster
	gone   bool
	*inUse // nil: the cluster is dormant
}

// inUse is what a cluster needs once a worker has it.
type inUse struct {
	users    []*Local // workers that have the cluster
	breakers [2]pool.Breakers
	hosts    []*hostState // workers get copies of the slice header
	weights  []uint32
	outlier  *outlier
	resolved map[string]*resolution // of DNS clusters, by host name
	stats    sharedStats
}

type sharedStats struct{ updates, failures, changes atomic.Uint64 }

// New makes an empty set of clusters. It starts nothing.
func New(o Options) *Clusters {
	c := &Clusters{opts: o, wake: make(chan struct{}, 1)}
	if o.Log == nil {
		c.opts.Log = slog.New(slog.DiscardHandler)
	}
	if o.Resolve == nil {
		c.opts.Resolve = systemResolve
	}
	for i, w := range o.Workers {
		c.locals = append(c.locals, newLocal(c, i, w))
	}
	return c
}

// Local is the part of a worker, to be used on it only.
func (c *Clusters) Local(worker int) *Local { return c.locals[worker] }

// Apply makes the clusters of s the current ones: new ones can be used and
// changed ones are replaced on every worker when it returns. Clusters and endpoints
// that didn't change keep their pools, outlier state and counts; what is gone
// drains. It returns early only when ctx ends.
func (c *Clusters) Apply(ctx context.Context, s *config.Snapshot) error {
	c.mu.Lock()
	var done sync.WaitGroup
	if s.Base == nil || s.Base != c.whole {
		c.applyWhole(s.Whole(), &done)
	}
	if s.Base != nil {
		for name, next := range s.Clusters {
			c.applyOne(name, next, &done)
		}
	}
	c.mu.Unlock()
	c.refresh()
	c.poke()
	all := make(chan struct{})
	go func() { done.Wait(); close(all) }()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// applyWhole makes the clusters of a complete snapshot the current ones.
func (c *Clusters) applyWhole(s *config.Snapshot, done *sync.WaitGroup) {
	c.whole = s
	for name, next := range s.Clusters {
		c.applyOne(name, next, done)
	}
	c.shared.Range(func(name, x any) bool {
		if s.Clusters[name.(string)] == nil {
			sh := x.(*shared)
			users := c.retire(sh, nil)
			post(users, done, func(l *Local) { l.remove(sh.name) })
		}
		return true
	})
}

func (c *Clusters) applyOne(name string, next *config.Cluster, done *sync.WaitGroup) {
	var have *shared
	if x, ok := c.shared.Load(name); ok {
		have = x.(*shared)
	}
	switch {
	case have != nil && have.given == next:
		return
	case have != nil && have.config.Hash == next.Hash && next.Hash != 0:
		have.given = next
		if !have.renew(next) {
			return
		}
	default:
		have = c.enter(&shared{name: name, given: next, config: next}, have)
	}
	c.rebuild(have, done)
}

// renew takes over another version of the same cluster, and says whether its
// endpoints are others. What identifies pools stays what it was.
func (sh *shared) renew(next *config.Cluster) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	have := sh.config
	if next.TLS != have.TLS || !sameSockets(next.SocketMatches, have.SocketMatches) {
		same := *next
		same.TLS, same.SocketMatches = have.TLS, have.SocketMatches
		next = &same
	}
	sh.config = next
	return !sameLoad(have.Load, next.Load)
}

func sameSockets(a, b []config.SocketMatch) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// forget drops the TLS contexts of a cluster that is gone; connections under
// way keep theirs.
func (c *Clusters) forget(cfg *config.Cluster) {
	c.contexts.Delete(cfg.TLS)
	for i := range cfg.SocketMatches {
		c.contexts.Delete(cfg.SocketMatches[i].TLS)
	}
}

func sameLoad(a, b *config.LoadAssignment) bool {
	return a == b || a != nil && b != nil && a.Hash == b.Hash && a.Hash != 0
}

// rebuild makes the host list of sh anew, keeping hosts that stay, and hands it
// to the workers that use it.
func (c *Clusters) rebuild(sh *shared, done *sync.WaitGroup) {
	sh.mu.Lock()
	if sh.inUse == nil {
		sh.mu.Unlock()
		return
	}
	sh.list()
	users, hosts, weights, cfg := sh.users, sh.hosts, sh.weights, sh.config
	sh.mu.Unlock()
	post(users, done, func(l *Local) { l.set(sh.name, sh, cfg, hosts, weights) })
}

// list makes the hosts from the endpoints, under mu.
func (sh *shared) list() {
	old := make(map[string]*hostState, len(sh.hosts))
	for _, h := range sh.hosts {
		old[h.key] = h
	}
	before := sh.hosts
	sh.hosts, sh.weights = sh.expandAll(old)
	if sh.config.Type == config.EDS {
		sh.stats.updates.Add(1)
	}
	sh.stats.changes.Add(changes(before, sh.hosts))
	if sh.outlier != nil {
		sh.outlier.follow(sh.hosts)
	}
}

// expandAll gives the hosts of all endpoints, and the localities' weights; hosts
// that are in old keep what happened to them.
func (sh *shared) expandAll(old map[string]*hostState) (hosts []*hostState, weights []uint32) {
	a := sh.config.Load
	if a == nil {
		return nil, nil
	}
	now := time.Now()
	for li := range a.Localities {
		l := &a.Localities[li]
		weights = append(weights, l.Weight)
		for ei := range l.Endpoints {
			for _, h := range sh.expand(&l.Endpoints[ei], l, li, now) {
				if o := old[h.key]; o != nil {
					h.inherit(o)
				}
				hosts = append(hosts, h)
			}
		}
	}
	return hosts, weights
}

// changes counts the priorities whose hosts aren't the same any more: Envoy
// counts a membership change for each.
func changes(old, hosts []*hostState) uint64 {
	type member struct {
		key      string
		priority int
	}
	was := make(map[member]bool, len(old))
	for _, h := range old {
		was[member{h.key, h.priority}] = true
	}
	changed := map[int]bool{}
	for _, h := range hosts {
		m := member{h.key, h.priority}
		if !was[m] {
			changed[h.priority] = true
		}
		delete(was, m)
	}
	for m := range was {
		changed[m.priority] = true
	}
	return uint64(len(changed))
}

// post runs f on the workers of users; done may be nil.
func post(users []*Local, done *sync.WaitGroup, f func(*Local)) {
	for _, l := range users {
		if done != nil {
			done.Add(1)
		}
		l.worker.Post(func() {
			f(l)
			if done != nil {
				done.Done()
			}
		})
	}
}

func (c *Clusters) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run resolves names and sweeps outlier detection until ctx ends.
func (c *Clusters) Run(ctx context.Context) error {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			c.busy.Wait()
			return nil
		case <-c.wake:
		case <-t.C:
		}
		next := c.step(ctx, time.Now())
		t.Reset(next)
	}
}

// step does what is due and says when something is due again.
func (c *Clusters) step(ctx context.Context, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := time.Hour
	c.timed.Range(func(x, _ any) bool {
		sh := x.(*shared)
		if sh.outlier != nil {
			next = min(next, c.sweep(sh, now))
		}
		if sh.named() {
			next = min(next, c.resolveDue(ctx, sh, now))
		}
		return true
	})
	return max(next, time.Millisecond)
}

// Members counts the hosts, and those of them that are healthy or degraded.
func (c *Cluster) Members() (available, total int) {
	total = c.set.All
	if c.dst != nil {
		total = len(c.dst.hosts)
	}
	return c.set.Healthy + c.set.Degraded, total
}

// gauges are the values of a cluster that are the same on all workers; the
// first worker reports them.
func (sh *shared) gauges(c *Cluster, emit func(string, uint64, telemetry.Kind)) {
	s := c.set
	_, all := c.Members()
	emit("membership_total", uint64(all), telemetry.Gauge)
	emit("membership_healthy", uint64(s.Healthy), telemetry.Gauge)
	emit("membership_degraded", uint64(s.Degraded), telemetry.Gauge)
	emit("membership_excluded", uint64(s.Excluded), telemetry.Gauge)
	s.Table(func(name string, v int) { emit(name, uint64(v), telemetry.Gauge) })
	c.matches(func(name string, n int) { emit(name+".total_match_count", uint64(n), telemetry.Counter) })
	if t := c.Config.TLS; t != nil {
		n := c.local.all.contextUpdates(t)
		emit("client_ssl_socket_factory.ssl_context_update_by_sds", n, telemetry.Counter)
		emit("client_ssl_socket_factory.downstream_context_secrets_not_ready", 0, telemetry.Counter)
		emit("client_ssl_socket_factory.upstream_context_secrets_not_ready", 0, telemetry.Counter)
	}
	emit("membership_change", sh.stats.changes.Load(), telemetry.Counter)
	if c.Config.Type != config.EDS { // those are the xDS client's alone: a zero of ours would outlive its count
		emit("update_attempt", 0, telemetry.Counter)
		emit("update_success", sh.stats.updates.Load(), telemetry.Counter)
		emit("update_failure", sh.stats.failures.Load(), telemetry.Counter)
		emit("update_empty", 0, telemetry.Counter)
	}
	for i, p := range [...]string{"default", "high"} {
		b := &sh.breakers[i]
		pre := "circuit_breakers." + p + "."
		emit(pre+"cx_open", b.Connections.Open(), telemetry.Gauge)
		emit(pre+"cx_pool_open", b.Pools.Open(), telemetry.Gauge)
		emit(pre+"rq_open", b.Requests.Open(), telemetry.Gauge)
		emit(pre+"rq_pending_open", b.Pending.Open(), telemetry.Gauge)
		emit(pre+"rq_retry_open", retryOpen(b), telemetry.Gauge)
		if b.Track {
			emit(pre+"remaining_cx", b.Connections.Remaining(), telemetry.Gauge)
			emit(pre+"remaining_rq", b.Requests.Remaining(), telemetry.Gauge)
			emit(pre+"remaining_pending", b.Pending.Remaining(), telemetry.Gauge)
			emit(pre+"remaining_retries", b.Retries.Remaining(), telemetry.Gauge)
			emit(pre+"remaining_cx_pools", b.PoolsLeft(), telemetry.Gauge)
		}
	}
	if sh.outlier != nil {
		sh.outlier.emit(emit)
	}
}

func retryOpen(b *pool.Breakers) uint64 {
	if b.AllowRetry() {
		return 0
	}
	return 1
}
