// Package cors is the CORS filter: it answers preflight requests of allowed
// origins and marks the responses to their simple requests (Fetch standard,
// CORS protocol).
package cors

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct{ policy *config.CORS }

// New makes the filter.
func New(p *config.CORS) *Filter { return &Filter{policy: p} }

// The slot's first number says that the origin is allowed; its bytes keep the
// origin.
const allowed = 0

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	origin, p := x.Request.Get(httpmsg.Origin), f.policy
	if len(origin) == 0 || len(p.Origins) == 0 {
		return filter.Continue
	}
	enabled := x.Chance(p.Enabled)
	if !enabled && !x.Chance(p.Shadow) {
		return filter.Continue
	}
	ok := f.allows(origin)
	if ok {
		x.Stats.Inc("cors.origin_valid")
	} else {
		x.Stats.Inc("cors.origin_invalid")
	}
	if !enabled {
		return filter.Continue
	}
	preflight := string(x.Request.Method()) == "OPTIONS" && len(x.Request.Get(httpmsg.AccessControlRequestMethod)) > 0
	if !ok {
		if preflight && p.ForwardNotMatched != nil && !*p.ForwardNotMatched {
			x.Reply(filter.Reply{Status: 200, Details: "cors_response", GRPC: -1, Headers: func(h *httpmsg.Head) { f.preflight(x, h, nil) }})
			return filter.Stop
		}
		return filter.Continue
	}
	s.B = append(s.B[:0], origin...)
	if !preflight {
		s.N[allowed] = 1
		return filter.Continue
	}
	x.Reply(filter.Reply{Status: 200, Details: "cors_response", GRPC: -1, Headers: func(h *httpmsg.Head) { f.preflight(x, h, s.B) }})
	return filter.Stop
}

func (f *Filter) allows(origin []byte) bool {
	for i := range f.policy.Origins {
		m := &f.policy.Origins[i]
		if m.Kind == config.MatchExact && m.Value == "*" || route.StringMatches(m, origin) {
			return true
		}
	}
	return false
}

// preflight writes the answer's headers.
func (f *Filter) preflight(x *filter.Exchange, h *httpmsg.Head, origin []byte) {
	p := f.policy
	if origin != nil {
		h.AddName("access-control-allow-origin", origin)
	}
	if p.Credentials != nil && *p.Credentials {
		h.AddName("access-control-allow-credentials", []byte("true"))
	}
	for _, l := range [...]struct{ name, value string }{{"access-control-allow-methods", p.Methods},
		{"access-control-allow-headers", p.Headers}, {"access-control-expose-headers", p.Expose},
		{"access-control-max-age", p.MaxAge}} {
		switch {
		case l.value == "*" && l.name == "access-control-allow-methods":
			h.AddName(l.name, x.Request.Get(httpmsg.AccessControlRequestMethod))
		case l.value == "*" && l.name == "access-control-allow-headers":
			v, _ := x.Request.Value("access-control-request-headers")
			h.AddName(l.name, v)
		case l.name == "access-control-expose-headers" && origin == nil:
		case l.value != "":
			h.AddName(l.name, []byte(l.value))
		}
	}
	if v, ok := x.Request.Value("access-control-request-private-network"); ok && string(v) == "true" && p.PrivateNetwork != nil && *p.PrivateNetwork {
		h.AddName("access-control-allow-private-network", []byte("true"))
	}
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(x *filter.Exchange, s *filter.Slot) {
	if s.N[allowed] == 0 {
		return
	}
	h, p := x.Response, f.policy
	set(h, "access-control-allow-origin", s.B)
	if p.Credentials != nil && *p.Credentials {
		set(h, "access-control-allow-credentials", []byte("true"))
	}
	if p.Expose != "" {
		set(h, "access-control-expose-headers", []byte(p.Expose))
	}
}

func set(h *httpmsg.Head, name string, v []byte) {
	h.DelName(name)
	h.AddName(name, v)
}
