//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	directresponse "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/direct_response/v3"
	echo "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/echo/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	rbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	snicluster "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"
	tcpproxy "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"sluice/internal/config"
)

// networkFilters converts a chain's filters. The last one must be terminal and
// no other may be, as in Envoy.
func (s scope) networkFilters(in []*listener.Filter, out *config.FilterChain) {
	for i, f := range in {
		at := s.index("filters", i)
		nf, ok := at.networkFilter(f)
		if !ok {
			continue
		}
		last := i == len(in)-1
		switch {
		case terminal(nf) && !last:
			at.bad("terminal filter named %s must be the last filter in a network filter chain", f.GetName())
		case !terminal(nf) && last:
			at.bad("non-terminal filter named %s is the last filter in a network filter chain", f.GetName())
		}
		out.Filters = append(out.Filters, nf)
	}
}

func (s scope) networkFilter(f *listener.Filter) (config.NetworkFilter, bool) {
	if f.GetConfigDiscovery() != nil {
		s.at("config_discovery").bad("not supported yet: network filters by extension discovery")
		return nil, false
	}
	t, ok := s.at("typed_config").unwrap(f.GetName(), f.GetTypedConfig())
	if !ok {
		return nil, false
	}
	if s.ignored(t.name) {
		return nil, false
	}
	decode, ok := s.r.NetworkFilters[t.name]
	if !ok {
		s.missing(f.GetName(), t.name)
		return nil, false
	}
	nf := decode(s.at("typed_config"), t)
	return nf, nf != nil
}

// ignored says that the registry lists url as safe to leave out.
func (s scope) ignored(url string) bool {
	_, ok := s.r.Ignored[url]
	return ok
}

func terminal(f config.NetworkFilter) bool {
	switch f.(type) {
	case *config.TCPProxy, *config.HTTPConnectionManager, *config.EchoFilter, *config.DirectResponse:
		return true
	}
	return false
}

func tcpProxy(s scope, t typed) config.NetworkFilter {
	var m tcpproxy.TcpProxy
	if !s.decode(t, &m) {
		return nil
	}
	s.unsupported(m.GetOnDemand() != nil, "on_demand", "clusters on demand")
	out := &config.TCPProxy{
		StatPrefix:             m.GetStatPrefix(),
		Cluster:                m.GetCluster(),
		IdleTimeout:            s.duration("idle_timeout", m.GetIdleTimeout(), seconds(3600)),
		MaxConnectionDuration:  s.duration("max_downstream_connection_duration", m.GetMaxDownstreamConnectionDuration(), 0),
		MaxConnectAttempts:     capped(u32(m.GetMaxConnectAttempts(), 1)),
		AccessLogs:             s.accessLogs("access_log", m.GetAccessLog()),
		AccessLogOnStart:       m.GetAccessLogOptions().GetFlushAccessLogOnStart(),
		AccessLogOnConnected:   m.GetFlushAccessLogOnConnected() || m.GetAccessLogOptions().GetFlushAccessLogOnConnected(),
		FlushAccessLogInterval: s.duration("access_log_flush_interval", m.GetAccessLogFlushInterval(), 0),
		MetadataMatch:          structOf(m.GetMetadataMatch().GetFilterMetadata()["envoy.lb"]),
	}
	if d := m.GetAccessLogOptions().GetAccessLogFlushInterval(); d != nil {
		out.FlushAccessLogInterval = s.duration("access_log_options.access_log_flush_interval", d, 0)
	}
	total := uint64(0)
	for _, c := range m.GetWeightedClusters().GetClusters() {
		total += uint64(c.GetWeight())
		out.Weighted = append(out.Weighted, config.WeightedCluster{
			Name: c.GetName(), Weight: c.GetWeight(),
			MetadataMatch: structOf(c.GetMetadataMatch().GetFilterMetadata()["envoy.lb"]),
		})
	}
	if total > 1<<32-1 {
		s.at("weighted_clusters").bad("the sum of weights is more than 4294967295")
	}
	for i, h := range m.GetHashPolicy() {
		if h.GetSourceIp() == nil {
			s.index("hash_policy", i).bad("not supported yet: hash policies other than source_ip")
			continue
		}
		out.HashSourceIP = true
	}
	s.tunnel(m.GetTunnelingConfig(), out)
	return out
}

func (s scope) tunnel(m *tcpproxy.TcpProxy_TunnelingConfig, out *config.TCPProxy) {
	if m == nil {
		return
	}
	s = s.at("tunneling_config")
	out.TunnelHost = s.at("hostname").format(m.GetHostname())
	out.TunnelPost, out.TunnelPath = m.GetUsePost(), m.GetPostPath()
	if out.TunnelPost && out.TunnelPath == "" {
		out.TunnelPath = "/"
	}
	if !out.TunnelPost && out.TunnelPath != "" {
		s.at("post_path").bad("can't set a post path when POST method isn't used")
	}
	for _, h := range s.mutations("headers_to_add", "", m.GetHeadersToAdd(), nil) {
		out.TunnelHeaders = append(out.TunnelHeaders, config.HeaderAppend{Name: h.Name, Value: h.Value})
	}
}

func echoFilter(s scope, t typed) config.NetworkFilter {
	var m echo.Echo
	if !s.decode(t, &m) {
		return nil
	}
	return &config.EchoFilter{}
}

func directResponse(s scope, t typed) config.NetworkFilter {
	var m directresponse.Config
	if !s.decode(t, &m) {
		return nil
	}
	out := &config.DirectResponse{}
	if m.GetResponse() != nil {
		out.Body, _ = s.at("response").data(m.GetResponse())
	}
	return out
}

func sniCluster(s scope, t typed) config.NetworkFilter {
	var m snicluster.SniCluster
	if !s.decode(t, &m) {
		return nil
	}
	return &config.SNICluster{}
}

func connectionRate(s scope, t typed) config.NetworkFilter {
	var m ratelimit.LocalRateLimit
	if !s.decode(t, &m) {
		return nil
	}
	return &config.ConnectionRate{
		StatPrefix: m.GetStatPrefix(),
		ShareKey:   m.GetShareKey(),
		Bucket:     s.tokenBucket(m.GetTokenBucket()),
		Off:        m.GetRuntimeEnabled() != nil && !boolean(m.GetRuntimeEnabled().GetDefaultValue(), true),
	}
}

func networkRBAC(s scope, t typed) config.NetworkFilter {
	var m rbac.RBAC
	if !s.decode(t, &m) {
		return nil
	}
	s.unsupported(m.GetMatcher() != nil, "matcher", "RBAC by the matcher API")
	s.unsupported(m.GetShadowMatcher() != nil, "shadow_matcher", "RBAC by the matcher API")
	return &config.NetworkRBAC{RBAC: &config.RBAC{
		Rules:                 s.at("rules").rbacRules(m.GetRules()),
		Shadow:                s.at("shadow_rules").rbacRules(m.GetShadowRules()),
		StatPrefix:            m.GetStatPrefix(),
		ShadowStatPrefix:      m.GetShadowRulesStatPrefix(),
		EnforcementContinuous: m.GetEnforcementType() == rbac.RBAC_CONTINUOUS,
		DelayDeny:             s.duration("delay_deny", m.GetDelayDeny(), 0),
	}}
}
