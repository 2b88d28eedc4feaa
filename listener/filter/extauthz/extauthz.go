// Package extauthz is envoy.filters.http.ext_authz: another service says whether
// a request may pass, and may change it. What can't be asked or understood is
// refused, unless the policy lets it pass.
//
// A check is read in the order of the files: extauthz decides whether to ask,
// facts gathers what the service is told, httpcheck and grpccheck ask, verdict
// reads a gRPC answer, apply goes on or refuses.
package extauthz

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct {
	*common
	route config.ExtAuthzRoute
}

// common is what a filter and its variants on routes share.
type common struct {
	policy *config.ExtAuthz
	name   string // of the filter: its name space in dynamic metadata
	add    *route.Mutations
	stats  names
}

// names of statistics, joined once.
type names struct{ ok, denied, error, disabled, open, invalid, ignored string }

// New makes the filter called name.
func New(p *config.ExtAuthz, name string) *Filter {
	prefix := "ext_authz."
	if p.StatPrefix != "" {
		prefix += p.StatPrefix + "."
	}
	c := &common{policy: p, name: name, stats: names{prefix + "ok", prefix + "denied", prefix + "error", prefix + "disabled",
		prefix + "failure_mode_allowed", prefix + "invalid", prefix + "ignored_dynamic_metadata"}}
	if p.HTTP != nil {
		c.add = route.CompileMutations(p.HTTP.Add)
	} else {
		c.add = route.CompileMutations(p.GRPC.Metadata)
	}
	return &Filter{common: c}
}

// ForRoute implements filter.Routed: the service is that of the chain's filter.
func (f *Filter) ForRoute(p config.HTTPPolicy) filter.HTTP {
	r, _ := p.(*config.ExtAuthzRoute)
	if r == nil {
		return f
	}
	return &Filter{common: f.common, route: *r}
}

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	f.touch(x)
	if f.route.Disabled {
		return filter.Continue
	}
	if !f.enabled(x) {
		return f.skip(x)
	}
	if f.wantsBody(x) {
		x.Limit, x.Partial = f.policy.Body.Max, f.policy.Body.Partial
		return filter.Gather
	}
	k := &check{f: f, x: x, began: x.Worker.Now()}
	s.Any = k
	k.ask()
	if k.over {
		return k.verdict
	}
	k.parked = true
	return filter.Park
}

// Encode implements filter.HTTP: the client gets what the service has for it.
func (f *Filter) Encode(x *filter.Exchange, s *filter.Slot) {
	if k, _ := s.Any.(*check); k != nil && !x.Local {
		apply(x.Response, k.toClient)
	}
}

// Done implements filter.Destroyer: nobody waits for the answer any more.
func (f *Filter) Done(_ *filter.Exchange, s *filter.Slot) {
	if k, _ := s.Any.(*check); k != nil && k.cancel != nil {
		k.cancel()
		k.cancel = nil
	}
}

func (f *Filter) touch(x *filter.Exchange) {
	n := &f.stats
	for _, name := range [...]string{n.ok, n.denied, n.error, n.disabled, n.open, n.invalid, n.ignored} {
		x.Stats.Touch(name)
	}
}

func (f *Filter) enabled(x *filter.Exchange) bool {
	m := f.policy.EnabledMetadata
	return x.Chance(f.policy.Enabled) && (m == nil || m.Match(x.Record.Dynamic))
}

func (f *Filter) skip(x *filter.Exchange) filter.Verdict {
	x.Stats.Inc(f.stats.disabled)
	if !f.policy.DenyDisabled {
		return filter.Continue
	}
	x.Reply(filter.Reply{Status: f.policy.ErrorStatus, Details: "ext_authz_error", Flag: telemetry.UAEX, GRPC: -1})
	return filter.Stop
}

// wantsBody reports whether content is waited for. A WebSocket has none that ends;
// any other upgrade is no way around the service.
func (f *Filter) wantsBody(x *filter.Exchange) bool {
	b := f.policy.Body
	if b == nil || f.route.NoBody || x.End || webSocket(x.Request) {
		return false
	}
	if b.Partial && len(x.Content) >= b.Max {
		return false
	}
	return !x.Whole || len(x.Content) > b.Max
}

func webSocket(h *httpmsg.Head) bool {
	return string(h.Protocol()) == "websocket" ||
		httpmsg.EqualFold(h.Get(httpmsg.Upgrade), "websocket") && httpmsg.HasToken(h.Get(httpmsg.Connection), "upgrade")
}
