package main

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The types of resources, in the order in which istiod sends them.
const (
	cds = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	eds = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	lds = "type.googleapis.com/envoy.config.listener.v3.Listener"
	rds = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// perCluster is the number of endpoints of each generated cluster.
const perCluster = 5

// The hosts of the two services that are asked; all others are only carried.
const (
	changingHost = "changing.bench.svc.cluster.local" // its endpoint is changed
	steadyHost   = "steady.bench.svc.cluster.local"   // nothing of it ever is
)

// mesh makes the resources of n services: each an EDS cluster with five
// endpoints and a virtual host with the five names that Istio gives it; one
// listener, one route configuration.
type mesh struct {
	n      int
	origin string
	ports  ports
}

func packed(m proto.Message) (*anypb.Any, error) {
	out := &anypb.Any{}
	return out, anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true})
}

func serviceHost(i int) string { return fmt.Sprintf("service-%d.bench.svc.cluster.local", i) }

func clusterName(host string) string { return "outbound|8080||" + host }

func fromADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3,
		InitialFetchTimeout: durationpb.New(0)}
}

func (m mesh) hosts() []string {
	list := make([]string, 0, m.n+2)
	for i := range m.n {
		list = append(list, serviceHost(i))
	}
	return append(list, steadyHost, changingHost) // what is last takes effect last
}

// cluster is a service's; another generation of it differs in its timeout.
func (m mesh) cluster(host string, generation int) (proto.Message, error) {
	most := wrapperspb.UInt32(4294967295)
	matches, err := socketMatches(host)
	if err != nil {
		return nil, err
	}
	return &clusterv3.Cluster{Name: clusterName(host), TransportSocketMatches: matches, AltStatName: clusterName(host) + ";", ConnectTimeout: durationpb.New(durationOfGeneration(generation)),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}, LbPolicy: clusterv3.Cluster_LEAST_REQUEST,
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: fromADS(), ServiceName: clusterName(host)},
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
			{MaxConnections: most, MaxPendingRequests: most, MaxRequests: most, MaxRetries: most}}}}, nil
}

func socketAddress(host string, port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}}}
}

func endpoints(name string, about *corev3.Metadata, addresses ...*corev3.Address) proto.Message {
	local := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: "r1", Zone: "z1"}, LoadBalancingWeight: wrapperspb.UInt32(uint32(len(addresses)))}
	for _, a := range addresses {
		local.LbEndpoints = append(local.LbEndpoints, &endpointv3.LbEndpoint{HealthStatus: corev3.HealthStatus_HEALTHY, LoadBalancingWeight: wrapperspb.UInt32(1), Metadata: about,
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: a}}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{local}}
}

// assignment is a cluster's endpoints. Those of services nobody asks are in a
// network that isn't there; the changing one is at its port number generation.
func (m mesh) assignment(host string, index, generation int) proto.Message {
	name := clusterName(host)
	switch host {
	case steadyHost:
		return endpoints(name, nil, socketAddress(m.origin, m.ports.origin))
	case changingHost:
		return endpoints(name, nil, socketAddress(m.origin, []int{m.ports.origin, m.ports.other}[generation%2]))
	}
	var list []*corev3.Address
	for k := range perCluster {
		at := index*perCluster + k
		list = append(list, socketAddress(fmt.Sprintf("127.%d.%d.%d", 16+at>>16, at>>8&255, at&255), 8080+generation%2))
	}
	return endpoints(name, meshed(host), list...)
}

func (m mesh) routes() proto.Message {
	rc := &routev3.RouteConfiguration{Name: "8080", ValidateClusters: wrapperspb.Bool(false), IgnorePortInHostMatching: true}
	for _, host := range m.hosts() {
		short := host[:len(host)-len(".svc.cluster.local")]
		rc.VirtualHosts = append(rc.VirtualHosts, &routev3.VirtualHost{Name: host + ":8080", IncludeRequestAttemptCount: true,
			Domains: []string{host, host + ".", short, short + ".svc", short + ".svc.cluster"},
			Routes: []*routev3.Route{{Name: "default", Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: clusterName(host)}, Timeout: durationpb.New(0),
					RetryPolicy: &routev3.RetryPolicy{RetryOn: retryOn, NumRetries: wrapperspb.UInt32(2)}}}}}})
	}
	return rc
}

func (m mesh) listener() (proto.Message, error) {
	router, err := packed(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := packed(&hcmv3.HttpConnectionManager{StatPrefix: "bench",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: fromADS(), RouteConfigName: "8080"}},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}}})
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{Name: "0.0.0.0_8080", Address: socketAddress("0.0.0.0", m.ports.proxy), FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
		Name: "envoy.filters.network.http_connection_manager", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}}}}}}, nil
}
