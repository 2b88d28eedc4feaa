//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"sluice/internal/config"
)

func (s scope) cluster(m *clusterv3.Cluster) *config.Cluster {
	s.clusterUnsupported(m)
	out := &config.Cluster{
		Meta:        config.Meta{Name: m.GetName()},
		AltStatName: m.GetAltStatName(),
		Metadata:    config.Pack(metadata(m.GetMetadata())),
		ClusterOptions: &config.ClusterOptions{
			ConnectTimeout:  s.duration("connect_timeout", m.GetConnectTimeout(), seconds(5)),
			CleanupInterval: s.duration("cleanup_interval", m.GetCleanupInterval(), seconds(5)),
			BufferLimit:     capped(u32(m.GetPerConnectionBufferLimitBytes(), defaultBufferLimit)),
			MaxRequests:     capped(u32(m.GetMaxRequestsPerConnection(), 0)),
			Keepalive:       keepalive(m.GetUpstreamConnectionOptions().GetTcpKeepalive()),
			CloseOnFailure:  m.GetCloseConnectionsOnHostHealthFailure(),
			IgnoreOnRemoval: m.GetIgnoreHealthOnHostRemoval(),
			ConnPoolPerDown: m.GetConnectionPoolPerDownstreamConnection(),
			RespectDNSTTL:   m.GetRespectDnsTtl(),
			PreconnectRatio: m.GetPreconnectPolicy().GetPerUpstreamPreconnectRatio().GetValue(),
			WaitForWarm:     boolean(m.GetWaitForWarmOnInit(), true),
			Outlier:         s.at("outlier_detection").outlier(m.GetOutlierDetection()),
		},
	}
	s.discovery(m, out)
	s.dns(m, out)
	s.balancing(m, out)
	s.circuitBreakers(m.GetCircuitBreakers(), out)
	s.bind(m.GetUpstreamBindConfig(), out)
	s.upstreamSockets(m, out)
	s.protocolOptions(m, out)
	s.upstreamFilters(m.GetFilters(), out)
	s.unsupported(len(m.GetHealthChecks()) > 0, "health_checks", "active health checks")
	out.ClusterOptions = s.r.alike.clusters.share(out.ClusterOptions)
	return out
}

func (s scope) clusterUnsupported(m *clusterv3.Cluster) {
	s.unsupported(m.GetTransportSocketMatcher() != nil, "transport_socket_matcher", "transport sockets by the matcher API; use transport_socket_matches")
	s.unsupported(m.GetUpstreamConfig() != nil, "upstream_config", "upstream protocol extensions")
}

// discovery says how the cluster finds its endpoints, and checks what the type
// demands.
func (s scope) discovery(m *clusterv3.Cluster, out *config.Cluster) {
	if t := m.GetClusterType(); t != nil {
		if w, ok := s.at("cluster_type.typed_config").unwrap(t.GetName(), t.GetTypedConfig()); ok {
			s.at("cluster_type").missing(t.GetName(), w.name)
		}
		return
	}
	switch m.GetType() {
	case clusterv3.Cluster_STATIC:
		out.Type = config.Static
	case clusterv3.Cluster_STRICT_DNS:
		out.Type = config.StrictDNS
	case clusterv3.Cluster_LOGICAL_DNS:
		out.Type = config.LogicalDNS
	case clusterv3.Cluster_EDS:
		out.Type = config.EDS
		s.eds(m, out)
	case clusterv3.Cluster_ORIGINAL_DST:
		out.Type = config.OriginalDst
	}
	if out.Type != config.EDS && m.GetEdsClusterConfig() != nil {
		s.at("eds_cluster_config").bad("eds_cluster_config set in a non-EDS cluster")
	}
	load := m.GetLoadAssignment()
	if out.Type == config.OriginalDst && load != nil {
		s.at("load_assignment").bad("ORIGINAL_DST clusters must have no load assignment configured")
	}
	if load == nil {
		if out.Type != config.EDS {
			out.Load = &config.LoadAssignment{Meta: config.Meta{Name: out.Name}, OverProvision: 140}
		}
		return
	}
	if out.Type == config.EDS {
		return // Envoy doesn't look at it
	}
	names := out.Type == config.StrictDNS || out.Type == config.LogicalDNS
	out.Load = s.at("load_assignment").loadAssignment(load, names)
	out.Load.Hash = hashMessage(load)
	if out.Type == config.LogicalDNS && endpoints(out.Load) != 1 {
		s.at("load_assignment").bad("LOGICAL_DNS clusters must have a single locality_lb_endpoint and a single lb_endpoint")
	}
}

func endpoints(l *config.LoadAssignment) int {
	n := 0
	for _, loc := range l.Localities {
		n += len(loc.Endpoints)
	}
	return n
}

func (s scope) eds(m *clusterv3.Cluster, out *config.Cluster) {
	at := s.at("eds_cluster_config")
	if m.GetEdsClusterConfig().GetEdsConfig() == nil {
		at.bad("cannot create an EDS cluster without an EDS config")
		return
	}
	out.EDSTimeout = at.adsSource("eds_config", m.GetEdsClusterConfig().GetEdsConfig())
	if out.EDSName = m.GetEdsClusterConfig().GetServiceName(); out.EDSName == "" || out.EDSName == out.Name {
		out.EDSName = out.Name // and not a copy of it
	}
}

func (s scope) dns(m *clusterv3.Cluster, out *config.Cluster) {
	d := config.DNSOptions{
		Refresh:    s.duration("dns_refresh_rate", m.GetDnsRefreshRate(), seconds(5)),
		Jitter:     s.duration("dns_jitter", m.GetDnsJitter(), 0),
		RespectTTL: m.GetRespectDnsTtl(),
	}
	d.FailureBase, d.FailureMax = d.Refresh, d.Refresh
	if f := m.GetDnsFailureRefreshRate(); f != nil {
		at := s.at("dns_failure_refresh_rate")
		d.FailureBase = at.duration("base_interval", f.GetBaseInterval(), 0)
		d.FailureMax = at.duration("max_interval", f.GetMaxInterval(), 10*d.FailureBase)
		if d.FailureMax < d.FailureBase {
			at.bad("dns_failure_refresh_rate must have max_interval greater than or equal to the base_interval")
		}
	}
	if d.Refresh > 0 && d.Refresh <= time.Millisecond {
		s.at("dns_refresh_rate").bad("must be more than 1ms")
	}
	switch m.GetDnsLookupFamily() {
	case clusterv3.Cluster_V4_ONLY:
		d.V4Only = true
	case clusterv3.Cluster_V6_ONLY:
		d.V6Only = true
	case clusterv3.Cluster_V4_PREFERRED:
		d.V4Preferred = true
	case clusterv3.Cluster_ALL:
		d.All = true
	}
	resolvers := m.GetDnsResolvers()
	if c := m.GetDnsResolutionConfig(); c != nil {
		resolvers = c.GetResolvers()
	}
	if t := m.GetTypedDnsResolverConfig(); t != nil {
		resolvers = s.at("typed_dns_resolver_config").caresResolvers(t)
	}
	for i, r := range resolvers {
		if a := s.index("dns_resolvers", i).address(r, false); a.IP.IsValid() {
			d.Resolvers = append(d.Resolvers, a.IP)
		}
	}
	out.DNS = d
}

func (s scope) bind(b *core.BindConfig, out *config.Cluster) {
	if b == nil {
		return
	}
	s = s.at("upstream_bind_config")
	s.unsupported(len(b.GetSocketOptions()) > 0, "socket_options", "socket options of upstream connections")
	s.unsupported(len(b.GetExtraSourceAddresses()) > 0, "extra_source_addresses", "more than one source address")
	out.BindFreebind = boolean(b.GetFreebind(), false)
	if b.GetSourceAddress() == nil {
		return
	}
	ip, err := netip.ParseAddr(b.GetSourceAddress().GetAddress())
	if err != nil {
		s.at("source_address").bad("malformed IP address: %s", b.GetSourceAddress().GetAddress())
		return
	}
	out.Bind, out.BindPort = ip, uint16(min(b.GetSourceAddress().GetPortValue(), 65535))
}

// upstreamFilters takes the upstream network filters that do something for
// connections: Istio's metadata exchange.
func (s scope) upstreamFilters(in []*clusterv3.Filter, out *config.Cluster) {
	for i, f := range in {
		at := s.index("filters", i)
		t, ok := at.at("typed_config").unwrap(f.GetName(), f.GetTypedConfig())
		if !ok || at.ignored(t.name) {
			continue
		}
		if t.name != metadataExchangeURL {
			at.missing(f.GetName(), t.name)
			continue
		}
		if x, ok := metadataExchange(at, t).(*config.MetadataExchange); ok {
			out.TCPExchange = x
		}
	}
}

func (s scope) circuitBreakers(m *clusterv3.CircuitBreakers, out *config.Cluster) {
	for i := range out.Breakers {
		out.Breakers[i] = config.Breaker{
			Connections: 1024, Pending: 1024, Requests: 1024, Retries: 3, Pools: config.Unlimited, PerHostConnections: config.Unlimited,
		}
	}
	for i, t := range m.GetThresholds() {
		p := int(t.GetPriority())
		if p >= len(out.Breakers) {
			continue
		}
		b := &out.Breakers[p]
		b.Connections = u32(t.GetMaxConnections(), 1024)
		b.Pending = u32(t.GetMaxPendingRequests(), 1024)
		b.Requests = u32(t.GetMaxRequests(), 1024)
		b.Retries = u32(t.GetMaxRetries(), 3)
		b.Pools = u32(t.GetMaxConnectionPools(), config.Unlimited)
		b.TrackRemaining = t.GetTrackRemaining()
		out.TrackRemaining = out.TrackRemaining || b.TrackRemaining
		if r := t.GetRetryBudget(); r != nil {
			b.Budget = &config.RetryBudget{
				Percent:        percentValue(r.GetBudgetPercent(), 20),
				MinConcurrency: u32(r.GetMinRetryConcurrency(), 3),
				Interval:       s.index("circuit_breakers.thresholds", i).duration("retry_budget.budget_interval", r.GetBudgetInterval(), 0),
			}
		}
	}
	for _, t := range m.GetPerHostThresholds() {
		if p := int(t.GetPriority()); p < len(out.Breakers) {
			out.Breakers[p].PerHostConnections = u32(t.GetMaxConnections(), config.Unlimited)
		}
	}
}
