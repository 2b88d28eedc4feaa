package podconfig

func breakers() doc {
	return doc{"thresholds": []any{doc{"max_connections": unlimited, "max_pending_requests": unlimited, "max_requests": unlimited, "max_retries": unlimited}}}
}

// sds names a secret that the pod's own agent supplies.
func sds(name string) doc {
	return doc{"name": name, "sds_config": doc{
		"api_config_source": doc{
			"api_type": "GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
			"grpc_services": []any{doc{"envoy_grpc": doc{"cluster_name": "sds-grpc"}}},
		},
		"initial_fetch_timeout": "0s", "resource_api_version": "V3",
	}}
}

func tlsContext(san doc, alpn ...any) doc {
	return doc{
		"tls_params":                         doc{"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"},
		"tls_certificate_sds_secret_configs": []any{sds("default")},
		"combined_validation_context": doc{
			"default_validation_context":           doc{"match_subject_alt_names": []any{san}},
			"validation_context_sds_secret_config": sds("ROOTCA"),
		},
		"alpn_protocols": alpn,
	}
}

func tcpExchange() doc {
	return struct1("istio.metadata_exchange", "envoy.tcp.metadataexchange.config.MetadataExchange", doc{"enable_discovery": true, "protocol": "istio-peer-exchange"})
}

func http2Upstream() doc {
	const url = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	return doc{url: typed(url, doc{"explicit_http_config": doc{"http2_protocol_options": doc{}}})}
}

func sameProtocolUpstream() doc {
	const url = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	return doc{url: typed(url, doc{
		"common_http_protocol_options":   doc{"idle_timeout": "300s"},
		"use_downstream_protocol_config": doc{"http_protocol_options": doc{}, "http2_protocol_options": doc{}},
	})}
}

// clusters writes the fixed clusters, one for each own port, and one for each
// service port with its endpoints.
func (m *Mesh) clusters(r *Resources, ip string) {
	r.Clusters = append(r.Clusters,
		doc{"name": "BlackHoleCluster", "alt_stat_name": "BlackHoleCluster;", "type": "STATIC", "connect_timeout": "10s"},
		m.passthrough("PassthroughCluster", false), m.passthrough("InboundPassthroughCluster", true))
	if own := m.own(ip); own != nil {
		for _, p := range own.Ports {
			r.Clusters = append(r.Clusters, m.inboundCluster(own, p))
		}
	}
	for i := range m.Services {
		s := &m.Services[i]
		for _, p := range s.Ports {
			r.Clusters = append(r.Clusters, m.outboundCluster(s, p))
			r.Endpoints = append(r.Endpoints, m.endpoints(s, p))
		}
	}
}

func (m *Mesh) passthrough(name string, in bool) doc {
	c := doc{
		"name": name, "alt_stat_name": "PassthroughCluster;", "type": "ORIGINAL_DST", "connect_timeout": "10s", "lb_policy": "CLUSTER_PROVIDED",
		"circuit_breakers": breakers(), "typed_extension_protocol_options": sameProtocolUpstream(),
	}
	if in {
		c["upstream_bind_config"] = doc{"source_address": doc{"address": "127.0.0.6", "port_value": 0}}
	} else {
		c["filters"] = []any{tcpExchange()}
	}
	return c
}

func (m *Mesh) services(s *Service) doc {
	return doc{"filter_metadata": doc{"istio": doc{"services": []any{doc{"host": m.host(s), "name": s.Name, "namespace": m.Namespace}}}}}
}

func (m *Mesh) inboundCluster(s *Service, p Port) doc {
	c := doc{
		"name": inbound(p.Target), "alt_stat_name": inbound(p.Target) + ";", "type": "ORIGINAL_DST", "connect_timeout": "10s", "lb_policy": "CLUSTER_PROVIDED",
		"circuit_breakers": breakers(), "upstream_bind_config": doc{"source_address": doc{"address": "127.0.0.6", "port_value": 0}},
		"metadata": m.services(s),
	}
	if p.Protocol == HTTP2 {
		c["typed_extension_protocol_options"] = http2Upstream()
	}
	return c
}

func (m *Mesh) outboundCluster(s *Service, p Port) doc {
	name, alpn := outbound(p.Number, m.host(s)), []any{"istio-peer-exchange", "istio"}
	c := doc{
		"name": name, "alt_stat_name": name + ";", "type": "EDS", "connect_timeout": "10s", "lb_policy": "LEAST_REQUEST", "circuit_breakers": breakers(),
		"eds_cluster_config": doc{"service_name": name, "eds_config": doc{"ads": doc{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}},
		"common_lb_config":   doc{"healthy_panic_threshold": doc{}},
		"metadata":           m.services(s), "filters": []any{tcpExchange()},
	}
	if p.Protocol == HTTP2 {
		c["typed_extension_protocol_options"] = http2Upstream()
		alpn = append(alpn, "h2")
	}
	c["transport_socket_matches"] = []any{
		doc{"name": "tlsMode-istio", "match": doc{"tlsMode": "istio"}, "transport_socket": named("envoy.transport_sockets.tls",
			"envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", doc{
				"common_tls_context": tlsContext(doc{"exact": m.spiffe(s)}, alpn...),
				"sni":                "outbound_." + itoa(p.Number) + "_._." + m.host(s),
			})},
		doc{"name": "tlsMode-disabled", "match": doc{}, "transport_socket": named("envoy.transport_sockets.raw_buffer", "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer", nil)},
	}
	return c
}

func (m *Mesh) endpoints(s *Service, p Port) doc {
	var hosts []any
	for _, w := range s.Workloads {
		meta := doc{"istio": doc{"workload": w.Name + ";" + m.Namespace + ";" + s.Name + ";v1;Kubernetes"}}
		if !w.Plain {
			meta["envoy.transport_socket_match"] = doc{"tlsMode": "istio"}
		}
		hosts = append(hosts, doc{
			"endpoint": doc{"address": address(w.IP, p.Target)}, "health_status": "HEALTHY", "load_balancing_weight": 1,
			"metadata": doc{"filter_metadata": meta},
		})
	}
	return doc{"cluster_name": outbound(p.Number, m.host(s)), "endpoints": []any{doc{"locality": doc{}, "lb_endpoints": hosts, "load_balancing_weight": max(len(hosts), 1)}}}
}
