package translate

import (
	"hash/maphash"
	"os"

	"sluice/internal/config"
)

const metadataExchangeURL = "envoy.tcp.metadataexchange.config.MetadataExchange"

// Registry says which extensions exist and how each is translated. Its maps are
// keyed by full message name (a type URL without its host); they are written by
// Default and only read afterwards, so a Registry may be used by any number of
// goroutines. Default makes one.
type Registry struct {
	NetworkFilters    map[string]func(scope, typed) config.NetworkFilter
	HTTPFilters       map[string]func(scope, typed) config.HTTPPolicy
	RouteFilters      map[string]func(scope, typed) config.HTTPPolicy
	ListenerFilters   map[string]func(scope, typed, config.Inspector, *config.ListenerFilters)
	DownstreamSockets map[string]func(scope, typed, *config.FilterChain)
	UpstreamSockets   map[string]func(scope, typed, int) socket
	LBPolicies        map[string]func(scope, typed, *config.Cluster)
	AccessLoggers     map[string]func(scope, typed) config.LogSink
	Tracers           map[string]func(scope, typed) config.TracerProvider
	// Ignored extensions are left out; each has one sentence why that is safe.
	Ignored map[string]string
	// Idle extensions are in the tables above, but nothing carries them out yet.
	Idle map[string]string
	// Unsupported extensions are known and refused; each says what it is.
	Unsupported map[string]string

	// ReadFile and Env give the files and environment variables that data
	// sources name. Default reads files; the environment is the command's to
	// give, until when no variable exists.
	ReadFile func(string) ([]byte, error)
	Env      func(string) (string, bool)
	// AllowUnknown takes unknown fields of a bootstrap (--allow-unknown-static-fields).
	AllowUnknown bool

	alike *alike
	seed  maphash.Seed // of VirtualHost.Hash
}

// Default gives the registry of everything the proxy can do.
func Default() *Registry {
	return &Registry{
		alike: newAlike(),
		seed:  maphash.MakeSeed(),
		NetworkFilters: map[string]func(scope, typed) config.NetworkFilter{
			"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy":                            tcpProxy,
			"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": connectionManager,
			"envoy.extensions.filters.network.rbac.v3.RBAC":                                     networkRBAC,
			"envoy.extensions.filters.network.ext_authz.v3.ExtAuthz":                            networkExtAuthz,
			"envoy.extensions.filters.network.echo.v3.Echo":                                     echoFilter,
			"envoy.extensions.filters.network.direct_response.v3.Config":                        directResponse,
			"envoy.extensions.filters.network.sni_cluster.v3.SniCluster":                        sniCluster,
			"envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit":                connectionRate,
			metadataExchangeURL:  metadataExchange,
			"stats.PluginConfig": networkStats,
		},
		HTTPFilters:  httpFilterTable(),
		RouteFilters: routeFilterTable(),
		ListenerFilters: map[string]func(scope, typed, config.Inspector, *config.ListenerFilters){
			"envoy.extensions.filters.listener.original_dst.v3.OriginalDst":     originalDst,
			"envoy.extensions.filters.listener.original_src.v3.OriginalSrc":     originalSrc,
			"envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector":   tlsInspector,
			"envoy.extensions.filters.listener.http_inspector.v3.HttpInspector": httpInspector,
			"envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol": proxyProtocol,
		},
		DownstreamSockets: map[string]func(scope, typed, *config.FilterChain){
			"envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext": downstreamTLS,
			"envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer":     downstreamRaw,
		},
		UpstreamSockets: map[string]func(scope, typed, int) socket{
			"envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext":                        upstreamTLS,
			"envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer":                          upstreamRaw,
			"envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport": upstreamProxyProtocol,
			"envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport":   upstreamInternal,
		},
		LBPolicies: map[string]func(scope, typed, *config.Cluster){
			"envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin":           roundRobinLB,
			"envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest":       leastRequestLB,
			"envoy.extensions.load_balancing_policies.random.v3.Random":                    randomLB,
			"envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash":               ringHashLB,
			"envoy.extensions.load_balancing_policies.maglev.v3.Maglev":                    maglevLB,
			"envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided": clusterProvidedLB,
		},
		AccessLoggers: map[string]func(scope, typed) config.LogSink{
			"envoy.extensions.access_loggers.file.v3.FileAccessLog":                          fileLog,
			"envoy.extensions.access_loggers.stream.v3.StdoutAccessLog":                      stdoutLog,
			"envoy.extensions.access_loggers.stream.v3.StderrAccessLog":                      stderrLog,
			"envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig":                httpGRPCLog,
			"envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig":                 tcpGRPCLog,
			"envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig": otelLog,
		},
		Tracers: map[string]func(scope, typed) config.TracerProvider{
			"envoy.config.trace.v3.ZipkinConfig":        zipkin,
			"envoy.config.trace.v3.OpenTelemetryConfig": otelTracer,
		},
		Ignored:     ignored(),
		Idle:        idle(),
		Unsupported: unsupported(),
		ReadFile:    os.ReadFile,
		Env:         func(string) (string, bool) { return "", false },
	}
}

func httpFilterTable() map[string]func(scope, typed) config.HTTPPolicy {
	return map[string]func(scope, typed) config.HTTPPolicy{
		"envoy.extensions.filters.http.rbac.v3.RBAC":                      httpRBAC,
		"envoy.extensions.filters.http.fault.v3.HTTPFault":                faultFilter,
		"envoy.extensions.filters.http.cors.v3.Cors":                      corsFilter,
		"envoy.extensions.filters.http.grpc_stats.v3.FilterConfig":        grpcStats,
		"envoy.extensions.filters.http.grpc_web.v3.GrpcWeb":               grpcWeb,
		"envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit": localRateLimit,
		"envoy.extensions.filters.http.buffer.v3.Buffer":                  bufferFilter,
		"envoy.extensions.filters.http.header_mutation.v3.HeaderMutation": headerMutation,
		"envoy.extensions.filters.http.csrf.v3.CsrfPolicy":                csrfFilter,
		"envoy.extensions.filters.http.header_to_metadata.v3.Config":      headerToMetadata,
		"envoy.extensions.filters.http.health_check.v3.HealthCheck":       healthCheck,
		"envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication":    jwtAuthn,
		"envoy.extensions.filters.http.ext_authz.v3.ExtAuthz":             extAuthz,
		"istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig":       istioALPN,
		"io.istio.http.peer_metadata.Config":                              peerMetadata,
		"stats.PluginConfig":                                              httpStats,
	}
}

// routeFilterTable has what a route may say of HTTP filters.
func routeFilterTable() map[string]func(scope, typed) config.HTTPPolicy {
	return map[string]func(scope, typed) config.HTTPPolicy{
		"envoy.extensions.filters.http.rbac.v3.RBACPerRoute":                      routeRBAC,
		"envoy.extensions.filters.http.fault.v3.HTTPFault":                        faultFilter,
		"envoy.extensions.filters.http.csrf.v3.CsrfPolicy":                        csrfFilter,
		"envoy.extensions.filters.http.header_to_metadata.v3.Config":              routeHeaderToMetadata,
		"envoy.extensions.filters.http.cors.v3.CorsPolicy":                        corsPolicy,
		"envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit":         routeLocalRateLimit,
		"envoy.extensions.filters.http.buffer.v3.BufferPerRoute":                  routeBuffer,
		"envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig":               routeJWT,
		"envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute":             routeExtAuthz,
		"envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute": routeHeaderMutation,
	}
}

// idle lists what is checked and accepted but not carried out yet: it reports on
// traffic, and refusing it would stop the traffic.
func idle() map[string]string {
	return map[string]string{
		"resource_detectors, but Environment and StaticConfig": "they find nothing",
		"tracing.spawn_upstream_span":                          "tries have no spans of their own, also in `upstream_operation`",
		"hedge_policy.hedge_on_per_try_timeout":                "a try that is late is given up, and the next begins",
		"layered_runtime: rtds_layer":                          "its keys are not asked for; static layers count",
		"stats_config.histogram_bucket_settings":               "histograms have Istio's buckets",
	}
}

// ignored lists what may be left out. Nothing that decides who may talk to whom
// or where a request goes can be here.
func ignored() map[string]string {
	return map[string]string{
		"envoy.extensions.filters.network.mongo_proxy.v3.MongoProxy": "It only counts Mongo operations; the bytes pass through unchanged.",
	}
}

func unsupported() map[string]string {
	return map[string]string{
		"envoy.extensions.filters.http.lua.v3.Lua":                                   "Lua",
		"envoy.extensions.filters.http.lua.v3.LuaPerRoute":                           "Lua by route",
		"envoy.extensions.filters.http.wasm.v3.Wasm":                                 "Wasm",
		"envoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig":        "dynamic forward proxy",
		"envoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfig": "dynamic forward proxy by SNI",
		"envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig":           "dynamic forward proxy clusters",
		"envoy.extensions.filters.http.set_filter_state.v3.Config":                   "filter state from headers (HBONE)",
		"envoy.extensions.filters.http.stateful_session.v3.StatefulSession":          "stateful sessions",
		"envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor":                "external processing",
		"envoy.extensions.filters.http.compressor.v3.Compressor":                     "compression",
		"envoy.extensions.filters.http.ratelimit.v3.RateLimit":                       "global rate limits",
		"envoy.extensions.filters.network.ratelimit.v3.RateLimit":                    "global rate limits of connections",
		"envoy.extensions.network_filters.peer_metadata.Config":                      "peer metadata by HBONE",
		"envoy.extensions.network_filters.peer_metadata.UpstreamConfig":              "peer metadata by HBONE",
	}
}
