package istiostats

import (
	"context"
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

var (
	self     = &telemetry.Peer{Workload: "me", Namespace: "own", Cluster: "c1", App: "app-me", Version: "v1", Canonical: "me", Revision: "r1"}
	other    = &telemetry.Peer{Workload: "you", Namespace: "theirs", Cluster: "c2", App: "app-you", Canonical: "you"}
	mine     = []string{"spiffe://td/ns/own/sa/me"}
	yours    = []string{"spiffe://td/ns/elsewhere/sa/you"}
	reviews  = &telemetry.Service{Host: "reviews.ns.svc.cluster.local", Name: "reviews", Namespace: "ns"}
	mutual   = &telemetry.TLS{PeerURI: yours, LocalURI: mine}
	oneSided = &telemetry.TLS{LocalURI: mine}
)

func TestLabels(t *testing.T) {
	type labels map[string]string
	for _, c := range []struct {
		rule string
		dir  config.Direction
		rec  telemetry.Record
		want labels
	}{
		{"outbound: the service of the cluster, the peer it told", config.Outbound,
			telemetry.Record{ClusterService: reviews, UpstreamPeer: other, UpstreamTLS: mutual, Code: 200},
			labels{"reporter": "source", "source_workload": "me", "source_workload_namespace": "own", "source_canonical_service": "me",
				"source_canonical_revision": "r1", "source_principal": mine[0], "source_app": "app-me", "source_version": "v1", "source_cluster": "c1",
				"destination_workload": "you", "destination_workload_namespace": "theirs", "destination_principal": yours[0],
				"destination_app": "app-you", "destination_version": "unknown", "destination_service": reviews.Host,
				"destination_canonical_service": "you", "destination_canonical_revision": "latest", "destination_service_name": "reviews",
				"destination_service_namespace": "ns", "destination_cluster": "c2", "request_protocol": "http", "response_code": "200",
				"grpc_response_status": "", "response_flags": "-", "connection_security_policy": "unknown"}},
		{"outbound: what the endpoint says of a silent peer", config.Outbound,
			telemetry.Record{ClusterService: reviews, Workload: "w;n;canon;rev;c9"},
			labels{"destination_workload": "w", "destination_workload_namespace": "n", "destination_canonical_service": "canon",
				"destination_canonical_revision": "rev", "destination_cluster": "c9", "response_code": "0"}},
		{"outbound: the host is the last resort", config.Outbound, telemetry.Record{Code: 200},
			labels{"destination_service": "svc.test:80", "destination_service_name": "svc", "destination_service_namespace": "unknown",
				"destination_workload": "unknown", "destination_canonical_revision": "latest"}},
		{"outbound: blocked", config.Outbound, telemetry.Record{Route: "block_all", Code: 502},
			labels{"destination_service": "BlackHoleCluster", "destination_service_name": "BlackHoleCluster"}},
		{"outbound: passed through", config.Outbound, telemetry.Record{Route: "allow_any", ClusterRaw: "PassthroughCluster", Code: 200},
			labels{"destination_service": "PassthroughCluster", "destination_service_name": "PassthroughCluster"}},
		{"inbound: the namespace comes from the certificate first", config.Inbound,
			telemetry.Record{ClusterService: reviews, Peer: other, Conn: &telemetry.Conn{TLS: mutual}, Code: 403},
			labels{"reporter": "destination", "source_workload": "you", "source_workload_namespace": "elsewhere", "source_principal": yours[0],
				"destination_principal": mine[0], "destination_workload": "me", "destination_service_namespace": "ns",
				"connection_security_policy": "mutual_tls", "response_code": "403"}},
		{"inbound: TLS without a client certificate is not mutual", config.Inbound,
			telemetry.Record{ClusterService: reviews, Conn: &telemetry.Conn{TLS: oneSided}},
			labels{"source_principal": "unknown", "source_workload_namespace": "unknown", "connection_security_policy": "none"}},
		{"inbound: plaintext without a cluster's service has no host fallback", config.Inbound,
			telemetry.Record{ClusterRaw: "InboundPassthroughCluster"},
			labels{"destination_service": "InboundPassthroughCluster", "connection_security_policy": "none"}},
		{"gRPC has a status", config.Outbound, telemetry.Record{GRPC: true, Code: 200, ClusterService: reviews},
			labels{"request_protocol": "grpc", "grpc_response_status": "13"}},
	} {
		f := New(&config.IstioStats{}, &telemetry.Node{Self: self}, c.dir)
		set := telemetry.NewSet()
		r := c.rec
		if r.Conn == nil {
			r.Conn = &telemetry.Conn{}
		}
		head, resp := &httpmsg.Head{}, &httpmsg.Head{}
		head.SetAuthority([]byte("svc.test:80"))
		resp.SetString(httpmsg.GRPCStatus, "13")
		r.Response = resp
		f.Log(&filter.Exchange{Record: &r, Request: head, Set: set}, nil)
		got := map[string]string{}
		for _, l := range find(t, set, "istio_requests_total").Labels {
			got[l.Name] = l.Value
		}
		for k, v := range c.want {
			if have, ok := got[k]; !ok || have != v {
				t.Errorf("%s: %s=%q, want %q", c.rule, k, have, v)
			}
		}
	}
}

func TestConnectionsHaveNoResponseCode(t *testing.T) {
	f := New(&config.IstioStats{}, &telemetry.Node{Self: self}, config.Inbound)
	set := telemetry.NewSet()
	r := &telemetry.Record{Conn: &telemetry.Conn{TLS: mutual, Peer: other}, ClusterService: reviews, TCP: true}
	f.Connection(set, r, 1, 0, 5, 7)
	f.Connection(set, r, 0, 1, 1, 2)
	for name, want := range map[string]uint64{"istio_tcp_connections_opened_total": 1, "istio_tcp_connections_closed_total": 1,
		"istio_tcp_sent_bytes_total": 6, "istio_tcp_received_bytes_total": 9} {
		m := find(t, set, name)
		if m.Value != want {
			t.Errorf("%s is %d, want %d", name, m.Value, want)
		}
		got := map[string]string{}
		for _, l := range m.Labels {
			got[l.Name] = l.Value
		}
		if _, ok := got["response_code"]; ok || got["request_protocol"] != "tcp" || got["source_workload"] != "you" {
			t.Errorf("%s: labels %v", name, got)
		}
	}
}

func TestOverridesOfOneMetricLeaveTheOthers(t *testing.T) {
	f := New(&config.IstioStats{Metrics: []config.MetricOverride{{Name: "requests_total", Remove: []string{"source_app"}},
		{Remove: []string{"reporter"}}, {Name: "request_bytes", Drop: true}}}, nil, config.Outbound)
	set := telemetry.NewSet()
	head := &httpmsg.Head{}
	f.Log(&filter.Exchange{Record: &telemetry.Record{Conn: &telemetry.Conn{}}, Request: head, Set: set}, nil)
	has := func(metric, label string) bool {
		for _, l := range find(t, set, metric).Labels {
			if l.Name == label {
				return true
			}
		}
		return false
	}
	if has("istio_requests_total", "source_app") || !has("istio_response_bytes", "source_app") || has("istio_response_bytes", "reporter") {
		t.Error("overrides reached the wrong metrics")
	}
	for _, m := range gather(set) {
		if m.Name == "istio_request_bytes" {
			t.Error("a dropped metric is there")
		}
	}
}

func gather(set *telemetry.Set) []telemetry.Metric {
	var r telemetry.Registry
	r.Register(func(f func()) { f() }, set)
	return r.Gather(context.Background())
}

func find(t *testing.T, set *telemetry.Set, name string) telemetry.Metric {
	t.Helper()
	for _, m := range gather(set) {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("no %s", name)
	return telemetry.Metric{}
}
