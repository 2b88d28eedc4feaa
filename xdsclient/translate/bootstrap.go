package translate

import (
	"fmt"
	"regexp"
	"strings"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metrics "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	connections "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"

	"sluice/internal/config"
)

// Bootstrap parses and translates an Envoy bootstrap in YAML or JSON. The error
// names everything that is wrong with it. Fields that aren't Envoy's are errors
// unless AllowUnknown is set.
func (r *Registry) Bootstrap(data []byte) (*config.Bootstrap, error) {
	m, err := r.BootstrapMessage(data)
	if err != nil {
		return nil, err
	}
	s := r.scope("")
	if !s.check(m) {
		return nil, fmt.Errorf("bootstrap: %w", s.out.err())
	}
	out := s.bootstrap(m)
	if a := out.ADS; a != nil && a.Cluster != "" && out.Static.Clusters[a.Cluster] == nil {
		//lint:ignore ST1005 Envoy's sentence, which operators look for as a line of its own
		return nil, fmt.Errorf("Unknown gRPC client cluster '%s'", a.Cluster)
	}
	if err := s.out.err(); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return out, nil
}

// BootstrapMessage only parses a bootstrap, for whoever shows it.
func (r *Registry) BootstrapMessage(data []byte) (*bootstrap.Bootstrap, error) {
	m := &bootstrap.Bootstrap{}
	if err := Message(data, m, r.AllowUnknown); err != nil {
		return nil, err
	}
	return m, nil
}

func (s scope) bootstrap(m *bootstrap.Bootstrap) *config.Bootstrap {
	out := &config.Bootstrap{
		Node:          node(m.GetNode()),
		FlushInterval: s.duration("stats_flush_interval", m.GetStatsFlushInterval(), seconds(5)),
		HeaderPrefix:  m.GetHeaderPrefix(),
	}
	s.at("layered_runtime").runtime(m.GetLayeredRuntime(), out)
	if out.HeaderPrefix == "" {
		out.HeaderPrefix = "x-envoy"
	}
	s.at("admin").admin(m.GetAdmin(), out)
	s.stats(m.GetStatsConfig(), out)
	s.at("dynamic_resources").dynamic(m.GetDynamicResources(), out)
	s.at("static_resources").static(m.GetStaticResources(), out)
	s.overload(m, out)
	return out
}

func node(n *core.Node) config.Node {
	return config.Node{
		ID: n.GetId(), Cluster: n.GetCluster(), Metadata: structOf(n.GetMetadata()),
		Region: n.GetLocality().GetRegion(), Zone: n.GetLocality().GetZone(), SubZone: n.GetLocality().GetSubZone(),
		UserAgentName: n.GetUserAgentName(), UserAgentVersion: n.GetUserAgentVersion(),
	}
}

func (s scope) admin(a *bootstrap.Admin, out *config.Bootstrap) {
	if a.GetAddress() == nil {
		return
	}
	addr := s.at("address").address(a.Address, false)
	out.Admin, out.AdminPipe = addr.IP, addr.Pipe
	out.AdminLogs = s.accessLogs("access_log", a.GetAccessLog())
}

func (s scope) dynamic(d *bootstrap.Bootstrap_DynamicResources, out *config.Bootstrap) {
	if d == nil {
		return
	}
	if d.GetAdsConfig() == nil {
		s.unsupported(d.GetLdsConfig() != nil, "lds_config", "discovery other than by ADS")
		s.unsupported(d.GetCdsConfig() != nil, "cds_config", "discovery other than by ADS")
		return
	}
	c := d.GetAdsConfig()
	ads := &config.ADS{NodeOnce: c.GetSetNodeOnFirstMessageOnly(), LDS: d.GetLdsConfig() != nil, CDS: d.GetCdsConfig() != nil, InitialFetchTimeout: defaultFetch}
	at := s.at("ads_config")
	switch c.GetApiType() {
	case core.ApiConfigSource_GRPC, core.ApiConfigSource_AGGREGATED_GRPC:
	case core.ApiConfigSource_DELTA_GRPC, core.ApiConfigSource_AGGREGATED_DELTA_GRPC:
		ads.Delta = true
	default:
		at.at("api_type").bad("not supported yet: %s", c.GetApiType())
	}
	if len(c.GetGrpcServices()) != 1 {
		at.at("grpc_services").bad("must have exactly one gRPC service specified")
	} else {
		ads.Cluster = at.index("grpc_services", 0).envoyGRPC(c.GrpcServices[0])
	}
	if ads.LDS {
		ads.LDSTimeout = s.adsSource("lds_config", d.GetLdsConfig())
	}
	if ads.CDS {
		ads.CDSTimeout = s.adsSource("cds_config", d.GetCdsConfig())
	}
	out.ADS = ads
}

func (s scope) static(m *bootstrap.Bootstrap_StaticResources, out *config.Bootstrap) {
	snap := &out.Static
	snap.Clusters = map[string]*config.Cluster{}
	snap.Routes = map[string]*config.RouteConfiguration{}
	snap.Secrets = map[string]*config.Secret{}
	for i, c := range m.GetClusters() {
		at := s.index("clusters", i)
		v := at.cluster(c)
		v.Hash = hashMessage(c)
		if snap.Clusters[v.Name] != nil {
			at.at("name").bad("cluster manager: duplicate cluster '%s'", v.Name)
		}
		snap.Clusters[v.Name] = v
	}
	for i, c := range m.GetSecrets() {
		v := s.index("secrets", i).secret(c)
		v.Hash = hashMessage(c)
		snap.Secrets[v.Name] = v
	}
	names, taken := map[string]bool{}, config.Addresses{}
	for i, l := range m.GetListeners() {
		at := s.index("listeners", i)
		v := at.listener(l)
		v.Hash = hashMessage(l)
		if names[v.Name] {
			at.at("name").bad("error adding listener: duplicate name '%s'", v.Name)
		}
		names[v.Name] = true
		if err := taken.Claim(v); err != nil {
			at.at("address").bad("%v", err)
		}
		snap.Listeners = append(snap.Listeners, v)
	}
	s.references(out)
}

// references checks what only a whole bootstrap can tell: names that static
// resources demand of one another.
func (s scope) references(out *config.Bootstrap) {
	for _, l := range out.Static.Listeners {
		for _, c := range chainsOf(l) {
			at := s.at("listeners[" + l.Name + "]")
			at.staticSecrets(c.TLS, out.Static.Secrets)
			at.staticClusters(c, out)
		}
	}
	for _, name := range sortedKeys(out.Static.Clusters) {
		c := out.Static.Clusters[name]
		for _, u := range upstreamContexts(c) {
			s.at("clusters["+name+"]").missingSecrets(&u.TLSParams, out.Static.Secrets)
		}
	}
}

// chainsOf gives a listener's chains, the default one last.
func chainsOf(l *config.Listener) []*config.FilterChain {
	if l.DefaultChain == nil {
		return l.Chains
	}
	return append(l.Chains[:len(l.Chains):len(l.Chains)], l.DefaultChain)
}

// upstreamContexts gives the TLS contexts of a cluster.
func upstreamContexts(c *config.Cluster) []*config.UpstreamTLS {
	var out []*config.UpstreamTLS
	if c.TLS != nil {
		out = append(out, c.TLS)
	}
	for _, m := range c.SocketMatches {
		if m.TLS != nil {
			out = append(out, m.TLS)
		}
	}
	return out
}

func (s scope) staticSecrets(d *config.DownstreamTLS, have map[string]*config.Secret) {
	if d != nil {
		s.missingSecrets(&d.TLSParams, have)
	}
}

func (s scope) missingSecrets(p *config.TLSParams, have map[string]*config.Secret) {
	refs := p.Certificates
	if p.Validation != nil {
		refs = append(refs[:len(refs):len(refs)], p.Validation.Ref)
	}
	for _, r := range refs {
		if r.Name != "" && r.Source == config.SecretStatic && have[r.Name] == nil {
			s.bad("unknown static secret: %s", r.Name)
		}
	}
}

// staticClusters checks the clusters of inline route tables that ask for it.
func (s scope) staticClusters(c *config.FilterChain, out *config.Bootstrap) {
	for _, f := range c.Filters {
		h, ok := f.(*config.HTTPConnectionManager)
		if !ok || h.Routes == nil || !h.Routes.ValidateClusters {
			continue
		}
		for _, name := range RouteClusters(h.Routes) {
			if out.Static.Clusters[name] == nil {
				s.bad("route: unknown cluster '%s'", name)
			}
		}
	}
}

// RouteClusters gives the cluster names of a route table, in order, each once.
func RouteClusters(r *config.RouteConfiguration) []string {
	var out []string
	seen := map[string]bool{"": true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	for _, v := range r.VirtualHosts {
		for _, x := range v.Routes {
			if x.Action == nil {
				continue
			}
			add(x.Action.Cluster)
			for _, w := range x.Action.Weighted {
				add(w.Name)
			}
			for _, m := range x.Action.Mirrors {
				add(m.Cluster)
			}
		}
	}
	return out
}

func (s scope) stats(m *metrics.StatsConfig, out *config.Bootstrap) {
	s = s.at("stats_config")
	switch x := m.GetStatsMatcher().GetStatsMatcher().(type) {
	case *metrics.StatsMatcher_RejectAll:
		out.StatsMatcher = &config.StatsMatcher{RejectAll: x.RejectAll, Include: false}
	case *metrics.StatsMatcher_InclusionList:
		out.StatsMatcher = &config.StatsMatcher{Include: true, Patterns: s.stringMatches("stats_matcher.inclusion_list.patterns", x.InclusionList.GetPatterns())}
	case *metrics.StatsMatcher_ExclusionList:
		out.StatsMatcher = &config.StatsMatcher{Patterns: s.stringMatches("stats_matcher.exclusion_list.patterns", x.ExclusionList.GetPatterns())}
	}
	for i, t := range m.GetStatsTags() {
		if tag, ok := s.index("stats_tags", i).statsTag(t); ok {
			out.StatsTags = append(out.StatsTags, tag)
		}
	}
	for i, b := range m.GetHistogramBucketSettings() {
		match := s.index("histogram_bucket_settings", i).at("match").stringMatch(b.GetMatch())
		out.HistogramBuckets = append(out.HistogramBuckets, config.HistogramBuckets{Match: *match, Buckets: b.GetBuckets()})
	}
}

// statsTag takes a tag. One with a name alone means Envoy's own of that name,
// which names have anyway. Envoy's expressions are ECMAScript; of what RE2 lacks
// Istio uses the look-ahead for a dot, which what follows it implies.
func (s scope) statsTag(t *metrics.TagSpecifier) (tag config.StatsTag, ok bool) {
	tag.Name = t.GetTagName()
	switch x := t.GetTagValue().(type) {
	case *metrics.TagSpecifier_FixedValue:
		tag.Fixed = x.FixedValue
	case *metrics.TagSpecifier_Regex:
		var err error
		if tag.Regex, err = regexp.Compile(strings.ReplaceAll(x.Regex, `(?=\.)`, "")); err != nil {
			s.at("regex").bad("%v", err)
			return tag, false
		}
	default:
		return tag, false
	}
	return tag, tag.Name != ""
}

const (
	connectionsMonitor = "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"
	connectionsRuntime = "overload.global_downstream_max_connections"
)

// overload takes the limit of downstream connections, from the resource monitor
// or the older runtime key.
func (s scope) overload(m *bootstrap.Bootstrap, out *config.Bootstrap) {
	if v, ok := out.Runtime[connectionsRuntime].(float64); ok && v > 0 {
		out.MaxConnections = uint64(v)
	}
	for i, r := range m.GetOverloadManager().GetResourceMonitors() {
		at := s.at("overload_manager").index("resource_monitors", i)
		t, ok := at.unwrap(r.GetName(), r.GetTypedConfig())
		if !ok || t.name != connectionsMonitor {
			continue // the others only shed load, which we don't do
		}
		var c connections.DownstreamConnectionsConfig
		if at.decode(t, &c) {
			out.MaxConnections = uint64(c.GetMaxActiveDownstreamConnections())
		}
	}
}
