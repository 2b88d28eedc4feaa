package httpproxy

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"sluice/internal/config"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// table is a compiled route configuration with the filter chains of its routes:
// those of routes that override some of their connection manager's filters are
// built at the first request.
type table struct {
	routes  *route.Table
	workers []map[chainKey]*chain // what each worker has looked up

	mu      sync.Mutex
	chains  map[chainKey]*chain
	filters map[filterKey]filter.HTTP // of overriding policies: routes that share one share its state
}

// chainKey names the chain of a route: with weighted clusters that override
// filters, of one of them.
type chainKey struct {
	base     *chain
	route    *config.Route
	weighted int
}

type filterKey struct {
	base   *chain
	at     int
	policy config.HTTPPolicy
}

func (s *Server) table(c *config.RouteConfiguration) *table {
	return &table{routes: route.Compile(c), workers: make([]map[chainKey]*chain, len(s.locals)),
		chains: make(map[chainKey]*chain), filters: make(map[filterKey]filter.HTTP)}
}

// levels are the overrides a route is under, the most specific first.
type levels [4]map[string]config.HTTPPolicy

func levelsOf(r *route.Route, weighted int) (l levels, any bool) {
	l = levels{nil, r.Config.PerFilter, r.Host.Config.PerFilter, r.Table.Config.PerFilter}
	if a := r.Config.Action; a != nil && weighted >= 0 && weighted < len(a.Weighted) {
		l[0] = a.Weighted[weighted].PerFilter
	}
	return l, len(l[0])+len(l[1])+len(l[2])+len(l[3]) > 0
}

// most gives the most specific override of a filter, nil without.
func (l *levels) most(name string) config.HTTPPolicy {
	for _, m := range l {
		if p, ok := m[name]; ok {
			return p
		}
	}
	return nil
}

// chainOf gives the filters of the request's route.
func (r *request) chainOf() *chain {
	base := r.proxy.filters()
	weighted := -1
	if a := r.route.Config.Action; a != nil && len(a.Weighted) > 0 {
		_, weighted = r.route.Cluster(&r.match)
	}
	l, any := levelsOf(r.route, weighted)
	if !any {
		return base
	}
	if len(l[0]) == 0 {
		weighted = -1
	}
	k, t := chainKey{base, r.route.Config, weighted}, r.table
	mine := t.workers[r.local.index]
	if c := mine[k]; c != nil {
		return c
	}
	if mine == nil {
		mine = make(map[chainKey]*chain)
		t.workers[r.local.index] = mine
	}
	c := t.chain(r.proxy, k, &l)
	mine[k] = c
	return c
}

// chain builds the chain of k, or finds what another worker has built.
func (t *table) chain(p *Proxy, k chainKey, l *levels) *chain {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.chains[k]; c != nil {
		return c
	}
	c := &chain{list: k.base.list}
	for i := range k.base.list {
		h, err := t.filter(p, k.base, i, l)
		if err != nil { // a filter that can't be made is never passed by
			h = missing{}
		}
		c.add(h)
	}
	t.chains[k] = c
	return c
}

// filter gives filter i of a chain under overrides; nil when it is off.
func (t *table) filter(p *Proxy, base *chain, i int, l *levels) (filter.HTTP, error) {
	f := &base.list[i]
	switch o := l.most(f.Name).(type) {
	case nil:
		return base.built[i], nil
	case *config.DisabledFilter:
		return nil, nil
	case *config.EnabledFilter:
		if base.built[i] != nil {
			return base.built[i], nil
		}
		return t.override(p, base, i, f.Policy)
	case *config.JWTRoute:
		return t.variant(p, base, i, o)
	case *config.ExtAuthzRoute:
		return t.variant(p, base, i, contexts(f.Name, o, l))
	case *config.HeaderMutationFilter:
		return p.make(&config.HTTPFilter{Name: f.Name, Policy: mutations(f, l)})
	case *config.CORS:
		return p.make(&config.HTTPFilter{Name: f.Name, Policy: origins(f.Name, l)})
	default:
		return t.override(p, base, i, o)
	}
}

// override gives the filter of a route's own policy. A rate limit is one for all
// connection managers that use the table, as in Envoy, whatever their filters.
func (t *table) override(p *Proxy, base *chain, i int, policy config.HTTPPolicy) (filter.HTTP, error) {
	k := filterKey{base, i, policy}
	if _, ok := policy.(*config.LocalRateLimit); ok {
		k.base, k.at = nil, 0
	}
	if h, ok := t.filters[k]; ok {
		return h, nil
	}
	h, err := p.make(&config.HTTPFilter{Name: base.list[i].Name, Policy: policy})
	if err == nil {
		t.filters[k] = h
	}
	return h, err
}

// variant gives what the chain's own filter i does on a route; where that is off
// in the chain, of one made for the route.
func (t *table) variant(p *Proxy, base *chain, i int, policy config.HTTPPolicy) (filter.HTTP, error) {
	h := base.built[i]
	if h == nil {
		var err error
		if h, err = t.override(p, base, i, base.list[i].Policy); err != nil {
			return nil, err
		}
	}
	r, ok := h.(filter.Routed)
	if !ok {
		return nil, fmt.Errorf("filter %q: a route's policy is %T", base.list[i].Name, policy)
	}
	return r.ForRoute(policy), nil
}

// contexts has a service asked with what all levels tell it, the most specific
// last; the rest of a route's word is that of o.
func contexts(name string, o *config.ExtAuthzRoute, l *levels) *config.ExtAuthzRoute {
	out := *o
	out.Context = map[string]string{}
	for _, m := range slices.Backward(l[:]) {
		if r, ok := m[name].(*config.ExtAuthzRoute); ok {
			maps.Copy(out.Context, r.Context)
		}
	}
	return &out
}

// mutations joins the edits of all levels: an override of header mutation adds
// to those above it. The chain's own act first, then the most specific level
// (with most_specific_header_mutations_wins the least specific).
func mutations(f *config.HTTPFilter, l *levels) *config.HeaderMutationFilter {
	out := &config.HeaderMutationFilter{}
	last := &out.Next
	add := func(p config.HTTPPolicy) {
		if m, ok := p.(*config.HeaderMutationFilter); ok {
			level := *m
			*last, last = &level, &level.Next
		}
	}
	own, _ := f.Policy.(*config.HeaderMutationFilter)
	add(f.Policy)
	for i := range l {
		if own != nil && own.MostSpecificWins {
			i = len(l) - 1 - i
		}
		add(l[i][f.Name])
	}
	return out
}

// origins joins the CORS policies of all levels: what a policy leaves out is
// taken from the one above it.
func origins(name string, l *levels) *config.CORS {
	var out *config.CORS
	for _, m := range l {
		p, ok := m[name].(*config.CORS)
		if !ok {
			continue
		}
		if out == nil {
			c := *p
			out = &c
			continue
		}
		if len(out.Origins) == 0 {
			out.Origins = p.Origins
		}
		for _, f := range [...]struct {
			to   *string
			from string
		}{{&out.Methods, p.Methods}, {&out.Headers, p.Headers}, {&out.Expose, p.Expose}, {&out.MaxAge, p.MaxAge}} {
			if *f.to == "" {
				*f.to = f.from
			}
		}
		for _, f := range [...]struct {
			to   **bool
			from *bool
		}{{&out.Credentials, p.Credentials}, {&out.PrivateNetwork, p.PrivateNetwork}, {&out.ForwardNotMatched, p.ForwardNotMatched}} {
			if *f.to == nil {
				*f.to = f.from
			}
		}
	}
	return out
}
