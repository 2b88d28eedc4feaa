package podconfig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

const tcpProxyURL = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"

var (
	httpProtocols  = []any{"http/1.1", "h2c"}
	istioHTTP      = []any{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	istioTCP       = []any{"istio-peer-exchange", "istio"}
	istioProtocols = []any{"istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"}
)

func stats(in bool) doc {
	fields := doc{}
	if in {
		fields["disable_host_header_fallback"] = true
	}
	return named("istio.stats", "stats.PluginConfig", fields)
}

// accessLogs is the mesh's access log on one chain. The words {listener} and
// {chain} of a format of one's own become what they name.
func (m *Mesh) accessLogs(at place) []any {
	if m.AccessLog == "" {
		return nil
	}
	format := accessLogFormat
	if m.LogFormat != "" {
		format = strings.NewReplacer("{listener}", at.listener, "{chain}", at.chain).Replace(m.LogFormat)
	}
	return []any{named("envoy.access_loggers.file", "envoy.extensions.access_loggers.file.v3.FileAccessLog", doc{
		"path": m.AccessLog, "log_format": doc{"text_format_source": doc{"inline_string": format}},
	})}
}

// place is a filter chain, for logs.
type place struct{ listener, chain string }

// accessLogFormat is Istio's default.
const accessLogFormat = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% " +
	"%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% " +
	"%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" " +
	"\"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% " +
	"%REQUESTED_SERVER_NAME% %ROUTE_NAME%\n"

func (m *Mesh) tcpChain(at place, cluster string, in bool) []any {
	proxy := doc{"stat_prefix": cluster, "cluster": cluster}
	if logs := m.accessLogs(at); logs != nil {
		proxy["access_log"] = logs
	}
	filters := []any{stats(in), named("envoy.filters.network.tcp_proxy", tcpProxyURL, proxy)}
	if in {
		filters = slices.Insert(filters, 0, any(tcpExchange()))
	}
	return filters
}

func peerMetadata(in bool) doc {
	side := "upstream"
	if in {
		side = "downstream"
	}
	return struct1("istio.metadata_exchange", "io.istio.http.peer_metadata.Config", doc{
		side + "_discovery":   []any{doc{"istio_headers": doc{}}, doc{"workload_discovery": doc{}}},
		side + "_propagation": []any{doc{"istio_headers": doc{}}},
	})
}

func alpnOverride() doc {
	return named("istio.alpn", "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig", doc{"alpn_override": []any{
		doc{"alpn_override": []any{"istio-http/1.0", "istio", "http/1.0"}},
		doc{"upstream_protocol": "HTTP11", "alpn_override": []any{"istio-http/1.1", "istio", "http/1.1"}},
		doc{"upstream_protocol": "HTTP2", "alpn_override": []any{"istio-h2", "istio", "h2"}},
	}})
}

// httpChain is the connection manager with Istio's filters in Istio's order.
func (m *Mesh) httpChain(at place, prefix string, in bool, routes doc) []any {
	filters := []any{peerMetadata(in), named("envoy.filters.http.grpc_stats", "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig", doc{"emit_filter_state": true, "stats_for_all_methods": false})}
	if !in {
		filters = append(filters, alpnOverride())
	}
	filters = append(filters,
		named("envoy.filters.http.fault", "envoy.extensions.filters.http.fault.v3.HTTPFault", nil),
		named("envoy.filters.http.cors", "envoy.extensions.filters.http.cors.v3.Cors", nil),
		stats(in), named("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router", nil))
	manager := doc{
		"stat_prefix": prefix, "http_filters": filters, "stream_idle_timeout": "0s", "use_remote_address": false, "proxy_100_continue": true,
		"upgrade_configs": []any{doc{"upgrade_type": "websocket"}}, "normalize_path": true, "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
		"request_id_extension": doc{"typed_config": typed("envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig", doc{"use_request_id_for_trace_sampling": true})},
	}
	for k, v := range routes {
		manager[k] = v
	}
	if logs := m.accessLogs(at); logs != nil {
		manager["access_log"] = logs
	}
	if !in {
		return []any{named("envoy.filters.network.http_connection_manager", hcmURL, manager)}
	}
	manager["server_name"], manager["forward_client_cert_details"] = "istio-envoy", "APPEND_FORWARD"
	manager["set_current_client_cert_details"] = doc{"subject": true, "dns": true, "uri": true}
	return []any{tcpExchange(), named("envoy.filters.network.http_connection_manager", hcmURL, manager)}
}

const hcmURL = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// outbound writes the outbound listeners and the route configurations they use.
func (m *Mesh) outbound(r *Resources) {
	shared := map[int][]any{} // HTTP ports: virtual hosts by port
	for i := range m.Services {
		s := &m.Services[i]
		for _, p := range s.Ports {
			switch p.Protocol {
			case HTTP, HTTP2:
				shared[p.Number] = append(shared[p.Number], m.virtualHost(s, p))
			case TCP, TLS:
				at := place{exactName(s, p), "any"}
				r.Listeners = append(r.Listeners, m.exact(s, p, []any{doc{"filters": m.tcpChain(at, outbound(p.Number, m.host(s)), false)}}, nil))
			case Auto:
				name := m.host(s) + ":" + itoa(p.Number)
				r.Routes = append(r.Routes, routeConfig(name, m.virtualHost(s, p)))
				http := doc{"filter_chain_match": doc{"transport_protocol": "raw_buffer", "application_protocols": httpProtocols},
					"filters": m.httpChain(place{exactName(s, p), "plain HTTP"}, fmt.Sprintf("outbound_%s_%d;", s.VIP, p.Number), false, rds(name))}
				l := m.exact(s, p, []any{http}, doc{"filters": m.tcpChain(place{exactName(s, p), "default"}, outbound(p.Number, m.host(s)), false), "name": "PassthroughFilterChain"})
				l["listener_filters"] = []any{httpInspector()}
				r.Listeners = append(r.Listeners, l)
			}
		}
	}
	for _, port := range slices.Sorted(maps.Keys(shared)) {
		r.Routes = append(r.Routes, routeConfig(itoa(port), shared[port]...))
		r.Listeners = append(r.Listeners, m.wildcard(port))
	}
}

func exactName(s *Service, p Port) string { return s.VIP + "_" + itoa(p.Number) }

func httpInspector() doc {
	return named("envoy.filters.listener.http_inspector", "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector", nil)
}

func rds(name string) doc {
	return doc{"rds": doc{"route_config_name": name, "config_source": doc{"ads": doc{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}}}
}

func (m *Mesh) exact(s *Service, p Port, chains []any, fallback doc) doc {
	l := doc{
		"name": exactName(s, p), "address": address(s.VIP, p.Number), "bind_to_port": false, "traffic_direction": "OUTBOUND",
		"listener_filters_timeout": "0s", "continue_on_listener_filters_timeout": true, "filter_chains": chains,
	}
	if fallback != nil {
		l["default_filter_chain"] = fallback
	}
	return l
}

// wildcard is the listener that all HTTP services of a port share.
func (m *Mesh) wildcard(port int) doc {
	return doc{
		"name": "0.0.0.0_" + itoa(port), "address": address("0.0.0.0", port), "bind_to_port": false, "traffic_direction": "OUTBOUND",
		"listener_filters": []any{httpInspector()}, "listener_filters_timeout": "0s", "continue_on_listener_filters_timeout": true,
		"filter_chains": []any{doc{
			"filter_chain_match": doc{"transport_protocol": "raw_buffer", "application_protocols": httpProtocols},
			"filters":            m.httpChain(place{"0.0.0.0_" + itoa(port), "plain HTTP"}, fmt.Sprintf("outbound_0.0.0.0_%d;", port), false, rds(itoa(port))),
		}},
		"default_filter_chain": doc{"name": "PassthroughFilterChain", "filter_chain_match": doc{}, "filters": m.tcpChain(place{"0.0.0.0_" + itoa(port), "PassthroughFilterChain"}, "PassthroughCluster", false)},
	}
}

func (m *Mesh) virtualOutbound() doc {
	return doc{
		"name": "virtualOutbound", "address": address("0.0.0.0", 15001), "use_original_dst": true, "traffic_direction": "OUTBOUND",
		"filter_chains": []any{
			doc{"name": "virtualOutbound-blackhole", "filter_chain_match": doc{"destination_port": 15001}, "filters": m.tcpChain(place{"virtualOutbound", "blackhole"}, "BlackHoleCluster", false)},
			doc{"name": "virtualOutbound-catchall-tcp", "filters": m.tcpChain(place{"virtualOutbound", "catchall-tcp"}, "PassthroughCluster", false)},
		},
	}
}

// virtualInbound has, for the mode in force, a blackhole for its own port, a set
// of chains that catches all, and a set for each own port.
func (m *Mesh) virtualInbound(ip string) doc {
	chains := []any{doc{"name": "virtualInbound-blackhole", "filter_chain_match": doc{"destination_port": 15006}, "filters": m.tcpChain(place{"virtualInbound", "blackhole"}, "BlackHoleCluster", true)}}
	chains = append(chains, m.inboundChains(0, Auto, "InboundPassthroughCluster")...)
	if own := m.own(ip); own != nil {
		for _, p := range own.Ports {
			chains = append(chains, m.inboundChains(p.Target, p.Protocol, inbound(p.Target))...)
		}
	}
	tlsInspector := named("envoy.filters.listener.tls_inspector", "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector", nil)
	originalDst := named("envoy.filters.listener.original_dst", "envoy.extensions.filters.listener.original_dst.v3.OriginalDst", nil)
	l := doc{
		"name": "virtualInbound", "address": address("0.0.0.0", 15006), "traffic_direction": "INBOUND", "filter_chains": chains,
		"listener_filters":         []any{originalDst, tlsInspector, m.inboundHTTPInspector(ip)},
		"listener_filters_timeout": "0s", "continue_on_listener_filters_timeout": true,
	}
	// A connection that no chain wants is logged by the listener itself.
	for _, log := range m.accessLogs(place{"virtualInbound", "none"}) {
		log := log.(doc)
		log["filter"] = doc{"response_flag_filter": doc{"flags": []any{"NR"}}}
		l["access_log"] = []any{log}
	}
	return l
}

// inboundHTTPInspector is off on ports whose protocol is declared: a
// server-first protocol would wait for ever for the client to speak.
func (m *Mesh) inboundHTTPInspector(ip string) doc {
	f := httpInspector()
	var off []any
	if own := m.own(ip); own != nil {
		for _, p := range own.Ports {
			if p.Protocol != Auto {
				off = append(off, doc{"destination_port_range": doc{"start": p.Target, "end": p.Target + 1}})
			}
		}
	}
	switch len(off) {
	case 0:
	case 1:
		f["filter_disabled"] = off[0]
	default:
		f["filter_disabled"] = doc{"or_match": doc{"rules": off}}
	}
	return f
}

func (m *Mesh) inboundChains(port int, protocol Protocol, cluster string) []any {
	http := func(chain string) []any {
		return m.httpChain(place{"virtualInbound", chain}, cluster+";", true, m.inboundRoutes(port, cluster))
	}
	tcp := func(chain string) []any { return m.tcpChain(place{"virtualInbound", chain}, cluster, true) }
	chain := func(match doc, secure bool, alpn []any, filters []any) any {
		if port != 0 {
			match["destination_port"] = port
		}
		c := doc{"filter_chain_match": match, "filters": filters, "name": "virtualInbound" + map[bool]string{true: "", false: "-catchall"}[port != 0]}
		if secure {
			c["transport_socket"] = named("envoy.transport_sockets.tls", "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", doc{
				"common_tls_context": tlsContext(doc{"prefix": "spiffe://" + trustDomain + "/"}, alpn...), "require_client_certificate": true,
			})
		}
		return c
	}
	match := func(transport string, protocols []any) doc {
		d := doc{"transport_protocol": transport}
		if protocols != nil {
			d["application_protocols"] = protocols
		}
		return d
	}
	webALPN, tcpALPN := []any{"h2", "http/1.1"}, []any{"istio-peer-exchange", "h2", "http/1.1"}
	var secure, plain []any
	switch protocol {
	case HTTP, HTTP2:
		secure = []any{chain(match("tls", istioProtocols), true, webALPN, http("mTLS HTTP"))}
		plain = []any{chain(match("raw_buffer", nil), false, nil, http("plain HTTP"))}
	case Auto:
		secure = []any{chain(match("tls", istioHTTP), true, webALPN, http("mTLS HTTP")), chain(match("tls", istioTCP), true, tcpALPN, tcp("mTLS TCP"))}
		plain = []any{chain(match("raw_buffer", httpProtocols), false, nil, http("plain HTTP")), chain(match("raw_buffer", nil), false, nil, tcp("plain TCP")), chain(match("tls", nil), false, nil, tcp("TLS passed through"))}
	default:
		secure = []any{chain(match("tls", istioProtocols), true, tcpALPN, tcp("mTLS TCP"))}
		plain = []any{chain(match("raw_buffer", nil), false, nil, tcp("plain TCP")), chain(match("tls", nil), false, nil, tcp("TLS passed through"))}
	}
	if m.Strict {
		return secure
	}
	return append(secure, plain...)
}
