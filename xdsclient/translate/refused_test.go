package translate

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// bytesOf gives the bytes of a resource written in YAML.
func bytesOf(tb testing.TB, url, text string) []byte {
	tb.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(shortURL(url)))
	if err != nil {
		tb.Fatal(err)
	}
	m := mt.New().Interface()
	if err := Message([]byte(text), m, false); err != nil {
		tb.Fatal(err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Pieces of configuration that tests are put together from.
const (
	tcpType   = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
	routerOK  = `{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}`
	tcpOK     = `{name: tcp, typed_config: {"@type": ` + tcpType + `, stat_prefix: t, cluster: a}}`
	addressOK = `address: {socket_address: {address: 127.0.0.1, port_value: 80}}`
)

func hcmFilter(rest string) string {
	return `{name: hcm, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: h, ` + rest + `}}`
}

func hcmListener(rest string) string {
	return `{name: l, ` + addressOK + `, filter_chains: [{filters: [` + hcmFilter(rest) + `]}]}`
}

func httpFilters(list string) string {
	return hcmListener(`route_config: {name: r}, http_filters: [` + list + `]`)
}

const logService = `grpc_service: {envoy_grpc: {cluster_name: c}}`

// streamedLog gives a listener whose access log has a type and fields.
func streamedLog(rest string) string {
	return hcmListener(`route_config: {name: r}, http_filters: [` + routerOK + `], access_log: [{name: l, typed_config: {"@type": type.googleapis.com/envoy.extensions.access_loggers.` + rest + `}}]`)
}

func oneRoute(rest string) string {
	return `{name: r, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, ` + rest + `}]}]}`
}

func oneMatch(match string) string {
	return `{name: r, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {` + match + `}, route: {cluster: a}}]}]}`
}

func tlsSocket(rest string) string {
	return `transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, common_tls_context: {` + rest + `}}}`
}

func TestRefusedInIsolation(t *testing.T) {
	tests := []struct{ rule, url, text, want string }{
		{"a listener needs an address", ListenerURL, `{name: l, filter_chains: [{filters: [` + tcpOK + `]}]}`, "address: missing"},
		{"a listener's address is an IP", ListenerURL, `{name: l, address: {socket_address: {address: host, port_value: 1}}, filter_chains: [{filters: [` + tcpOK + `]}]}`, "address.socket_address.address: malformed IP address: host"},
		{"a listener needs chains", ListenerURL, `{name: l, ` + addressOK + `}`, "no filter chains specified"},
		{"a match's prefix is a CIDR", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{filter_chain_match: {prefix_ranges: [{address_prefix: x, prefix_len: 8}]}, filters: [` + tcpOK + `]}]}`, "filter_chains[0].filter_chain_match.prefix_ranges[0]: invalid ip/mask combo"},
		{"two chains can't match the same", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{name: x, filters: [` + tcpOK + `]}, {name: z, filters: [` + tcpOK + `]}]}`, "filter chain 'z' has the same matching rules defined as 'x'"},
		{"overlapping lists match the same", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{name: x, filter_chain_match: {server_names: [a, b]}, filters: [` + tcpOK + `]}, {name: z, filter_chain_match: {server_names: [B, c]}, filters: [` + tcpOK + `]}]}`, "same matching rules"},
		{"a wildcard server name is a whole label", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{filter_chain_match: {server_names: ["a*.x"]}, filters: [` + tcpOK + `]}]}`, "partial wildcards"},
		{"a terminal filter comes last", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{filters: [` + tcpOK + `, ` + tcpOK + `]}]}`, "filters[0]: terminal filter named tcp must be the last filter"},
		{"the last filter is terminal", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{filters: [{name: sni, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.sni_cluster.v3.SniCluster}}]}]}`, "non-terminal filter named sni is the last"},
		{"an unknown network filter is named", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{filters: [{name: x, typed_config: {"@type": type.googleapis.com/no.such.Filter}}]}]}`, "'x' with type URL: 'no.such.Filter'"},
		{"a filter without a type is nothing", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{filters: [{name: envoy.filters.network.tcp_proxy}]}]}`, "no implementation for 'envoy.filters.network.tcp_proxy' with type URL: ''"},
		{"a health check's answer isn't remembered", ListenerURL, httpFilters(`{name: h, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck, pass_through_mode: true, cache_time: 1s}}, ` + routerOK), "cache_time: not supported yet"},
		{"metadata comes from a header or a cookie", ListenerURL, httpFilters(`{name: m, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config, request_rules: [{header: a, cookie: b, on_header_present: {key: k}}]}}, ` + routerOK), "exactly one of cookie and header"},
		{"a metadata rule does something", ListenerURL, httpFilters(`{name: m, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config, request_rules: [{header: a}]}}, ` + routerOK), "neither `on_header_present` nor"},
		{"a missing header's metadata is a constant", ListenerURL, httpFilters(`{name: m, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config, request_rules: [{header: a, on_header_missing: {key: k}}]}}, ` + routerOK), "on_header_missing: Cannot specify"},
		{"metadata by encoded headers is missing", ListenerURL, httpFilters(`{name: m, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config, request_rules: [{header: a, on_header_present: {key: k, encode: BASE64}}]}}, ` + routerOK), "encode: not supported yet"},
		{"a mutation can't write :path", ListenerURL, httpFilters(`{name: m, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: {request_mutations: [{append: {header: {key: ":path", value: x}}}]}}}, ` + routerOK), "request_mutations[0].append: :-prefixed or host headers may not be modified"},
		{"a query mutation does something", ListenerURL, httpFilters(`{name: m, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: {query_parameter_mutations: [{}]}}}, ` + routerOK), "query_parameter_mutations[0]: No mutation specified."},
		{"a parameter is text", ListenerURL, httpFilters(`{name: m, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, mutations: {query_parameter_mutations: [{append: {record: {key: k, value: 1}}}]}}}, ` + routerOK), "record.value: Only string value"},
		{"an unknown HTTP filter is named", ListenerURL, httpFilters(`{name: x, typed_config: {"@type": type.googleapis.com/no.such.Filter, a: 1}}, ` + routerOK), "http_filters[0]: didn't find a registered implementation for 'x' with type URL: 'no.such.Filter'"},
		{"a filter we lack is said to be missing", ListenerURL, httpFilters(`{name: jwt, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm}}, ` + routerOK), "not supported yet: 'jwt' (envoy.extensions.filters.http.wasm.v3.Wasm): Wasm"},
		{"the router comes last", ListenerURL, httpFilters(routerOK + `, {name: cors, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}`), "http_filters[0]: terminal filter named router must be the last"},
		{"a router there must be", ListenerURL, httpFilters(`{name: cors, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}`), "non-terminal filter named cors is the last"},
		{"routes come by ADS or inline", ListenerURL, hcmListener(`http_filters: [` + routerOK + `], rds: {route_config_name: r, config_source: {path_config_source: {path: x}}}`), "rds.config_source: not supported yet: a source other than ads"},
		{"server TLS needs a certificate", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{filters: [` + tcpOK + `], transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext}}}]}`, "no TLS certificates found for server context"},
		{"generated constraints run first", ListenerURL, hcmListener(`http_filters: [` + routerOK + `], route_config: {}, max_request_headers_kb: 9000`), "max_request_headers_kb"},

		{"an OpenTelemetry log's values are text, pairs and arrays", ListenerURL, streamedLog(`open_telemetry.v3.OpenTelemetryAccessLogConfig, ` + logService + `, attributes: {values: [{key: k, value: {int_value: 1}}]}`), "attributes.k: only strings"},
		{"its tags aren't there", ListenerURL, streamedLog(`open_telemetry.v3.OpenTelemetryAccessLogConfig, ` + logService + `, custom_tags: [{tag: t, literal: {value: v}}]`), "custom_tags: not supported yet"},
		{"nor its metadata of calls", ListenerURL, streamedLog(`open_telemetry.v3.OpenTelemetryAccessLogConfig, grpc_service: {envoy_grpc: {cluster_name: c}, initial_metadata: [{key: k, value: v}]}`), "grpc_service.initial_metadata: not supported yet"},
		{"nor OTLP over HTTP", ListenerURL, streamedLog(`open_telemetry.v3.OpenTelemetryAccessLogConfig, http_service: {http_uri: {uri: "http://x", cluster: c, timeout: 1s}}`), "http_service: not supported yet"},
		{"nested values are taken", ListenerURL, streamedLog(`open_telemetry.v3.OpenTelemetryAccessLogConfig, ` + logService + `, body: {kvlist_value: {values: [{key: k, value: {array_value: {values: [{string_value: "%PROTOCOL%"}]}}}]}}`), ""},
		{"tags of an access log service aren't there", ListenerURL, streamedLog(`grpc.v3.HttpGrpcAccessLogConfig, common_config: {log_name: l, ` + logService + `, custom_tags: [{tag: t, literal: {value: v}}]}`), "common_config.custom_tags: not supported yet"},

		{"a domain is there once", RouteURL, `{name: r, virtual_hosts: [{name: v, domains: [x, X]}]}`, "Duplicate entry of domain x"},
		{"a match needs a path", RouteURL, `{name: r, virtual_hosts: [{name: v, domains: [x], routes: [{match: {}, route: {cluster: a}}]}]}`, "path_specifier"},
		{"a route needs an action", RouteURL, `{name: r, virtual_hosts: [{name: v, domains: [x], routes: [{match: {prefix: /}}]}]}`, "action"},
		{"weights sum to more than 0", RouteURL, oneRoute(`route: {weighted_clusters: {clusters: [{name: a, weight: 0}]}}`), "greater than 0"},
		{"a regex compiles", RouteURL, oneMatch(`safe_regex: {regex: "("}`), "virtual_hosts[0].routes[0].match.safe_regex: invalid regex '('"},
		{"a duration isn't negative", RouteURL, oneRoute(`route: {cluster: a, timeout: -1s}`), "route.timeout: negative duration -1s"},
		{"only one rewrite", RouteURL, oneRoute(`route: {cluster: a, prefix_rewrite: /x, regex_rewrite: {pattern: {regex: a}, substitution: b}}`), "only one of prefix_rewrite"},
		{"the host header isn't a plain header", RouteURL, oneRoute(`direct_response: {status: 200}, request_headers_to_add: [{header: {key: Host, value: x}}]`), ":-prefixed or host headers may not be modified"},
		{"nor may it be removed", RouteURL, oneRoute(`direct_response: {status: 200}, request_headers_to_remove: [host]`), "may not be removed"},
		{"an unknown operator is refused", RouteURL, oneRoute(`direct_response: {status: 200}, request_headers_to_add: [{header: {key: x, value: "%UNKNOWN%"}}]`), "not supported field in StreamInfo: UNKNOWN"},
		{"a direct response has a bounded body", RouteURL, oneRoute(`direct_response: {status: 200, body: {inline_string: ` + strings.Repeat("x", 4097) + `}}`), "response body size is 4097 bytes; maximum is 4096"},
		{"routing by what we ignore would be wrong", RouteURL, oneMatch(`prefix: /, filter_state: [{key: x, string_match: {exact: z}}]`), "match.filter_state: not supported yet"},
		{"an unknown route filter is named", RouteURL, oneRoute(`route: {cluster: a}, typed_per_filter_config: {x: {"@type": type.googleapis.com/no.such.Filter}}`), "typed_per_filter_config[x]"},

		{"an EDS cluster says where from", ClusterURL, `{name: c, type: EDS, connect_timeout: 1s}`, "cannot create an EDS cluster without an EDS config"},
		{"EDS comes by ADS", ClusterURL, `{name: c, type: EDS, eds_cluster_config: {eds_config: {path: x}}}`, "not supported yet: a source other than ads"},
		{"ORIGINAL_DST brings its own balancing", ClusterURL, `{name: c, type: ORIGINAL_DST}`, "CLUSTER_PROVIDED and ORIGINAL_DST go together"},
		{"a cluster type we lack is named", ClusterURL, `{name: c, cluster_type: {name: envoy.clusters.redis, typed_config: {"@type": type.googleapis.com/no.such.Cluster}}}`, "no.such.Cluster"},
		{"LOGICAL_DNS has one endpoint", ClusterURL, `{name: c, type: LOGICAL_DNS}`, ""},
		{"an unknown transport socket is named", ClusterURL, `{name: c, transport_socket: {name: x, typed_config: {"@type": type.googleapis.com/no.such.Socket}}}`, "transport_socket: didn't find"},
		{"a cipher is one we know", ClusterURL, `{name: c, ` + tlsSocket(`tls_params: {cipher_suites: [NULL-MD5]}`) + `}`, "cipher_suites[0]: failed to initialize cipher suites: NULL-MD5"},
		{"renegotiation", ClusterURL, `{name: c, ` + strings.Replace(tlsSocket(``), "common_tls_context", "allow_renegotiation: true, common_tls_context", 1) + `}`, "allow_renegotiation: not supported yet: handshakes within a connection"},
		{"SANs without a root are no check", ClusterURL, `{name: c, ` + tlsSocket(`validation_context: {match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: x}}]}`) + `}`, "without trusted CA"},
		{"ring sizes are in order", ClusterURL, `{name: c, lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 10, maximum_ring_size: 5}}`, "minimum_ring_size (10) > maximum_ring_size (5)"},
		{"maglev's table is prime", ClusterURL, `{name: c, lb_policy: MAGLEV, maglev_lb_config: {table_size: 8}}`, "must be a prime"},

		{"an endpoint's address is an IP", EndpointURL, `{cluster_name: c, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: host, port_value: 1}}}}]}]}`, "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address: malformed IP address: host"},
		{"weights of a locality don't overflow", EndpointURL, `{cluster_name: c, endpoints: [{lb_endpoints: [{load_balancing_weight: 4294967295, endpoint: {address: {socket_address: {address: 1.1.1.1, port_value: 1}}}}, {load_balancing_weight: 1, endpoint: {address: {socket_address: {address: 1.1.1.1, port_value: 2}}}}]}]}`, "exceeds 4294967295"},

		{"a secret's PEM is PEM", SecretURL, `{name: s, validation_context: {trusted_ca: {inline_string: junk}}}`, "no certificate in the bundle"},
		{"a bundle's last PEM block is whole", SecretURL, `{name: s, validation_context: {trusted_ca: {inline_string: "-----BEGIN CERTIFICATE-----\nMIIB"}}}`, "trusted_ca: failed to load trusted CA certificates: a PEM block is cut short"},
		{"and a chain's", SecretURL, `{name: s, tls_certificate: {certificate_chain: {inline_string: "-----BEGIN CERTIFICATE-----\nMIIB"}, private_key: {inline_string: junk}}}`, "failed to load certificate chain or private key: a PEM block is cut short"},
		{"and that of a revocation list", SecretURL, `{name: s, validation_context: {crl: {inline_string: "-----BEGIN X509 CRL-----\nMIIB"}}}`, "crl: failed to load CRL: a PEM block is cut short"},
		{"a certificate has its key", SecretURL, `{name: s, tls_certificate: {certificate_chain: {inline_string: junk}, private_key: {inline_string: junk}}}`, "failed to load certificate chain or private key"},
		{"a secret's file must be there", SecretURL, `{name: s, validation_context: {trusted_ca: {filename: /no/such/file}}}`, "trusted_ca.filename: unable to read file"},
		{"a secret is something", SecretURL, `{name: s}`, "a secret needs"},
		{"an extension has a known type", ExtensionURL, `{name: e, typed_config: {"@type": type.googleapis.com/no.such.Filter}}`, "no.such.Filter"},
	}
	r := Default()
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			_, _, err := r.Resource(tt.url, bytesOf(t, tt.url, tt.text))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && err == nil:
				t.Error("taken")
			case tt.want != "" && !strings.Contains(err.Error(), tt.want):
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestTakenAsEnvoyDoes(t *testing.T) {
	tests := []struct{ rule, url, text string }{
		{"an optional unknown HTTP filter is left out", ListenerURL, httpFilters(`{name: x, is_optional: true, typed_config: {"@type": type.googleapis.com/no.such.Filter, a: 1}}, ` + routerOK)},
		{"an optional unknown route filter is left out", RouteURL, oneRoute(`route: {cluster: a}, typed_per_filter_config: {x: {"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig, is_optional: true, config: {"@type": type.googleapis.com/no.such.Filter}}}`)},
		{"total_weight is a thing of the past", RouteURL, oneRoute(`route: {weighted_clusters: {total_weight: 100, clusters: [{name: a, weight: 1}]}}`)},
		{"virtual hosts may share a name", RouteURL, `{name: r, virtual_hosts: [{name: v, domains: [x]}, {name: v, domains: [z]}]}`},
		{"two percent signs are one", RouteURL, oneRoute(`direct_response: {status: 200}, request_headers_to_add: [{header: {key: x, value: "100%%"}}]`)},
		{"a substitution isn't checked", RouteURL, oneRoute(`route: {cluster: a, regex_rewrite: {pattern: {regex: a}, substitution: '\\1'}}`)},
		{"chains may share a name", ListenerURL, `{name: l, ` + addressOK + `, filter_chains: [{name: c, filters: [` + tcpOK + `]}, {name: c, filter_chain_match: {destination_port: 1}, filters: [` + tcpOK + `]}]}`},
		{"a static cluster may be empty", ClusterURL, `{name: BlackHoleCluster, type: STATIC}`},
		{"TypedStruct carries any extension", ListenerURL, httpFilters(`{name: f, typed_config: {"@type": type.googleapis.com/udpa.type.v1.TypedStruct, type_url: type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, value: {max_request_bytes: 5}}}, ` + routerOK)},
		{"metadata exchange is known by name and type", ListenerURL, httpFilters(`{name: istio.metadata_exchange, typed_config: {"@type": type.googleapis.com/udpa.type.v1.TypedStruct, type_url: type.googleapis.com/io.istio.http.peer_metadata.Config, value: {downstream_discovery: [{istio_headers: {}}, {workload_discovery: {}}], downstream_propagation: [{istio_headers: {}}]}}}, ` + routerOK)},
	}
	r := Default()
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if _, _, err := r.Resource(tt.url, bytesOf(t, tt.url, tt.text)); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

func TestAllErrorsOfAResourceAreNamedWithinABound(t *testing.T) {
	var routes []string
	for range 30 {
		routes = append(routes, `{match: {safe_regex: {regex: "("}}, route: {cluster: a}}`)
	}
	_, name, err := Default().Resource(RouteURL, bytesOf(t, RouteURL, `{name: r, virtual_hosts: [{name: v, domains: ["*"], routes: [`+strings.Join(routes, ",")+`]}]}`))
	if err == nil || name != "r" {
		t.Fatalf("name %q, error %v", name, err)
	}
	if text := err.Error(); !strings.Contains(text, "routes[0]") || !strings.Contains(text, "routes[7]") || !strings.HasSuffix(text, "and 22 more") {
		t.Errorf("got %s", text)
	}
	long := strings.Repeat("(", 5000)
	if _, _, err = Default().Resource(RouteURL, bytesOf(t, RouteURL, oneMatch(`safe_regex: {regex: "`+long+`"}`))); len(err.Error()) > 2*maxProblemText {
		t.Errorf("a text of %d bytes", len(err.Error()))
	}
}

func TestMalformedIsToldFromUnbuildable(t *testing.T) {
	malformed := func(url string, b []byte) bool {
		_, _, err := Default().Resource(url, b)
		r, ok := err.(*Refusal)
		if !ok {
			t.Fatalf("no refusal: %v", err)
		}
		return r.Malformed
	}
	if !malformed(ClusterURL, []byte("\n\x7fb")) {
		t.Error("broken bytes")
	}
	if !malformed(ClusterURL, bytesOf(t, ClusterURL, `{name: c, connect_timeout: 0s}`)) {
		t.Error("a broken constraint of the message")
	}
	if malformed(ClusterURL, bytesOf(t, ClusterURL, `{name: c, type: EDS}`)) {
		t.Error("a cluster that only can't be built")
	}
}

func TestPanicIsTheResourcesError(t *testing.T) {
	r := Default()
	r.ReadFile = func(string) ([]byte, error) { panic("boom") }
	_, _, err := r.Resource(SecretURL, bytesOf(t, SecretURL, `{name: s, validation_context: {trusted_ca: {filename: x}}}`))
	if err == nil || !strings.Contains(err.Error(), "panic: boom") {
		t.Errorf("got %v", err)
	}
}
