// Package xdsclient keeps one ADS stream with a control plane, in its
// state-of-the-world or incremental form, and turns what comes into snapshots:
// it subscribes, translates, answers with ACK or NACK, links and hands over.
// It knows nothing of how a snapshot is run and owns no listener or upstream
// connection but its own stream. cmd/proxy starts it.
//
// One goroutine, Run's, owns all state; others reach it by messages.
package xdsclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"sluice/internal/config"
	"sluice/internal/identity"
	"sluice/xdsclient/link"
	"sluice/xdsclient/translate"
)

// Back-off between streams: the wait is random between 0 and a ceiling that
// doubles from the first to the last, as Envoy does.
const (
	backoffFirst = 500 * time.Millisecond
	backoffLast  = 30 * time.Second
)

// releaseAfter is how long a route table, secret or filter config that nothing
// names any more stays subscribed: connections on the listener that named it
// drain as long (Envoy's default drain time).
const releaseAfter = 600 * time.Second

// Options say who asks whom for what, and what is done with the answer.
type Options struct {
	Node      config.Node
	ADS       *config.ADS // nil: static resources only
	Static    *config.Snapshot
	Translate *translate.Registry
	// Dial opens a connection to the control plane; it is called once a stream.
	Dial Dialer
	// NameTable asks for Istio's table of host names (NDS).
	NameTable bool
	// Secrets brings the secrets of config.SecretAgent, by name.
	Secrets <-chan *config.Secret
	// Apply takes each new snapshot, in order, on the client's goroutine.
	// Dynamic listeners are left out until the whole first configuration is
	// there, static ones too unless StaticFirst.
	Apply func(*config.Snapshot)
	// StaticFirst serves static listeners from the start: a pod's answer the
	// kubelet while everything else still waits.
	StaticFirst bool
	// Peer is what to call the control plane in messages, the cluster's name when "".
	Peer string
	// Changed is told when Facts change, on the client's goroutine; may be nil.
	Changed func(Facts)
	// Logf notes what an operator should see; may be nil.
	Logf func(format string, args ...any)
	// Now is the clock, time.Now when nil. ReleaseAfter is how long what nothing
	// names any more stays subscribed, 600 s when zero.
	Now          func() time.Time
	ReleaseAfter time.Duration
}

// Facts are what readiness depends on.
type Facts struct {
	Connected bool
	Clusters  bool // all initial clusters have endpoints or waited long enough
	CDS, LDS  bool // accepted once
	Live      bool // the first configuration is whole and serves
	// Problem says why the last stream ended, "" once the server has answered.
	Problem string
}

// Client is one ADS client. Run it once.
type Client struct {
	opts    Options
	queries chan func()
	events  chan event
	quit    chan struct{} // closed when Run ends

	accepted link.Accepted
	snapshot *config.Snapshot // all of it; what Apply gets may lack listeners
	applied  *config.Snapshot
	waiting  []link.Waiting
	facts    Facts

	kinds    [kindCount]*kindState
	order    []*kindState // in order of first subscription
	conn     *conn
	gen      int // of the stream; events of older ones are dropped
	attempts int
	timers   map[string]timer
	stats    map[string]uint64
	late     map[string]uint64   // route tables that didn't come in time, by name
	users    map[string][]string // clusters by the assignment they take, where that has another name
	// endpointsOnly are the assignments of the response in hand, nil when it has
	// anything else.
	endpointsOnly map[string]bool
	newRefs       bool                 // resources came that may name files
	files         map[string]bool      // watched SDS files, by path
	named         map[string][]string  // the secrets wanted of each
	read          map[string]bool      // those that have been read
	arrived       map[string]time.Time // of secrets that didn't come by ADS
	wg            sync.WaitGroup
}

type timer struct {
	at   time.Time
	fire func()
}

// event is what other goroutines tell the owner.
type event struct {
	gen    int
	opened *conn
	answer *answer
	closed error
	secret []*config.Secret
	// file is what secret was read from, and badSecret one that came from a
	// server of its own and was refused.
	file, badSecret string
}

// New prepares a client; nothing runs before Run.
func New(o Options) *Client {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.Apply == nil {
		o.Apply = func(*config.Snapshot) {}
	}
	if o.Peer == "" && o.ADS != nil {
		o.Peer = o.ADS.Cluster
	}
	if o.Static == nil {
		o.Static = &config.Snapshot{}
	}
	if o.ReleaseAfter == 0 {
		o.ReleaseAfter = releaseAfter
	}
	c := &Client{
		opts: o, queries: make(chan func()), events: make(chan event, 16), quit: make(chan struct{}),
		timers: map[string]timer{}, stats: map[string]uint64{}, late: map[string]uint64{}, files: map[string]bool{}, named: map[string][]string{}, read: map[string]bool{}, arrived: map[string]time.Time{},
		accepted: link.Accepted{
			Static: o.Static, Clusters: map[string]*config.Cluster{}, Loads: map[string]*config.LoadAssignment{},
			Routes: map[string]*config.RouteConfiguration{}, Secrets: map[string]*config.Secret{},
			Extensions: map[string]config.HTTPPolicy{}, Settled: map[link.Part]bool{},
		},
	}
	for k := range c.kinds {
		c.kinds[k] = newKindState(kind(k))
	}
	return c
}

// Run keeps the stream until ctx ends, and returns when every goroutine of the
// client has ended. The control plane's absence is never an error.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.wg.Wait()
	defer cancel()
	defer close(c.quit)
	secrets := c.opts.Secrets
	c.newRefs = true
	c.start(ctx)
	for {
		if c.newRefs {
			c.newRefs = false
			c.watchSecrets(ctx)
		}
		next := c.nextTimer()
		select {
		case <-ctx.Done():
			if c.conn != nil {
				c.conn.close()
			}
			return nil
		case f := <-c.queries:
			f()
		case e := <-c.events:
			c.handle(ctx, e)
		case s, ok := <-secrets:
			if !ok {
				secrets = nil
				break
			}
			c.secret(s)
		case <-next:
			c.fire()
		}
	}
}

func (c *Client) start(ctx context.Context) {
	if a := c.opts.ADS; a != nil {
		if a.CDS {
			c.subscribe(c.kinds[cds])
			c.giveUp("cds", a.CDSTimeout, func() { c.facts.CDS = true })
		}
		c.connect(ctx)
	}
	c.relink()
}

// giveUp stops waiting for the first answer of a wildcard type.
func (c *Client) giveUp(name string, after time.Duration, done func()) {
	if after > 0 {
		c.timers[name] = timer{c.opts.Now().Add(after), func() { done(); c.relink() }}
	}
}

// handle takes one event of a stream.
func (c *Client) handle(ctx context.Context, e event) {
	if e.secret != nil || e.file != "" || e.badSecret != "" {
		c.takeSecrets(e)
		return
	}
	if e.gen != c.gen {
		if e.opened != nil {
			e.opened.close()
		}
		return
	}
	switch {
	case e.opened != nil:
		c.conn = e.opened
		c.count("cluster."+c.opts.ADS.Cluster+".upstream_rq_total", 1)
		c.facts.Connected = true
		c.changed()
		c.resume()
	case e.answer != nil:
		c.attempts = 0
		c.setProblem("")
		c.answer(e.answer)
	case e.closed != nil:
		c.lost(ctx, e.closed)
	}
}

// lost drops the stream and plans the next. Whatever is in force stays.
func (c *Client) lost(ctx context.Context, err error) {
	if c.conn != nil {
		c.conn.close()
		c.conn = nil
	}
	problem := identity.Explain(err, c.opts.Peer)
	c.facts.Connected = false
	c.setProblem(problem)
	for _, k := range c.kinds {
		k.pending = nil
		k.nonce = ""
	}
	ceiling := min(backoffLast, backoffFirst<<min(c.attempts, 10))
	c.attempts++
	wait := time.Duration(rand.Int64N(int64(ceiling)) + 1)
	c.opts.Logf("ADS stream ended: %s; trying again in %v", problem, wait.Round(time.Millisecond))
	c.gen++
	c.timers["reconnect"] = timer{c.opts.Now().Add(wait), func() { c.connect(ctx) }}
}

// setProblem notes why there is no stream, and tells that facts changed.
func (c *Client) setProblem(why string) {
	if why != "" || c.facts.Problem != "" {
		c.facts.Problem = why
		c.changed()
	}
}

func (c *Client) changed() {
	if c.opts.Changed != nil {
		c.opts.Changed(c.facts)
	}
}

func (c *Client) count(name string, by uint64) { c.stats[name] += by }

// secret takes one that didn't come by ADS.
func (c *Client) secret(s *config.Secret) {
	if s == nil || s.Name == "" {
		return
	}
	if err := c.checkSecret(s.Name, s); err != nil {
		c.opts.Logf("secret %s refused: %v", s.Name, err)
		c.refused(s.Name)
		return
	}
	c.accepted.Secrets[s.Name] = s
	c.arrived[s.Name] = c.opts.Now()
	c.count("sds."+s.Name+".update_success", 1)
	c.relink()
	c.flush()
}

// takeSecrets takes what came of a file or a server.
func (c *Client) takeSecrets(e event) {
	for _, s := range e.secret {
		c.secret(s)
	}
	if e.badSecret != "" {
		c.refused(e.badSecret)
	}
	if e.file != "" {
		c.read[e.file] = true
		c.refused(c.lacking(e.file, e.secret)...)
	}
}

// nextTimer gives a channel that fires at the nearest deadline, nil for none.
func (c *Client) nextTimer() <-chan time.Time {
	var at time.Time
	for _, t := range c.timers {
		if at.IsZero() || t.at.Before(at) {
			at = t.at
		}
	}
	if at.IsZero() {
		return nil
	}
	return time.After(max(0, at.Sub(c.opts.Now())))
}

func (c *Client) fire() {
	now := c.opts.Now()
	for name, t := range c.timers {
		if !t.at.After(now) {
			delete(c.timers, name)
			t.fire()
		}
	}
}

// relink makes the next snapshot of what is accepted, hands it over, and asks
// for what it turned out to need.
func (c *Client) relink() {
	c.prune()
	if c.newRefs {
		c.index()
	}
	c.snapshot, c.waiting = link.Next(c.snapshot, &c.accepted)
	c.watchWaits()
	before := c.facts
	c.phase()
	out := c.snapshot
	if !c.facts.Live {
		held := *c.snapshot
		held.Listeners = c.heldBack(held.Listeners)
		out = &held
	}
	c.adopt()
	switch same := sameSnapshot(c.applied, out); {
	case !same:
		c.applied = out
		c.opts.Apply(out)
	case out == c.snapshot:
		c.snapshot = c.applied // one copy is enough
	}
	if c.facts != before {
		c.changed()
	}
	c.resubscribe()
}

// adopt keeps one value of a cluster, as linked, where that is what was accepted.
func (c *Client) adopt() {
	for name, x := range c.snapshot.Clusters {
		if a := c.accepted.Clusters[name]; a != nil && a.Hash == x.Hash {
			c.accepted.Clusters[name] = x
		}
	}
}

// heldBack gives the listeners that may serve before the first configuration is
// whole.
func (c *Client) heldBack(all []*config.Listener) []*config.Listener {
	if !c.opts.StaticFirst {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(x *config.Listener) bool {
		return !slices.ContainsFunc(c.opts.Static.Listeners, func(s *config.Listener) bool { return s.Name == x.Name })
	})
}

// relinkEndpoints is relink for a push of endpoints, which names no new resource:
// its cost is the push's, not the mesh's. A cluster that waits needs the whole.
func (c *Client) relinkEndpoints(assignments map[string]bool) {
	if len(c.waiting) > 0 || c.snapshot == nil || !c.facts.Live {
		c.relink()
		return
	}
	var clusters []string
	for a := range assignments {
		clusters = append(clusters, c.usersOf(a)...)
	}
	c.advance(link.Endpoints(c.snapshot, &c.accepted, clusters))
}

// relinkRoutes is relink for a push of route tables, which name no new resource
// either. Listeners that wait for one need the whole.
func (c *Client) relinkRoutes() {
	if len(c.waiting) > 0 || c.snapshot == nil || !c.facts.Live || c.newRefs {
		c.relink()
		return
	}
	c.advance(link.Routes(c.snapshot, &c.accepted))
}

// advance makes next the snapshot in force, when it is another.
func (c *Client) advance(next *config.Snapshot) {
	if next != c.snapshot {
		c.snapshot, c.applied = next, next
		c.opts.Apply(next)
	}
}

// usersOf gives the clusters that take an assignment: usually the one of its name.
func (c *Client) usersOf(assignment string) []string {
	users := c.users[assignment]
	if x := c.cluster(assignment); x != nil && x.Type == config.EDS && x.EDSName == assignment {
		users = append(slices.Clip(users), assignment)
	}
	return users
}

// index notes which clusters take an assignment of another name.
func (c *Client) index() {
	c.users = map[string][]string{}
	c.eachCluster(func(x *config.Cluster) {
		if x.Type == config.EDS && x.EDSName != x.Name {
			c.users[x.EDSName] = append(c.users[x.EDSName], x.Name)
		}
	})
}

// phase moves through Envoy's order of initialisation: clusters, then listeners,
// then live.
func (c *Client) phase() {
	clusters, listeners := 0, 0
	for _, w := range c.waiting {
		if w.Cluster {
			clusters++
		} else {
			listeners++
		}
	}
	a := c.opts.ADS
	if !c.facts.Clusters && clusters == 0 && (a == nil || !a.CDS || c.facts.CDS) {
		c.facts.Clusters = true
		if a != nil && a.LDS {
			c.giveUp("lds", a.LDSTimeout, func() { c.facts.LDS = true })
		}
	}
	if c.facts.Clusters && listeners == 0 && (a == nil || !a.LDS || c.facts.LDS) {
		c.facts.Live = true
	}
}

// warming says whether a cluster waits for its endpoints or secrets.
func (c *Client) warming() bool {
	for _, w := range c.waiting {
		if w.Cluster {
			return true
		}
	}
	return false
}

// watchWaits starts a timer for each part with a time to wait, once, and drops
// those of parts nobody waits for any more.
func (c *Client) watchWaits() {
	current := make(map[string]bool, len(c.waiting))
	for _, w := range c.waiting {
		if w.Timeout == 0 {
			continue
		}
		name := fmt.Sprintf("wait/%d/%s/%d", w.Part.Kind, w.Part.Name, w.Part.Version)
		current[name] = true
		if _, ok := c.timers[name]; !ok {
			part := w.Part
			c.timers[name] = timer{c.opts.Now().Add(w.Timeout), func() { c.waitedEnough(part) }}
		}
	}
	for name := range c.timers {
		if len(name) > 5 && name[:5] == "wait/" && !current[name] {
			delete(c.timers, name)
		}
	}
}

func (c *Client) waitedEnough(p link.Part) {
	c.accepted.Settled[p] = true
	switch p.Kind {
	case link.KindRoutes:
		c.late[p.Name]++
	case link.KindEndpoints:
		c.count("cluster."+p.Name+".init_fetch_timeout", 1)
	}
	c.opts.Logf("%s %q didn't come in time", p.Kind, p.Name)
	c.relink()
	c.flush()
}

// prune forgets the settled endpoints of versions that are neither accepted nor
// in force any more.
func (c *Client) prune() {
	if c.snapshot == nil || len(c.accepted.Settled) < 64+2*(len(c.accepted.Clusters)+len(c.accepted.Static.Clusters)) {
		return
	}
	for p := range c.accepted.Settled {
		if p.Kind != link.KindEndpoints {
			continue
		}
		x, serves := c.cluster(p.Name), c.snapshot.Cluster(p.Name)
		if (x == nil || x.Hash != p.Version) && (serves == nil || serves.Hash != p.Version) {
			delete(c.accepted.Settled, p)
		}
	}
}

func (c *Client) cluster(name string) *config.Cluster {
	if x := c.accepted.Static.Clusters[name]; x != nil {
		return x
	}
	return c.accepted.Clusters[name]
}

// sameSnapshot compares by pointers, which link keeps for the unchanged.
func sameSnapshot(a, b *config.Snapshot) bool {
	if a == nil || a.Base != b.Base || len(a.Listeners) != len(b.Listeners) || a.Names != b.Names {
		return false
	}
	for i := range a.Listeners {
		if a.Listeners[i] != b.Listeners[i] {
			return false
		}
	}
	return sameMap(a.Clusters, b.Clusters) && sameMap(a.Routes, b.Routes) && sameMap(a.Secrets, b.Secrets)
}

func sameMap[V any](a, b map[string]*V) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}
