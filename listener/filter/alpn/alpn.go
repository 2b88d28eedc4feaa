// Package alpn is istio.alpn: it chooses what the upstream handshake offers by
// the protocol that the cluster will be spoken to.
package alpn

import (
	"strings"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct {
	lists [telemetry.HTTP2 + 1][]string
	keys  [telemetry.HTTP2 + 1]string
}

// New makes the filter.
func New(p *config.IstioALPN) *Filter {
	f := &Filter{}
	f.lists[telemetry.HTTP10], f.lists[telemetry.HTTP11], f.lists[telemetry.HTTP2] = p.HTTP10, p.HTTP11, p.HTTP2
	for i, l := range f.lists {
		f.keys[i] = strings.Join(l, ",")
	}
	return f
}

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	p := x.Record.Protocol
	if c := x.Cluster(); c != nil {
		switch c.HTTP.Kind {
		case config.UpstreamHTTP1:
			p = min(p, telemetry.HTTP11)
		case config.UpstreamHTTP2:
			p = telemetry.HTTP2
		}
	}
	if l := f.lists[p]; len(l) > 0 {
		x.ALPN, x.ALPNKey = l, f.keys[p]
	}
	return filter.Continue
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(*filter.Exchange, *filter.Slot) {}
