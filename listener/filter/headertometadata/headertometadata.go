// Package headertometadata is envoy.filters.http.header_to_metadata: it writes
// what headers and cookies say to dynamic metadata, for load balancing, logs and
// policies behind it.
package headertometadata

import (
	"strconv"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// maxValue is how long a value may be that becomes metadata, bytes.
const maxValue = 8 << 10

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct{ policy *config.HeaderToMetadata }

// New makes the filter.
func New(p *config.HeaderToMetadata) *Filter { return &Filter{policy: p} }

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	apply(x, x.Request, f.policy.Request)
	return filter.Continue
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(x *filter.Exchange, _ *filter.Slot) {
	apply(x, x.Response, f.policy.Response)
}

func apply(x *filter.Exchange, h *httpmsg.Head, rules []config.MetadataRule) {
	for i := range rules {
		r := &rules[i]
		v, ok := find(x, h, r)
		switch {
		case ok && r.Present != nil:
			write(x, r.Present, string(v))
		case !ok && r.Missing != nil:
			write(x, r.Missing, "")
		}
		if ok && r.Remove {
			h.DelName(r.Header)
		}
	}
}

// find gives the rule's header, all its lines joined, or its cookie.
func find(x *filter.Exchange, h *httpmsg.Head, r *config.MetadataRule) ([]byte, bool) {
	if r.Header != "" {
		return route.Joined(h, r.Header, &x.Scratch)
	}
	v, ok := route.Cookie(h, r.Cookie)
	return v, ok && len(v) > 0
}

// write writes a value, unless it is empty, too long or no number.
func write(x *filter.Exchange, m *config.MetadataFrom, v string) {
	switch {
	case m.Value != "":
		v = m.Value
	case m.Rewrite != nil:
		v = m.Rewrite.Regex.ReplaceAllString(v, m.Rewrite.Substitution)
	}
	if v == "" || len(v) >= maxValue {
		return
	}
	if !m.Number {
		x.Record.Dynamic.Set(m.Namespace, m.Key, v)
		return
	}
	if n, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
		x.Record.Dynamic.Set(m.Namespace, m.Key, n)
	}
}
