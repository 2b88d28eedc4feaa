package xdsclient

import (
	"fmt"
	"runtime"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice/internal/config"
	"sluice/xdsclient/translate"
)

// loaded is a client that is live with n clusters and their endpoints.
func loaded(tb testing.TB, n int) *Client {
	tb.Helper()
	c := New(Options{ADS: &config.ADS{Delta: true, Cluster: "x", CDS: true}, Translate: translate.Default()})
	c.answer(bigClusters(tb, n))
	c.answer(bigEndpoints(tb, n, "1", 80))
	if !c.facts.Live {
		tb.Fatalf("not live: %+v", c.facts)
	}
	return c
}

// allocated gives the bytes that f allocates, on average over n calls.
func allocated(n int, f func(i int)) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		f(i)
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
}

func TestAnEndpointChangeCostsTheSameAmongManyClusters(t *testing.T) {
	cost := func(n int) uint64 {
		c := loaded(t, n)
		var pushes []*answer
		for i := range 50 {
			pushes = append(pushes, bigEndpoints(t, 1, fmt.Sprint("v", i), uint32(81+i%2)))
		}
		return allocated(len(pushes), func(i int) { c.answer(pushes[i]) })
	}
	few, many := cost(10), cost(5000)
	t.Logf("an endpoint change allocates %d bytes among 10 clusters, %d among 5000", few, many)
	if many > few+few/2+2048 {
		t.Errorf("%d bytes among 5000 clusters, %d among 10", many, few)
	}
}

// istioClusters are clusters as Istio writes them: mutual TLS by endpoint
// metadata, with a peer, statistics' name and metadata of their own.
func istioClusters(tb testing.TB, n int) *answer {
	tb.Helper()
	out := &answer{url: translate.ClusterURL, version: "1", nonce: "c"}
	for i := range n {
		name := fmt.Sprintf("outbound|80||svc-%d.demo.svc.cluster.local", i)
		out.resources = append(out.resources, received{name: name, version: fmt.Sprint("v", i), body: &anypb.Any{TypeUrl: translate.ClusterURL, Value: fromYAML(tb, &clusterv3.Cluster{}, fmt.Sprintf(`
name: %[1]s
alt_stat_name: svc-%[2]d.demo.svc.cluster.local;
type: EDS
eds_cluster_config: {service_name: "%[1]s", eds_config: {ads: {}, initial_fetch_timeout: 0s, resource_api_version: V3}}
connect_timeout: 10s
lb_policy: LEAST_REQUEST
circuit_breakers: {thresholds: [{max_connections: 4294967295, max_pending_requests: 4294967295, max_requests: 4294967295, max_retries: 4294967295, track_remaining: true}]}
metadata: {filter_metadata: {istio: {services: [{host: svc-%[2]d.demo.svc.cluster.local, name: svc-%[2]d, namespace: demo}]}}}
transport_socket_matches:
- name: tlsMode-istio
  match: {tlsMode: istio}
  transport_socket:
    name: envoy.transport_sockets.tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      sni: outbound_.80_._.svc-%[2]d.demo.svc.cluster.local
      common_tls_context:
        alpn_protocols: [istio-peer-exchange, istio]
        tls_certificate_sds_secret_configs: [{name: default, sds_config: {ads: {}}}]
        combined_validation_context:
          default_validation_context: {match_typed_subject_alt_names: [{san_type: URI, matcher: {exact: "spiffe://cluster.local/ns/demo/sa/svc-%[2]d"}}]}
          validation_context_sds_secret_config: {name: ROOTCA, sds_config: {ads: {}}}
- name: tlsMode-disabled
  match: {}
  transport_socket: {name: envoy.transport_sockets.raw_buffer, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}}
`, name, i))}})
	}
	return out
}

// istioEndpoints gives each of n clusters e endpoints with a workload's metadata.
func istioEndpoints(tb testing.TB, n, e int) *answer {
	tb.Helper()
	out := &answer{url: translate.EndpointURL, version: "1", nonce: "e"}
	for i := range n {
		name := fmt.Sprintf("outbound|80||svc-%d.demo.svc.cluster.local", i)
		text := "cluster_name: " + name + "\nendpoints:\n- locality: {region: r, zone: z}\n  lb_endpoints:\n"
		for k := range e {
			text += fmt.Sprintf(`  - endpoint: {address: {socket_address: {address: 10.%d.%d.%d, port_value: 8080}}}
    load_balancing_weight: 1
    metadata: {filter_metadata: {istio: {workload: "svc-%[4]d;demo;svc-%[4]d;v1;Kubernetes"}, envoy.transport_socket_match: {tlsMode: istio}}}
`, k, i/256, i%256, i)
		}
		out.resources = append(out.resources, received{name: name, version: fmt.Sprint("v", i), body: &anypb.Any{TypeUrl: translate.EndpointURL, Value: fromYAML(tb, &endpoint.ClusterLoadAssignment{}, text)}})
	}
	return out
}

func fromYAML(tb testing.TB, m proto.Message, text string) []byte {
	tb.Helper()
	if err := translate.Message([]byte(text), m, false); err != nil {
		tb.Fatal(err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestBytesOfAClusterAndAnEndpoint is what the control path holds of a mesh.
// Raise a ceiling only with a reason in the same change.
func TestBytesOfAClusterAndAnEndpoint(t *testing.T) {
	const n = 1000
	held := func(endpoints int) int64 {
		before := live()
		clusters, loads := istioClusters(t, n), istioEndpoints(t, n, endpoints)
		c := New(Options{ADS: &config.ADS{Delta: true, Cluster: "x", CDS: true}, Translate: translate.Default()})
		c.conn = &conn{out: make(chan request, 64), cancel: func() {}}
		c.accepted.Secrets["default"], c.accepted.Secrets["ROOTCA"] = &config.Secret{}, &config.Secret{}
		c.answer(clusters)
		c.answer(loads)
		if !c.facts.Live {
			t.Fatalf("not live: %+v, waiting for %d", c.facts, len(c.waiting))
		}
		clusters, loads = nil, nil
		bytes := live() - before
		runtime.KeepAlive(c)
		return bytes
	}
	held(1) // what is made once
	one, many := held(1), held(21)
	endpoint := (many - one) / (20 * n)
	cluster := one/n - endpoint
	t.Logf("a cluster takes %d bytes, an endpoint %d", cluster, endpoint)
	if cluster > 4000 || endpoint > 200 {
		t.Errorf("a cluster takes %d bytes, an endpoint %d; the ceilings are 4000 and 200", cluster, endpoint)
	}
}

// live gives the bytes that are reachable.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
