package main

import (
	"encoding/json"
	"fmt"
)

// shape is what a scenario asks of a proxy, whichever language its
// configuration is in.
type shape struct {
	HTTP     bool   // requests are told apart; else bytes are passed on
	H2       bool   // to the origin, and expected from the client
	Istio    bool   // access log, request id, retries, grpc_stats, fault, cors and Istio's statistics
	TLS      bool   // mutual, from the client
	Pair     bool   // two proxies with mutual TLS between them
	Two      bool   // workers instead of one
	Exact    bool   // connections are spread evenly over them, instead of by the kernel
	Redirect bool   // original destination instead of a cluster's endpoint
	RBAC     int    // rules, of which the last allows
	Routes   int    // routes, of which the last matches
	Keys     string // p256 or rsa: of the certificates
}

// side is where one proxy process stands.
type side struct {
	listen, admin  int
	to             string // address of the next hop
	toPort         int
	secureUp       bool // mutual TLS to the next hop
	secureDown     bool
	log            string // access log
	ours, tuned    bool
	certs          string
	originalTarget bool
}

type object = map[string]any

const typePrefix = "type.googleapis.com/envoy."

func typed(name, message string, fields object) object {
	config := object{"@type": typePrefix + message}
	for k, v := range fields {
		config[k] = v
	}
	return object{"name": name, "typed_config": config}
}

const (
	istioLog = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% " +
		"%CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% " +
		"\"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% " +
		"%UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n"
	retryOn = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
)

// manager is the HTTP connection manager of a shape.
func manager(s shape, at side) object {
	retry := object{"retry_on": retryOn, "num_retries": 2}
	router := object{}
	if at.tuned {
		router["dynamic_stats"] = false
	}
	fields := object{"stat_prefix": "bench", "http_filters": filters(s, at, router)}
	host := object{"name": "v", "domains": []any{"*"}}
	if s.Istio {
		retry["host_selection_retry_max_attempts"] = "5"
		retry["retry_host_predicate"] = []any{typed("envoy.retry_host_predicates.previous_hosts", "extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate", nil)}
		host["include_request_attempt_count"] = true
		for k, v := range istioManager(at) {
			fields[k] = v
		}
	}
	var routes []any
	for i := range max(s.Routes, 1) {
		prefix := fmt.Sprintf("/service-%d/", i)
		if i >= s.Routes-1 {
			prefix = "/"
		}
		routes = append(routes, object{"name": "default", "match": object{"prefix": prefix}, "route": object{"cluster": "up", "timeout": "0s", "retry_policy": retry}})
	}
	host["routes"] = routes
	fields["route_config"] = object{"name": "r", "validate_clusters": false, "virtual_hosts": []any{host}}
	return typed("envoy.filters.network.http_connection_manager", "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", fields)
}

func istioManager(at side) object {
	return object{
		"use_remote_address": false, "generate_request_id": true, "normalize_path": true, "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
		"stream_idle_timeout": "0s", "upgrade_configs": []any{object{"upgrade_type": "websocket"}},
		"request_id_extension": object{"typed_config": object{"@type": typePrefix + "extensions.request_id.uuid.v3.UuidRequestIdConfig", "use_request_id_for_trace_sampling": true}},
		"access_log": []any{typed("envoy.access_loggers.file", "extensions.access_loggers.file.v3.FileAccessLog", object{
			"path": at.log, "log_format": object{"text_format_source": object{"inline_string": istioLog}}})},
	}
}

// filters are the HTTP filters. istio.stats stands on our side only: a stock
// Envoy doesn't have it.
func filters(s shape, at side, router object) (list []any) {
	if s.RBAC > 0 {
		list = append(list, typed("envoy.filters.http.rbac", "extensions.filters.http.rbac.v3.RBAC", object{"rules": rules(s.RBAC)}))
	}
	if s.Istio {
		list = append(list,
			typed("envoy.filters.http.grpc_stats", "extensions.filters.http.grpc_stats.v3.FilterConfig", object{"emit_filter_state": true, "stats_for_all_methods": false}),
			typed("envoy.filters.http.fault", "extensions.filters.http.fault.v3.HTTPFault", nil),
			typed("envoy.filters.http.cors", "extensions.filters.http.cors.v3.Cors", nil))
		if at.ours {
			list = append(list, object{"name": "istio.stats", "typed_config": object{"@type": "type.googleapis.com/stats.PluginConfig"}})
		}
	}
	return append(list, typed("envoy.filters.http.router", "extensions.filters.http.router.v3.Router", router))
}

// rules are n policies that want a header value each; the last one takes any request.
func rules(n int) object {
	policies := object{}
	for i := range n {
		permission := object{"header": object{"name": "x-tenant", "string_match": object{"exact": fmt.Sprintf("tenant-%04d", i)}}}
		if i == n-1 {
			permission = object{"any": true}
		}
		policies[fmt.Sprintf("policy-%04d", i)] = object{"permissions": []any{permission}, "principals": []any{object{"any": true}}}
	}
	return object{"action": "ALLOW", "policies": policies}
}

func tlsContext(at side) object {
	file := func(name string) any { return object{"filename": at.certs + "/" + name} }
	name := "server"
	if at.secureUp {
		name = "client"
	}
	return object{
		"tls_params":         object{"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3", "ecdh_curves": []any{"X25519"}},
		"tls_certificates":   []any{object{"certificate_chain": file(name + ".pem"), "private_key": file(name + ".key")}},
		"validation_context": object{"trusted_ca": file("ca.pem")},
	}
}

func listener(s shape, at side) object {
	filter := manager(s, at)
	if !s.HTTP {
		filter = typed("envoy.filters.network.tcp_proxy", "extensions.filters.network.tcp_proxy.v3.TcpProxy", object{"stat_prefix": "bench", "cluster": "up"})
	}
	chain := object{"filters": []any{filter}}
	l := object{"name": "in", "address": address("0.0.0.0", at.listen)}
	if at.secureDown {
		l["listener_filters"] = []any{typed("envoy.filters.listener.tls_inspector", "extensions.filters.listener.tls_inspector.v3.TlsInspector", nil)}
		chain["filter_chain_match"] = object{"transport_protocol": "tls"}
		chain["transport_socket"] = typed("envoy.transport_sockets.tls", "extensions.transport_sockets.tls.v3.DownstreamTlsContext",
			object{"require_client_certificate": true, "common_tls_context": tlsContext(side{certs: at.certs})})
	}
	if at.originalTarget {
		l["listener_filters"] = []any{typed("envoy.filters.listener.original_dst", "extensions.filters.listener.original_dst.v3.OriginalDst", nil)}
	}
	if s.Exact {
		l["connection_balance_config"] = object{"exact_balance": object{}}
	}
	l["filter_chains"] = []any{chain}
	return l
}

func address(host string, port int) object {
	return object{"socket_address": object{"address": host, "port_value": port}}
}

// unlimited is Istio's own setting. With Envoy's default of 1,024 connections
// rows with many of them would measure refusals.
func unlimited() object {
	const most = 4294967295
	return object{"thresholds": []any{object{"max_connections": most, "max_pending_requests": most, "max_requests": most, "max_retries": most}}}
}

func cluster(s shape, at side) object {
	c := object{"name": "up", "connect_timeout": "10s", "circuit_breakers": unlimited()}
	if at.originalTarget {
		c["type"], c["lb_policy"] = "ORIGINAL_DST", "CLUSTER_PROVIDED"
		return c
	}
	c["type"], c["lb_policy"] = "STATIC", "LEAST_REQUEST"
	c["load_assignment"] = object{"cluster_name": "up", "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": address(at.to, at.toPort)}}}}}}
	if s.H2 {
		c["typed_extension_protocol_options"] = object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                typePrefix + "extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": object{"http2_protocol_options": object{}},
		}}
	}
	if at.secureUp {
		context := tlsContext(at)
		context["alpn_protocols"] = []any{"istio-http/1.1", "istio"}
		context["validation_context"].(object)["match_typed_subject_alt_names"] = []any{object{"san_type": "URI", "matcher": object{"exact": "spiffe://cluster.local/ns/bench/sa/server"}}}
		c["transport_socket"] = typed("envoy.transport_sockets.tls", "extensions.transport_sockets.tls.v3.UpstreamTlsContext",
			object{"sni": "outbound_.8080_._.server.bench.svc.cluster.local", "common_tls_context": context})
	}
	return c
}

// frame is a bootstrap around what it is given. Tuned is what Envoy's own
// documentation offers: statistics made when first used, none of the
// dispatcher's, and none kept that the scenario doesn't ask for.
func frame(admin int, static object, istio, tuned bool) object {
	b := object{
		"admin": object{"address": address("127.0.0.1", admin)}, "node": object{"id": "sidecar~10.77.1.2~bench.bench~bench.svc.cluster.local", "cluster": "bench"},
		"static_resources": static,
	}
	if istio {
		var keep []any
		for _, p := range []string{"cluster_manager", "listener_manager", "server", "component", "istio", "reporter="} {
			keep = append(keep, object{"prefix": p})
		}
		keep = append(keep, object{"suffix": "downstream_cx_active"})
		b["stats_config"] = object{"use_all_default_tags": false, "stats_matcher": object{"inclusion_list": object{"patterns": keep}}}
	}
	if tuned {
		b["deferred_stat_options"] = object{"enable_deferred_creation_stats": true}
		b["enable_dispatcher_stats"] = false
		if !istio {
			b["stats_config"] = object{"stats_matcher": object{"reject_all": true}}
		}
	}
	return b
}

// bootstrap is the file that Envoy and we are started with.
func bootstrap(s shape, at side) ([]byte, error) {
	static := object{"listeners": []any{listener(s, at)}, "clusters": []any{cluster(s, at)}}
	text, err := json.MarshalIndent(frame(at.admin, static, s.Istio, at.tuned), "", " ")
	if err != nil {
		return nil, fmt.Errorf("writing a bootstrap: %w", err)
	}
	return text, nil
}
