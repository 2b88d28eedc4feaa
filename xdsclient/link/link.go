// Package link joins what was received by name: clusters with their endpoints,
// listeners with route tables, secrets and discovered filters. Next is a pure
// function of the last snapshot and of everything accepted since; it decides
// what is whole and may serve, and tells what the rest is waiting for. It keeps
// no state, no clock and no connection: xdsclient, its only caller, does.
package link

import (
	"iter"
	"maps"
	"time"

	"sluice/internal/config"
)

// Kind is the kind of a part that a resource can wait for.
type Kind uint8

// The kinds of parts.
const (
	KindEndpoints Kind = iota
	KindRoutes
	KindSecrets
	KindExtensions
)

// String gives the kind's xDS abbreviation.
func (k Kind) String() string {
	return [...]string{"EDS", "RDS", "SDS", "ECDS"}[k]
}

// Part names one thing that is waited for. Endpoints are waited for by each
// version of a cluster, so Name is the cluster's, Version its hash and
// Assignment what it takes them from; other parts are waited for once and have
// only a name.
type Part struct {
	Kind       Kind
	Name       string
	Version    uint64
	Assignment string
}

// EndpointsOf is the part that c waits for.
func EndpointsOf(c *config.Cluster) Part {
	return Part{Kind: KindEndpoints, Name: c.Name, Version: c.Hash, Assignment: c.EDSName}
}

// Waiting is one resource that can't enter yet, and one of its reasons.
type Waiting struct {
	Cluster  bool // else a listener
	Resource string
	Part     Part
	Timeout  time.Duration // 0: for ever
}

// Accepted is everything received that was good, the newest version of each
// name. Next only reads it; values in it never change.
type Accepted struct {
	Static     *config.Snapshot
	Clusters   map[string]*config.Cluster
	Listeners  []*config.Listener // in order of first arrival
	Loads      map[string]*config.LoadAssignment
	Routes     map[string]*config.RouteConfiguration
	Secrets    map[string]*config.Secret
	Extensions map[string]config.HTTPPolicy
	Names      *config.NameTable
	// Settled parts are not waited for any more: endpoints have answered for
	// that version of the cluster, or the time to wait has run out.
	Settled map[Part]bool
}

// Next gives the snapshot that a follows previous (nil at first) with, and what
// is missing from it. A cluster or listener that isn't whole leaves its previous
// version in place. Values that haven't changed keep their pointers, so whoever
// runs a snapshot can compare these.
func Next(previous *config.Snapshot, a *Accepted) (*config.Snapshot, []Waiting) {
	if previous == nil {
		previous = &config.Snapshot{}
	}
	l := linker{previous: previous, accepted: a, next: &config.Snapshot{
		Clusters: make(map[string]*config.Cluster, len(a.Clusters)+len(a.Static.Clusters)),
		Routes:   make(map[string]*config.RouteConfiguration, len(a.Routes)),
		Secrets:  make(map[string]*config.Secret, len(a.Secrets)+len(a.Static.Secrets)),
		Names:    a.Names,
	}}
	for n, s := range a.Secrets {
		l.next.Secrets[n] = s
	}
	for n, s := range a.Static.Secrets {
		l.next.Secrets[n] = s
	}
	for _, c := range a.Clusters {
		l.cluster(c)
	}
	for _, c := range a.Static.Clusters { // static names can't be overridden
		l.cluster(c)
	}
	l.listeners()
	l.routes()
	return l.next, l.waiting
}

// Endpoints is Next for a push of endpoints only, when nothing waits: the named
// clusters are linked anew, everything else of previous stays. It gives previous
// itself when nothing changed. Its cost is that of the named clusters: what
// changed is laid over the last complete snapshot, until that is too much.
func Endpoints(previous *config.Snapshot, a *Accepted, clusters []string) *config.Snapshot {
	l := linker{previous: previous, accepted: a}
	changed := make(map[string]*config.Cluster, len(clusters))
	for _, name := range clusters {
		before := previous.Cluster(name)
		if before == nil {
			continue
		}
		if linked := l.withLoad(before, before); linked != before {
			changed[name] = linked
		}
	}
	if len(changed) == 0 {
		return previous
	}
	whole := previous.Whole()
	if previous.Base != nil {
		addMissing(changed, previous.Clusters)
	}
	next := *previous
	next.Base, next.Clusters = whole, changed
	if len(changed) > laidOver(len(whole.Clusters)) {
		next.Base, next.Clusters = nil, maps.Clone(whole.Clusters)
		maps.Copy(next.Clusters, changed)
	}
	return &next
}

// laidOver is how many changed clusters may lie over a complete snapshot of n:
// copying n once in as many changes is a small part of each.
func laidOver(n int) int { return 64 + n/64 }

// addMissing adds what to hasn't got.
func addMissing(to, from map[string]*config.Cluster) {
	for name, c := range from {
		if to[name] == nil {
			to[name] = c
		}
	}
}

type linker struct {
	previous *config.Snapshot
	accepted *Accepted
	next     *config.Snapshot
	waiting  []Waiting
}

// cluster enters c, or its previous version with fresh endpoints.
func (l *linker) cluster(c *config.Cluster) {
	before := l.previous.Cluster(c.Name)
	waits := l.clusterWaits(c)
	if len(waits) > 0 {
		l.waiting = append(l.waiting, waits...)
		if before != nil {
			l.next.Clusters[c.Name] = l.withLoad(before, before)
		}
		return
	}
	l.next.Clusters[c.Name] = l.withLoad(c, before)
}

// withLoad gives c with its newest endpoints: before itself when that is equal.
func (l *linker) withLoad(c, before *config.Cluster) *config.Cluster {
	load := c.Load
	if c.Type == config.EDS {
		if load = l.accepted.Loads[c.EDSName]; load == nil {
			load = noEndpoints(c, before)
		}
	}
	switch {
	case before != nil && before.Hash == c.Hash && before.Load == load:
		return before
	case before != nil && before.Hash == c.Hash && c.Type != config.EDS:
		return before // static: the same bytes, translated again
	case c.Load == load:
		return c
	}
	linked := *c
	linked.Load = load
	return &linked
}

func noEndpoints(c, before *config.Cluster) *config.LoadAssignment {
	if before != nil && before.Load != nil && before.Load.Name == c.EDSName && len(before.Load.Localities) == 0 {
		return before.Load
	}
	return &config.LoadAssignment{Meta: config.Meta{Name: c.EDSName}, OverProvision: 140}
}

func (l *linker) clusterWaits(c *config.Cluster) []Waiting {
	var out []Waiting
	if c.Type == config.EDS {
		p := EndpointsOf(c)
		if !l.accepted.Settled[p] {
			out = append(out, Waiting{Cluster: true, Resource: c.Name, Part: p, Timeout: c.EDSTimeout})
		}
	}
	for r := range ClusterSecrets(c) {
		if l.missingSecret(r) {
			out = append(out, Waiting{Cluster: true, Resource: c.Name, Part: Part{Kind: KindSecrets, Name: r.Name}, Timeout: r.Wait})
		}
	}
	return out
}

func (l *linker) missingSecret(r *config.SecretRef) bool {
	return l.next.Secrets[r.Name] == nil && !l.accepted.Settled[Part{Kind: KindSecrets, Name: r.Name}]
}

// ClusterTLS gives the TLS settings of a cluster.
func ClusterTLS(c *config.Cluster) iter.Seq[*config.TLSParams] {
	return func(yield func(*config.TLSParams) bool) {
		if c.TLS != nil && !yield(&c.TLS.TLSParams) {
			return
		}
		for i := range c.SocketMatches {
			if t := c.SocketMatches[i].TLS; t != nil && !yield(&t.TLSParams) {
				return
			}
		}
	}
}

// ListenerTLS gives the TLS settings of a listener.
func ListenerTLS(x *config.Listener) iter.Seq[*config.TLSParams] {
	return func(yield func(*config.TLSParams) bool) {
		for _, c := range chains(x) {
			if c.TLS != nil && !yield(&c.TLS.TLSParams) {
				return
			}
		}
	}
}

// ClusterSecrets gives the named secrets of a cluster.
func ClusterSecrets(c *config.Cluster) iter.Seq[*config.SecretRef] { return secrets(ClusterTLS(c)) }

// ListenerSecrets gives the named secrets of a listener.
func ListenerSecrets(x *config.Listener) iter.Seq[*config.SecretRef] { return secrets(ListenerTLS(x)) }

func secrets(all iter.Seq[*config.TLSParams]) iter.Seq[*config.SecretRef] {
	return func(yield func(*config.SecretRef) bool) {
		for p := range all {
			if !named(p, yield) {
				return
			}
		}
	}
}

// named yields the named secrets of p until it is told to stop.
func named(p *config.TLSParams, yield func(*config.SecretRef) bool) bool {
	for i := range p.Certificates {
		if r := &p.Certificates[i]; r.Inline == nil && r.Name != "" && !yield(r) {
			return false
		}
	}
	if p.Validation != nil && p.Validation.Ref.Name != "" && !yield(&p.Validation.Ref) {
		return false
	}
	return p.Tickets.Inline != nil || p.Tickets.Name == "" || yield(&p.Tickets)
}

func chains(x *config.Listener) []*config.FilterChain {
	if x.DefaultChain == nil {
		return x.Chains
	}
	return append(x.Chains[:len(x.Chains):len(x.Chains)], x.DefaultChain)
}

// Managers gives the HTTP connection managers of a listener, chain by chain.
func Managers(x *config.Listener) []*config.HTTPConnectionManager {
	var out []*config.HTTPConnectionManager
	for _, c := range chains(x) {
		for _, f := range c.Filters {
			if m, ok := f.(*config.HTTPConnectionManager); ok {
				out = append(out, m)
			}
		}
	}
	return out
}
