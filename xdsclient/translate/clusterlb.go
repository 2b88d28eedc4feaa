//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterprovided "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/cluster_provided/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequest "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglev "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	random "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ringhash "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobin "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	cares "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"slices"

	"sluice/internal/config"
)

// Defaults of the hashing policies.
const (
	defaultRingMin  = 1024
	maxRing         = 8 << 20
	defaultMaglev   = 65537
	leastChoiceOf   = 2
	defaultPanic    = 50
	defaultZoneSize = 6
)

func (s scope) balancing(m *clusterv3.Cluster, out *config.Cluster) {
	out.LeastRequest = config.LeastRequestOptions{Choices: leastChoiceOf, Bias: 1}
	out.RingHash = config.RingHashOptions{Min: defaultRingMin, Max: maxRing}
	out.MaglevTableSize = defaultMaglev
	out.LBCommon = s.at("common_lb_config").lbCommon(m.GetCommonLbConfig())
	out.Subset = subsets(m.GetLbSubsetConfig())
	if p := m.GetLoadBalancingPolicy(); p != nil {
		s.at("load_balancing_policy").policies(p, out)
		return
	}
	switch m.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN:
		out.LB = config.RoundRobin
	case clusterv3.Cluster_LEAST_REQUEST:
		out.LB = config.LeastRequest
	case clusterv3.Cluster_RING_HASH:
		out.LB = config.RingHash
	case clusterv3.Cluster_RANDOM:
		out.LB = config.Random
	case clusterv3.Cluster_MAGLEV:
		out.LB = config.Maglev
	case clusterv3.Cluster_CLUSTER_PROVIDED:
		out.LB = config.ClusterProvided
	default:
		s.at("lb_policy").bad("not supported yet: %s", m.GetLbPolicy())
	}
	if (out.LB == config.ClusterProvided) != (out.Type == config.OriginalDst) && m.GetClusterType() == nil {
		s.at("lb_policy").bad("LB policy %s is not valid for cluster type %s: CLUSTER_PROVIDED and ORIGINAL_DST go together", m.GetLbPolicy(), m.GetType())
	}
	s.lbConfig(m, out)
}

func (s scope) lbConfig(m *clusterv3.Cluster, out *config.Cluster) {
	switch x := m.GetLbConfig().(type) {
	case *clusterv3.Cluster_RingHashLbConfig_:
		c := x.RingHashLbConfig
		out.RingHash.Murmur = c.GetHashFunction() == clusterv3.Cluster_RingHashLbConfig_MURMUR_HASH_2
		s.at("ring_hash_lb_config").ring(c.GetMinimumRingSize(), c.GetMaximumRingSize(), out)
	case *clusterv3.Cluster_MaglevLbConfig_:
		s.at("maglev_lb_config").maglev(x.MaglevLbConfig.GetTableSize(), out)
	case *clusterv3.Cluster_LeastRequestLbConfig_:
		c := x.LeastRequestLbConfig
		out.LeastRequest.Choices = u32(c.GetChoiceCount(), leastChoiceOf)
		if b := c.GetActiveRequestBias(); b != nil {
			out.LeastRequest.Bias = b.GetDefaultValue()
		}
		out.SlowStart = s.at("least_request_lb_config.slow_start_config").slowStart(c.GetSlowStartConfig())
	case *clusterv3.Cluster_RoundRobinLbConfig_:
		out.SlowStart = s.at("round_robin_lb_config.slow_start_config").slowStart(x.RoundRobinLbConfig.GetSlowStartConfig())
	case *clusterv3.Cluster_OriginalDstLbConfig_:
		c := x.OriginalDstLbConfig
		o := config.OriginalDstOptions{UseHeader: c.GetUseHttpHeader(), Header: c.GetHttpHeaderName()}
		if o.UseHeader && o.Header == "" {
			o.Header = "x-envoy-original-dst-host"
		}
		o.PortOverride = uint16(min(u32(c.GetUpstreamPortOverride(), 0), 65535))
		if k := c.GetMetadataKey(); k != nil {
			keys := metadataKey(k)
			o.MetadataNS, o.MetadataKey = keys[0], keys[1:]
		}
		out.OriginalDst = o
	}
}

func (s scope) ring(low, high *wrapperUint64, out *config.Cluster) {
	if low != nil {
		out.RingHash.Min = low.Value
	}
	if high != nil {
		out.RingHash.Max = high.Value
	}
	if out.RingHash.Min > out.RingHash.Max {
		s.bad("minimum_ring_size (%d) > maximum_ring_size (%d)", out.RingHash.Min, out.RingHash.Max)
	}
	if out.RingHash.Max > maxRing {
		s.at("maximum_ring_size").bad("more than %d", maxRing)
	}
}

func (s scope) maglev(size *wrapperUint64, out *config.Cluster) {
	if size == nil {
		return
	}
	out.MaglevTableSize = size.Value
	if size.Value > 5000011 || !prime(size.Value) {
		s.at("table_size").bad("the table size of maglev must be a prime of at most 5000011, is %d", size.Value)
	}
}

func prime(n uint64) bool {
	if n < 2 {
		return false
	}
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

type slowStart interface {
	GetAggression() *core.RuntimeDouble
	GetMinWeightPercent() *typev3.Percent
}

func (s scope) slowStart(m *clusterv3.Cluster_SlowStartConfig) *config.SlowStart {
	if m == nil {
		return nil
	}
	out := slowStartRest(m)
	out.Window = s.duration("slow_start_window", m.GetSlowStartWindow(), 0)
	return out
}

func (s scope) commonSlowStart(m *common.SlowStartConfig) *config.SlowStart {
	if m == nil {
		return nil
	}
	out := slowStartRest(m)
	out.Window = s.duration("slow_start_window", m.GetSlowStartWindow(), 0)
	return out
}

func slowStartRest(m slowStart) *config.SlowStart {
	out := &config.SlowStart{Aggression: 1, MinPercent: percentValue(m.GetMinWeightPercent(), 10)}
	if a := m.GetAggression(); a != nil {
		out.Aggression = a.GetDefaultValue()
	}
	return out
}

func (s scope) lbCommon(m *clusterv3.Cluster_CommonLbConfig) config.LBCommon {
	c := m.GetConsistentHashingLbConfig()
	out := config.LBCommon{
		PanicThreshold:    percentValue(m.GetHealthyPanicThreshold(), defaultPanic),
		LocalityWeighted:  m.GetLocalityWeightedLbConfig() != nil,
		MergeWindow:       s.duration("update_merge_window", m.GetUpdateMergeWindow(), seconds(1)),
		IgnoreNewHosts:    m.GetIgnoreNewHostsUntilFirstHc(),
		CloseOnHostSet:    m.GetCloseConnectionsOnHostSetChange(),
		HostnameForHash:   c.GetUseHostnameForHashing(),
		HashBalanceFactor: u32(c.GetHashBalanceFactor(), 0),
		ConsistentHost:    c != nil,
	}
	if z := m.GetZoneAwareLbConfig(); z != nil {
		out.ZoneAware = &config.ZoneAware{
			RoutingEnabled: percentValue(z.GetRoutingEnabled(), 100), MinClusterSize: defaultZoneSize, FailOnPanic: z.GetFailTrafficOnPanic(),
		}
		if z.GetMinClusterSize() != nil {
			out.ZoneAware.MinClusterSize = z.MinClusterSize.Value
		}
	}
	for _, h := range m.GetOverrideHostStatus().GetStatuses() {
		out.OverrideHealth = append(out.OverrideHealth, config.HealthStatus(h))
	}
	return out
}

func subsets(m *clusterv3.Cluster_LbSubsetConfig) *config.SubsetLB {
	if m == nil || len(m.GetSubsetSelectors()) == 0 {
		return nil
	}
	out := &config.SubsetLB{Fallback: uint8(m.GetFallbackPolicy()), Default: structOf(m.GetDefaultSubset()), ListAsAny: m.GetListAsAny(),
		FallbackList: m.GetMetadataFallbackPolicy() == clusterv3.Cluster_LbSubsetConfig_FALLBACK_LIST}
	for _, x := range m.GetSubsetSelectors() {
		out.Selectors = append(out.Selectors, config.SubsetSelector{
			Keys: slices.Sorted(slices.Values(x.GetKeys())), Fallback: uint8(x.GetFallbackPolicy()), Single: x.GetSingleHostPerSubset(),
			FallbackKeys: slices.Sorted(slices.Values(x.GetFallbackKeysSubset())),
		})
	}
	return out
}

// policies takes the first policy of load_balancing_policy that we have, as
// Envoy does.
func (s scope) policies(p *clusterv3.LoadBalancingPolicy, out *config.Cluster) {
	for i, e := range p.GetPolicies() {
		t := e.GetTypedExtensionConfig()
		at := s.index("policies", i)
		w, ok := at.unwrap(t.GetName(), t.GetTypedConfig())
		if !ok {
			return
		}
		if decode, ok := s.r.LBPolicies[w.name]; ok {
			decode(at, w, out)
			return
		}
	}
	s.bad("didn't find a registered load balancer factory for cluster %s", out.Name)
}

func roundRobinLB(s scope, t typed, out *config.Cluster) {
	var m roundrobin.RoundRobin
	if s.decode(t, &m) {
		out.LB = config.RoundRobin
		out.SlowStart = s.at("slow_start_config").commonSlowStart(m.GetSlowStartConfig())
		s.locality(m.GetLocalityLbConfig(), out)
	}
}

func leastRequestLB(s scope, t typed, out *config.Cluster) {
	var m leastrequest.LeastRequest
	if !s.decode(t, &m) {
		return
	}
	out.LB = config.LeastRequest
	out.LeastRequest.Choices = u32(m.GetChoiceCount(), leastChoiceOf)
	out.LeastRequest.Full = m.GetSelectionMethod() == leastrequest.LeastRequest_FULL_SCAN || boolean(m.GetEnableFullScan(), false)
	if b := m.GetActiveRequestBias(); b != nil {
		out.LeastRequest.Bias = b.GetDefaultValue()
	}
	out.SlowStart = s.at("slow_start_config").commonSlowStart(m.GetSlowStartConfig())
	s.locality(m.GetLocalityLbConfig(), out)
}

func randomLB(s scope, t typed, out *config.Cluster) {
	var m random.Random
	if s.decode(t, &m) {
		out.LB = config.Random
		s.locality(m.GetLocalityLbConfig(), out)
	}
}

func ringHashLB(s scope, t typed, out *config.Cluster) {
	var m ringhash.RingHash
	if !s.decode(t, &m) {
		return
	}
	out.LB = config.RingHash
	out.RingHash.Murmur = m.GetHashFunction() == ringhash.RingHash_MURMUR_HASH_2
	out.RingHash.UseHostname = m.GetUseHostnameForHashing() || m.GetConsistentHashingLbConfig().GetUseHostnameForHashing()
	out.LBCommon.LocalityWeighted = m.GetLocalityWeightedLbConfig() != nil
	out.LBCommon.HashBalanceFactor = max(u32(m.GetHashBalanceFactor(), 0), u32(m.GetConsistentHashingLbConfig().GetHashBalanceFactor(), 0))
	s.ring(m.GetMinimumRingSize(), m.GetMaximumRingSize(), out)
}

func maglevLB(s scope, t typed, out *config.Cluster) {
	var m maglev.Maglev
	if !s.decode(t, &m) {
		return
	}
	out.LB = config.Maglev
	out.LBCommon.HostnameForHash = m.GetConsistentHashingLbConfig().GetUseHostnameForHashing()
	out.LBCommon.HashBalanceFactor = u32(m.GetConsistentHashingLbConfig().GetHashBalanceFactor(), 0)
	out.LBCommon.LocalityWeighted = m.GetLocalityWeightedLbConfig() != nil
	s.maglev(m.GetTableSize(), out)
}

func clusterProvidedLB(s scope, t typed, out *config.Cluster) {
	if s.decode(t, &clusterprovided.ClusterProvided{}) {
		out.LB = config.ClusterProvided
	}
}

func (s scope) locality(l *common.LocalityLbConfig, out *config.Cluster) {
	if l.GetLocalityWeightedLbConfig() != nil {
		out.LBCommon.LocalityWeighted = true
	}
	if z := l.GetZoneAwareLbConfig(); z != nil {
		out.LBCommon.ZoneAware = &config.ZoneAware{
			RoutingEnabled: percentValue(z.GetRoutingEnabled(), 100), MinClusterSize: defaultZoneSize, FailOnPanic: z.GetFailTrafficOnPanic(),
		}
		if z.GetMinClusterSize() != nil {
			out.LBCommon.ZoneAware.MinClusterSize = z.MinClusterSize.Value
		}
	}
}

func (s scope) caresResolvers(t *core.TypedExtensionConfig) []*core.Address {
	w, ok := s.unwrap(t.GetName(), t.GetTypedConfig())
	if !ok {
		return nil
	}
	switch w.name {
	case "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig":
		var m cares.CaresDnsResolverConfig
		if s.decode(w, &m) {
			return m.GetResolvers()
		}
	case "envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig":
	default:
		s.missing(t.GetName(), w.name)
	}
	return nil
}
