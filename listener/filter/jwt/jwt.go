// Package jwt is envoy.filters.http.jwt_authn: requests must show tokens (JWT,
// RFC 7519) of issuers that the policy trusts. What a token says goes to dynamic
// metadata, where RBAC and routes see it, and to headers.
//
// A request is checked in the order of the files: jwt picks its requirement,
// requirement walks through it, locate finds tokens, token takes one apart,
// provider checks its claims, keys gets keys, verify checks its signature, check
// passes on what it says, answer goes on or refuses.
package jwt

import (
	"slices"
	"sort"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct {
	*common
	route *config.JWTRoute // nil: by the policy's rules
}

// common is what a filter and its variants on routes share.
type common struct {
	policy     *config.JWT
	providers  []*provider
	everywhere *places // of all providers
	rules      *route.Table
	needs      []*node // by rule
	named      map[string]*node
	stats      names
}

// names of statistics, joined once.
type names struct{ allowed, denied, preflight, fetched, fetchFailed, cacheHit, cacheMiss string }

// New makes the filter.
func New(p *config.JWT) *Filter {
	c := &common{policy: p, everywhere: placesOf(p.Providers), named: map[string]*node{}, stats: statNames(p.StatPrefix)}
	for i := range p.Providers {
		c.providers = append(c.providers, newProvider(&p.Providers[i]))
	}
	host := &config.VirtualHost{Domains: []string{"*"}}
	for i := range p.Rules {
		host.Routes = append(host.Routes, &config.Route{Match: p.Rules[i].Match})
		c.needs = append(c.needs, c.compile(p.Rules[i].Requires))
	}
	for name, r := range p.Requirements {
		c.named[name] = c.compile(r)
	}
	c.rules = route.Compile(&config.RouteConfiguration{VirtualHosts: []*config.VirtualHost{host}})
	return &Filter{common: c}
}

func statNames(prefix string) names {
	if prefix = "jwt_authn." + prefix; !strings.HasSuffix(prefix, ".") {
		prefix += "."
	}
	return names{prefix + "allowed", prefix + "denied", prefix + "cors_preflight_bypassed",
		prefix + "jwks_fetch_success", prefix + "jwks_fetch_failed", prefix + "jwt_cache_hit", prefix + "jwt_cache_miss"}
}

// ForRoute implements filter.Routed: keys and providers are those of the chain's
// filter.
func (f *Filter) ForRoute(p config.HTTPPolicy) filter.HTTP {
	r, _ := p.(*config.JWTRoute)
	return &Filter{common: f.common, route: r}
}

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	f.touch(x)
	f.everywhere.sanitize(x.Request)
	if f.route != nil && f.route.Disabled {
		return filter.Continue
	}
	if f.policy.BypassPreflight && preflight(x.Request) {
		x.Stats.Inc(f.stats.preflight)
		x.Stats.Inc(f.stats.allowed)
		return filter.Continue
	}
	need, known := f.need(x)
	if !known {
		return f.wrongName(x)
	}
	if need == nil {
		x.Stats.Inc(f.stats.allowed)
		return filter.Continue
	}
	k := &check{f: f, x: x, uri: uri(x.Request)}
	k.run(need, k.done)
	if k.over {
		return k.answer()
	}
	k.parked, s.Any = true, k
	return filter.Park
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(*filter.Exchange, *filter.Slot) {}

// Done implements filter.Destroyer: nobody waits for keys any more.
func (f *Filter) Done(_ *filter.Exchange, s *filter.Slot) {
	if k, _ := s.Any.(*check); k != nil && k.cancel != nil {
		k.cancel()
		k.cancel = nil
	}
}

func (f *Filter) touch(x *filter.Exchange) {
	n := &f.stats
	for _, name := range [...]string{n.allowed, n.denied, n.preflight, n.fetched, n.fetchFailed, n.cacheHit, n.cacheMiss} {
		x.Stats.Touch(name)
	}
}

// need gives what the request must show, nil for nothing; known is false when
// its route names a requirement that isn't there.
func (f *Filter) need(x *filter.Exchange) (n *node, known bool) {
	if f.route != nil {
		n, known = f.named[f.route.Requirement]
		return n, known
	}
	q := route.Request{Head: x.Request, Random: x.Random}
	if r, _ := f.rules.Match(&q); r != nil {
		return f.needs[r.Index], true
	}
	return nil, true
}

func (f *Filter) wrongName(x *filter.Exchange) filter.Verdict {
	list := make([]string, 0, len(f.named))
	for name := range f.named {
		list = append(list, name)
	}
	sort.Strings(list)
	text := "Wrong requirement_name: " + f.route.Requirement + ". It should be one of [" + strings.Join(list, ",") + "]"
	x.Stats.Inc(f.stats.denied)
	x.Reply(filter.Reply{Status: 403, Body: "Failed JWT authentication: " + text, Details: details(text), GRPC: -1, Flag: telemetry.FlagNone})
	return filter.Stop
}

// issuedBy finds the provider of an issuer, or one of any.
func (f *Filter) issuedBy(issuer string) *provider {
	for _, want := range [...]string{issuer, ""} {
		if i := slices.IndexFunc(f.providers, func(p *provider) bool { return p.Issuer == want }); i >= 0 {
			return f.providers[i]
		}
	}
	return nil
}

func preflight(h *httpmsg.Head) bool {
	return string(h.Method()) == "OPTIONS" && len(h.Get(httpmsg.Origin)) > 0 && len(h.Get(httpmsg.AccessControlRequestMethod)) > 0
}
