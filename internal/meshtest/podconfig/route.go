package podconfig

import "fmt"

func routeConfig(name string, hosts ...any) doc {
	passthrough := doc{"name": "allow_any", "domains": []any{"*"}, "include_request_attempt_count": true, "routes": []any{doc{
		"name": "allow_any", "match": doc{"prefix": "/"}, "route": doc{"cluster": "PassthroughCluster", "timeout": "0s", "max_grpc_timeout": "0s"},
	}}}
	return doc{"name": name, "virtual_hosts": append(hosts, passthrough), "validate_clusters": false, "max_direct_response_body_size_bytes": 1048576, "ignore_port_in_host_matching": true}
}

func (m *Mesh) virtualHost(s *Service, p Port) doc {
	host := m.host(s)
	timeout := fmt.Sprintf("%.3fs", s.Timeout.Seconds())
	return doc{
		"name":                          host + ":" + itoa(p.Number),
		"domains":                       []any{host, host + ".", s.Name, s.Name + "." + m.Namespace + ".svc", s.Name + "." + m.Namespace, s.VIP},
		"include_request_attempt_count": true,
		"routes": []any{doc{
			"name": "default", "match": doc{"prefix": "/"}, "decorator": doc{"operation": host + ":" + itoa(p.Number) + "/*"},
			"route": doc{"cluster": outbound(p.Number, host), "timeout": timeout, "max_grpc_timeout": timeout, "retry_policy": retryPolicy(s)},
		}},
	}
}

func retryPolicy(s *Service) doc {
	on, attempts := "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", 2
	if s.Retries > 0 {
		on, attempts = "5xx,"+on, s.Retries
	}
	return doc{
		"retry_on": on, "num_retries": attempts, "host_selection_retry_max_attempts": "5",
		"retry_host_predicate": []any{named("envoy.retry_host_predicates.previous_hosts", "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate", nil)},
	}
}

func (m *Mesh) inboundRoutes(port int, cluster string) doc {
	return doc{"route_config": doc{"name": cluster, "validate_clusters": false, "virtual_hosts": []any{doc{
		"name": "inbound|http|" + itoa(port), "domains": []any{"*"}, "routes": []any{doc{
			"name": "default", "match": doc{"prefix": "/"}, "decorator": doc{"operation": fmt.Sprintf(":%d/*", port)},
			"route": doc{
				"cluster": cluster, "timeout": "0s", "retry_policy": doc{"retry_on": "reset-before-request", "num_retries": 2},
				"max_stream_duration": doc{"max_stream_duration": "0s", "grpc_timeout_header_max": "0s"},
			},
		}},
	}}}}
}
