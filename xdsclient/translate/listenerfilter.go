package translate

import (
	"cmp"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"slices"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldst "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrc "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	proxyprotocol "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"

	"sluice/internal/config"
)

func (s scope) listenerFilters(in []*listener.ListenerFilter) config.ListenerFilters {
	var out config.ListenerFilters
	for i, f := range in {
		at := s.index("listener_filters", i)
		at.unsupported(f.GetConfigDiscovery() != nil, "config_discovery", "listener filters by extension discovery")
		if f.GetConfigDiscovery() != nil {
			continue
		}
		t, ok := at.at("typed_config").unwrap(f.GetName(), f.GetTypedConfig())
		if !ok {
			continue
		}
		decode, ok := s.r.ListenerFilters[t.name]
		if !ok {
			at.missing(f.GetName(), t.name)
			continue
		}
		off := at.at("filter_disabled").disabled(f.GetFilterDisabled())
		decode(at.at("typed_config"), t, off, &out)
	}
	return out
}

// disabled converts a filter_disabled predicate into port ranges: any_match,
// port ranges and their unions are what listeners use; the rest is refused.
func (s scope) disabled(p *listener.ListenerFilterChainMatchPredicate) config.Inspector {
	var out config.Inspector
	if p == nil {
		return out
	}
	switch x := p.GetRule().(type) {
	case *listener.ListenerFilterChainMatchPredicate_AnyMatch:
		out.DisabledAll = x.AnyMatch
	case *listener.ListenerFilterChainMatchPredicate_DestinationPortRange:
		r := x.DestinationPortRange
		out.DisabledPorts = [][2]uint32{{uint32(max(0, r.GetStart())), uint32(max(0, r.GetEnd()))}}
	case *listener.ListenerFilterChainMatchPredicate_OrMatch:
		for i, r := range x.OrMatch.GetRules() {
			one := s.index("or_match.rules", i).disabled(r)
			out.DisabledAll = out.DisabledAll || one.DisabledAll
			out.DisabledPorts = append(out.DisabledPorts, one.DisabledPorts...)
		}
	case *listener.ListenerFilterChainMatchPredicate_NotMatch:
		out = complement(s.at("not_match").disabled(x.NotMatch))
	case *listener.ListenerFilterChainMatchPredicate_AndMatch:
		// a and b is not (not a or not b)
		var either config.Inspector
		for i, r := range x.AndMatch.GetRules() {
			one := complement(s.index("and_match.rules", i).disabled(r))
			either.DisabledAll = either.DisabledAll || one.DisabledAll
			either.DisabledPorts = append(either.DisabledPorts, one.DisabledPorts...)
		}
		out = complement(either)
	}
	return out
}

// complement gives the ports that i leaves out.
func complement(i config.Inspector) config.Inspector {
	if i.DisabledAll {
		return config.Inspector{}
	}
	var out config.Inspector
	start := uint32(0)
	ports := slices.Clone(i.DisabledPorts)
	slices.SortFunc(ports, func(a, b [2]uint32) int { return cmp.Compare(a[0], b[0]) })
	for _, r := range ports {
		if r[0] > start {
			out.DisabledPorts = append(out.DisabledPorts, [2]uint32{start, r[0]})
		}
		start = max(start, r[1])
	}
	if start < 65536 {
		out.DisabledPorts = append(out.DisabledPorts, [2]uint32{start, 65536})
	}
	return out
}

func originalDst(s scope, t typed, off config.Inspector, out *config.ListenerFilters) {
	var m originaldst.OriginalDst
	if s.decode(t, &m) {
		out.OriginalDst = !off.DisabledAll
	}
}

func originalSrc(s scope, t typed, off config.Inspector, out *config.ListenerFilters) {
	var m originalsrc.OriginalSrc
	if s.decode(t, &m) && !off.DisabledAll {
		out.OriginalSrc = &config.OriginalSrc{Mark: m.GetMark()}
	}
}

func tlsInspector(s scope, t typed, off config.Inspector, out *config.ListenerFilters) {
	var m tlsinspector.TlsInspector
	if s.decode(t, &m) {
		out.TLSInspector = &off
	}
}

func httpInspector(s scope, t typed, off config.Inspector, out *config.ListenerFilters) {
	var m httpinspector.HttpInspector
	if s.decode(t, &m) {
		out.HTTPInspector = &off
	}
}

func proxyProtocol(s scope, t typed, off config.Inspector, out *config.ListenerFilters) {
	var m proxyprotocol.ProxyProtocol
	if s.decode(t, &m) && !off.DisabledAll {
		p := &config.ProxyProtocol{AllowWithoutHeader: m.GetAllowRequestsWithoutProxyProtocol(), StatPrefix: m.GetStatPrefix()}
		if p.StatPrefix != "" {
			p.StatPrefix += "."
		}
		for _, v := range m.GetDisallowedVersions() {
			p.Disallowed[v] = true
		}
		for i, r := range m.GetRules() {
			if r.GetTlvType() > 255 {
				s.index("rules", i).at("tlv_type").bad("%d is more than 255", r.GetTlvType())
			}
			p.Rules = append(p.Rules, tlvRule(r))
		}
		p.PassAll, p.Pass = passTLVs(m.GetPassThroughTlvs())
		out.ProxyProtocol = p
	}
}

func tlvRule(r *proxyprotocol.ProxyProtocol_Rule) config.TLVRule {
	out := config.TLVRule{Type: byte(r.GetTlvType()), Namespace: r.GetOnTlvPresent().GetMetadataNamespace(), Key: r.GetOnTlvPresent().GetKey()}
	if out.Namespace == "" {
		out.Namespace = "envoy.filters.listener.proxy_protocol"
	}
	return out
}

// passTLVs says which TLVs go on to the upstream.
func passTLVs(m *core.ProxyProtocolPassThroughTLVs) (all bool, types []byte) {
	for _, t := range m.GetTlvType() {
		types = append(types, byte(t))
	}
	return m != nil && m.GetMatchType() == core.ProxyProtocolPassThroughTLVs_INCLUDE_ALL, types
}
