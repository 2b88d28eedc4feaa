package main

import (
	"encoding/json"
	"fmt"
)

// row is one line of the table: a bootstrap, a back end and a load.
type row struct {
	name    string
	unit    string  // what the CPU figure is per
	scale   float64 // CPU-µs per unit are multiplied by it
	backend string
	size    int
	chain   func(r row) chain
	load    loadSpec
	memory  bool    // PSS per connection instead of CPU
	limit   float64 // the ratio to Envoy that must hold
}

type chain struct {
	filter  map[string]any
	tls     map[string]any
	cluster map[string]any // more fields of the cluster
}

func rows() []row {
	return []row{
		{name: "HTTP/1.1 1 KB, 32 connections", unit: "µs/request", scale: 1, backend: "h1", size: 1024, chain: httpChain, limit: 0.35,
			load: loadSpec{Kind: "h1", Conns: 32, Size: 1024}},
		{name: "HTTP/1.1 1 KB, 4,000 rps", unit: "µs/request", scale: 1, backend: "h1", size: 1024, chain: httpChain, limit: 0.40,
			load: loadSpec{Kind: "h1", Conns: 32, Size: 1024, Rate: 4000}},
		{name: "HTTP/1.1 1 KB, 1,000 rps", unit: "µs/request", scale: 1, backend: "h1", size: 1024, chain: httpChain, limit: 0.45,
			load: loadSpec{Kind: "h1", Conns: 32, Size: 1024, Rate: 1000}},
		{name: "HTTP/1.1 1 MB, 8 connections", unit: "µs/request", scale: 1, backend: "h1", size: 1 << 20, chain: httpChain, limit: 0.50,
			load: loadSpec{Kind: "h1", Conns: 8, Size: 1 << 20}},
		{name: "HTTP/2 1 KB, 16 × 20 streams", unit: "µs/request", scale: 1, backend: "h2", size: 1024, chain: httpChain, limit: 0.25,
			load: loadSpec{Kind: "h2", Conns: 16, Streams: 20, Size: 1024}},
		{name: "HTTP/2 1 KB, 16 × 1 stream", unit: "µs/request", scale: 1, backend: "h2", size: 1024, chain: httpChain, limit: 0.35,
			load: loadSpec{Kind: "h2", Conns: 16, Streams: 1, Size: 1024}},
		{name: "gRPC unary, 16 × 20 streams", unit: "µs/call", scale: 1, backend: "grpc", size: 200, chain: httpChain, limit: 0.25,
			load: loadSpec{Kind: "grpc", Conns: 16, Streams: 20}},
		{name: "gRPC unary, 16 × 1 stream", unit: "µs/call", scale: 1, backend: "grpc", size: 200, chain: httpChain, limit: 0.35,
			load: loadSpec{Kind: "grpc", Conns: 16, Streams: 1}},
		{name: "TCP bulk, 1 connection", unit: "ms/GB", scale: 1e9 / 1e3, backend: "source", chain: tcpChain, limit: 0.55,
			load: loadSpec{Kind: "bulk", Conns: 1}},
		{name: "TCP bulk, 8 connections", unit: "ms/GB", scale: 1e9 / 1e3, backend: "source", chain: tcpChain, limit: 0.45,
			load: loadSpec{Kind: "bulk", Conns: 8}},
		{name: "TCP 1 KB ping-pong, 32 connections", unit: "µs/message", scale: 1, backend: "echo", chain: tcpChain, limit: 0.90,
			load: loadSpec{Kind: "pingpong", Conns: 32, Size: 1024}},
		{name: "mTLS 1 KB ping-pong, 32 connections", unit: "µs/message", scale: 1, backend: "echo", chain: mtlsChain, limit: 0.90,
			load: loadSpec{Kind: "pingpong", Conns: 32, Size: 1024, CertDir: "certs"}},
		{name: "mTLS bulk down, 1 connection", unit: "ms/GB", scale: 1e9 / 1e3, backend: "source", chain: mtlsChain, limit: 0.85,
			load: loadSpec{Kind: "bulk", Conns: 1, CertDir: "certs"}},
		{name: "idle TCP connection, 1,000", unit: "KB/connection", scale: 1, backend: "echo", chain: tcpChain, memory: true, limit: 0.10,
			load: loadSpec{Kind: "idle", Conns: 1000, Size: 64}},
		{name: "idle mTLS connection, 1,000", unit: "KB/connection", scale: 1, backend: "echo", chain: mtlsChain, memory: true, limit: 0.45,
			load: loadSpec{Kind: "idle", Conns: 1000, Size: 64, CertDir: "certs"}},
	}
}

const typePrefix = "type.googleapis.com/envoy."

func httpChain(r row) chain {
	c := chain{filter: map[string]any{
		"name": "envoy.filters.network.http_connection_manager",
		"typed_config": map[string]any{
			"@type":       typePrefix + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
			"stat_prefix": "bench",
			"route_config": map[string]any{"name": "r", "virtual_hosts": []any{map[string]any{
				"name": "v", "domains": []any{"*"},
				"routes": []any{map[string]any{"match": map[string]any{"prefix": "/"}, "route": map[string]any{"cluster": "up",
					"retry_policy": map[string]any{"retry_on": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", "num_retries": 2}}}},
			}}},
			"http_filters": []any{map[string]any{"name": "envoy.filters.http.router",
				"typed_config": map[string]any{"@type": typePrefix + "extensions.filters.http.router.v3.Router"}}},
		},
	}}
	if r.backend == "h2" || r.backend == "grpc" {
		c.cluster = map[string]any{"typed_extension_protocol_options": map[string]any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": map[string]any{
				"@type":                typePrefix + "extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": map[string]any{"http2_protocol_options": map[string]any{}},
			},
		}}
	}
	return c
}

func tcpChain(row) chain {
	return chain{filter: map[string]any{
		"name": "envoy.filters.network.tcp_proxy",
		"typed_config": map[string]any{
			"@type": typePrefix + "extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "bench", "cluster": "up",
		},
	}}
}

func mtlsChain(r row) chain {
	c := tcpChain(r)
	file := func(name string) any { return map[string]any{"filename": "certs/" + name} }
	c.tls = map[string]any{
		"name": "envoy.transport_sockets.tls",
		"typed_config": map[string]any{
			"@type":                      typePrefix + "extensions.transport_sockets.tls.v3.DownstreamTlsContext",
			"require_client_certificate": true,
			"common_tls_context": map[string]any{
				"tls_certificates":   []any{map[string]any{"certificate_chain": file("server.pem"), "private_key": file("server.key")}},
				"validation_context": map[string]any{"trusted_ca": file("ca.pem")},
			},
		},
	}
	return c
}

// bootstrap is the file that both proxies are started with.
func bootstrap(r row, listen, admin, upstream int) ([]byte, error) {
	address := func(port int) any {
		return map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": port}}
	}
	c := r.chain(r)
	fc := map[string]any{"filters": []any{c.filter}}
	if c.tls != nil {
		fc["transport_socket"] = c.tls
	}
	cluster := map[string]any{
		"name": "up", "connect_timeout": "5s", "type": "STATIC",
		// Istio's own setting: no limit. With Envoy's default of 1,024 the idle row would measure refusals.
		"circuit_breakers": map[string]any{"thresholds": []any{map[string]any{
			"max_connections": 4294967295, "max_pending_requests": 4294967295, "max_requests": 4294967295, "max_retries": 4294967295}}},
		"load_assignment": map[string]any{"cluster_name": "up", "endpoints": []any{map[string]any{
			"lb_endpoints": []any{map[string]any{"endpoint": map[string]any{"address": address(upstream)}}}}}},
	}
	for k, v := range c.cluster {
		cluster[k] = v
	}
	text, err := json.MarshalIndent(map[string]any{
		"admin": map[string]any{"address": address(admin)},
		"node":  map[string]any{"id": "bench", "cluster": "bench"},
		"static_resources": map[string]any{
			"listeners": []any{map[string]any{"name": "in", "address": address(listen), "filter_chains": []any{fc}}},
			"clusters":  []any{cluster},
		},
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("writing the bootstrap of %q: %w", r.name, err)
	}
	return text, nil
}
