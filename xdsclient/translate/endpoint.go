//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"maps"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"sluice/internal/config"
)

func (s scope) loadAssignment(m *endpoint.ClusterLoadAssignment, names bool) *config.LoadAssignment {
	p := m.GetPolicy()
	out := &config.LoadAssignment{
		Meta:               config.Meta{Name: m.GetClusterName()},
		OverProvision:      u32(p.GetOverprovisioningFactor(), 140),
		WeightedPriority:   p.GetWeightedPriorityHealth(),
		StaleAfter:         s.duration("policy.endpoint_stale_after", p.GetEndpointStaleAfter(), 0),
		NamedEndpointsUsed: len(m.GetNamedEndpoints()) > 0,
	}
	for _, d := range p.GetDropOverloads() {
		out.DropPerMillion = append(out.DropPerMillion, config.DropOverload{Category: d.GetCategory(), Percent: fraction(d.GetDropPercentage())})
	}
	if len(p.GetDropOverloads()) > 1 {
		s.at("policy.drop_overloads").bad("cluster drop_overloads config has %d categories. Envoy only support one.", len(p.DropOverloads))
	}
	weights := map[uint32]uint64{}
	for i, l := range m.GetEndpoints() {
		at := s.index("endpoints", i)
		weights[l.GetPriority()] += uint64(u32(l.GetLoadBalancingWeight(), 0))
		if weights[l.GetPriority()] > 1<<32-1 {
			at.bad("the sum of weights of all localities at the same priority exceeds 4294967295")
		}
		out.Localities = append(out.Localities, at.localityEndpoints(l, names))
	}
	return out
}

func (s scope) localityEndpoints(l *endpoint.LocalityLbEndpoints, names bool) config.Locality {
	s.unsupported(l.GetLedsClusterLocalityConfig() != nil, "leds_cluster_locality_config", "endpoints by LEDS")
	lbs := l.GetLbEndpoints()
	if l.GetLoadBalancerEndpoints() != nil {
		lbs = l.GetLoadBalancerEndpoints().GetLbEndpoints()
	}
	out := config.Locality{
		Region: l.GetLocality().GetRegion(), Zone: l.GetLocality().GetZone(), SubZone: l.GetLocality().GetSubZone(),
		Weight: u32(l.GetLoadBalancingWeight(), 0), Priority: l.GetPriority(),
	}
	if len(lbs) > 0 {
		out.Endpoints = make([]config.Endpoint, 0, len(lbs))
	}
	total := uint64(0)
	for i, e := range lbs {
		ep := s.index("lb_endpoints", i).endpoint(e, names)
		if i > 0 && sameMetadata(e.GetMetadata(), lbs[i-1].GetMetadata()) {
			ep.Metadata = out.Endpoints[i-1].Metadata
		} else {
			ep.Metadata = config.Pack(metadata(e.GetMetadata()))
		}
		total += uint64(ep.Weight)
		out.Endpoints = append(out.Endpoints, ep)
	}
	if total > 1<<32-1 {
		s.bad("the sum of weights of all endpoints in the same locality exceeds 4294967295")
	}
	return out
}

func (s scope) endpoint(e *endpoint.LbEndpoint, names bool) config.Endpoint {
	s.unsupported(e.GetEndpointName() != "", "endpoint_name", "named endpoints")
	ep := e.GetEndpoint()
	out := config.Endpoint{
		Hostname: ep.GetHostname(),
		Health:   config.HealthStatus(e.GetHealthStatus()),
		Weight:   max(u32(e.GetLoadBalancingWeight(), 1), 1),
	}
	if ep.GetAddress() != nil {
		out.Address = s.at("endpoint.address").address(ep.Address, names)
	} else {
		s.at("endpoint.address").bad("missing")
	}
	if h := ep.GetHealthCheckConfig(); h.GetPortValue() != 0 {
		s.at("endpoint.health_check_config").unsupported(true, "port_value", "health checks on another port")
	}
	return out
}

// sameMetadata says that two endpoints' metadata are alike, as those of one
// workload are.
func sameMetadata(a, b *core.Metadata) bool {
	return maps.EqualFunc(a.GetFilterMetadata(), b.GetFilterMetadata(), sameStruct)
}

func sameStruct(a, b *structpb.Struct) bool {
	return maps.EqualFunc(a.GetFields(), b.GetFields(), func(x, y *structpb.Value) bool {
		s, text := x.GetKind().(*structpb.Value_StringValue)
		if !text {
			return proto.Equal(x, y)
		}
		other, text := y.GetKind().(*structpb.Value_StringValue)
		return text && other.StringValue == s.StringValue
	})
}
