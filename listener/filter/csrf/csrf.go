// Package csrf is the CSRF filter: a request that changes something must come
// from a page of the host it goes to, or from an origin that is allowed.
package csrf

import (
	"bytes"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct{ policy *config.CSRF }

// New makes the filter.
func New(p *config.CSRF) *Filter { return &Filter{policy: p} }

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	for _, name := range [...]string{"csrf.missing_source_origin", "csrf.request_invalid", "csrf.request_valid"} {
		x.Stats.Touch(name)
	}
	enabled := x.Chance(f.policy.Enabled)
	if !enabled && !x.Chance(f.policy.Shadow) || !changes(x.Request.Method()) {
		return filter.Continue
	}
	source := origin(x.Request)
	switch {
	case len(source) == 0:
		x.Stats.Inc("csrf.missing_source_origin")
	case !f.allows(source, x.Request):
		x.Stats.Inc("csrf.request_invalid")
	default:
		x.Stats.Inc("csrf.request_valid")
		return filter.Continue
	}
	if !enabled {
		return filter.Continue
	}
	x.Reply(filter.Reply{Status: 403, Body: "Invalid origin", Details: "csrf_origin_mismatch", Flag: telemetry.FlagNone, GRPC: -1})
	return filter.Stop
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(*filter.Exchange, *filter.Slot) {}

func changes(method []byte) bool {
	switch string(method) {
	case "POST", "PUT", "DELETE", "PATCH":
		return true
	}
	return false
}

// origin gives host and port of the page that the request comes from, as Origin
// says or, without one, Referer; none when it is not to be told ("null").
func origin(h *httpmsg.Head) []byte {
	if v := h.Get(httpmsg.Origin); len(v) > 0 {
		if string(v) == "null" {
			return nil
		}
		return hostAndPort(v)
	}
	v, _ := h.Value("referer")
	return hostAndPort(v)
}

func (f *Filter) allows(source []byte, h *httpmsg.Head) bool {
	if bytes.Equal(source, hostAndPort(h.Authority())) {
		return true
	}
	for i := range f.policy.Origins {
		if route.StringMatches(&f.policy.Origins[i], source) {
			return true
		}
	}
	return false
}

// hostAndPort cuts them out of a URL; what is none is taken as it is.
func hostAndPort(v []byte) []byte {
	scheme, rest, ok := bytes.Cut(v, []byte("://"))
	if !ok || len(scheme) == 0 || bytes.ContainsAny(scheme, "/?#@:") {
		return v
	}
	if i := bytes.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	rest = rest[bytes.LastIndexByte(rest, '@')+1:]
	if len(rest) == 0 {
		return v
	}
	return rest
}
