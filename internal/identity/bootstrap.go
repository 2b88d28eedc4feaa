package identity

import (
	"encoding/json"
	"fmt"
	"strings"
)

// maxConnections is the limit of downstream connections when none is given.
const maxConnections = 2147483647

// Bootstrap gives the Envoy bootstrap that stands for this agent, in JSON: what
// the admin page shows, and what the proxy starts from. The pipes of xds-grpc
// and sds-grpc are named for those who read it; in one process they aren't dialed.
func (a *Agent) Bootstrap() ([]byte, error) {
	b, err := json.MarshalIndent(a.bootstrap(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the bootstrap: %w", err)
	}
	return b, nil
}

type object = map[string]any

func (a *Agent) bootstrap() object {
	ads := object{"ads": object{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
	api := "DELTA_GRPC"
	if a.Env("ISTIO_DELTA_XDS") == "false" {
		api = "GRPC"
	}
	status, prometheus := a.Node.Metadata["ENVOY_STATUS_PORT"], a.Node.Metadata["ENVOY_PROMETHEUS_PORT"]
	return object{
		"node":  a.nodeObject(),
		"admin": object{"address": tcp("127.0.0.1", a.Number("proxyAdminPort", 15000)), "profile_path": "/var/lib/istio/data/envoy.prof"},
		"dynamic_resources": object{
			"lds_config": ads, "cds_config": ads,
			"ads_config": object{
				"api_type": api, "set_node_on_first_message_only": true, "transport_api_version": "V3",
				"grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "xds-grpc"}}},
			},
		},
		"static_resources": object{
			"clusters": []any{
				staticCluster("prometheus_stats", "0.250s", tcp("127.0.0.1", a.Number("proxyAdminPort", 15000)), false),
				staticCluster("agent", "0.250s", tcp("127.0.0.1", a.Number("statusPort", 15020)), false),
				staticCluster("sds-grpc", "1s", pipe(a.WorkloadSocket()), true),
				staticCluster("xds-grpc", "1s", pipe(a.Text("configPath")+"/XDS"), true),
			},
			"listeners": []any{
				staticListener("stats", prometheus, "/stats/prometheus", "prometheus_stats"),
				staticListener("agent", status, "/healthz/ready", "agent"),
			},
		},
		"stats_config":     a.statsConfig(),
		"layered_runtime":  object{"layers": []any{object{"name": "global config", "static_layer": a.runtime()}, object{"name": "admin", "admin_layer": object{}}}},
		"overload_manager": a.overload(),
	}
}

// WorkloadSocket is where a workload's SDS server listens: pilot-agent, or a SPIRE
// agent that was there before.
func (a *Agent) WorkloadSocket() string {
	return "./var/run/secrets/workload-spiffe-uds/" + a.text("WORKLOAD_IDENTITY_SOCKET_FILE")
}

func (a *Agent) text(key string) string {
	s, _ := a.Node.Metadata[key].(string)
	return s
}

func (a *Agent) nodeObject() object {
	return object{
		"id": a.Node.ID, "cluster": a.Node.Cluster, "metadata": a.Node.Metadata,
		"locality": object{"region": a.Node.Region, "zone": a.Node.Zone, "sub_zone": a.Node.SubZone},
	}
}

func tcp(host string, port any) object {
	return object{"socket_address": object{"address": host, "port_value": port}}
}

func pipe(path string) object { return object{"pipe": object{"path": path}} }

func staticCluster(name, timeout string, address object, h2 bool) object {
	c := object{
		"name": name, "alt_stat_name": name + ";", "type": "STATIC", "connect_timeout": timeout,
		"load_assignment": object{"cluster_name": name, "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": address}}}}}},
	}
	if h2 {
		const options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
		c["typed_extension_protocol_options"] = object{options: object{
			"@type": "type.googleapis.com/" + options, "explicit_http_config": object{"http2_protocol_options": object{}},
		}}
	}
	return c
}

func staticListener(stat string, port any, prefix, cluster string) object {
	return object{
		"name": fmt.Sprintf("0.0.0.0_%v", port), "address": tcp("0.0.0.0", port), "ignore_global_conn_limit": true,
		"filter_chains": []any{object{"filters": []any{object{
			"name": "envoy.filters.network.http_connection_manager",
			"typed_config": object{
				"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": stat,
				"route_config": object{"virtual_hosts": []any{object{
					"name": "backend", "domains": []any{"*"},
					"routes": []any{object{"match": object{"prefix": prefix}, "route": object{"cluster": cluster}}},
				}}},
				"http_filters": []any{object{
					"name":         "envoy.filters.http.router",
					"typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
				}},
			},
		}}}},
	}
}

func (a *Agent) runtime() object {
	out := object{"re2.max_program_size.error_level": "32768"}
	if more, ok := a.ProxyConfig["runtimeValues"].(map[string]any); ok {
		overlay(out, more)
	}
	return out
}

func (a *Agent) overload() object {
	limit := number(a.Env("ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS"), maxConnections)
	return object{"resource_monitors": []any{object{
		"name": "envoy.resource_monitors.global_downstream_max_connections",
		"typed_config": object{
			"@type":                             "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
			"max_active_downstream_connections": limit,
		},
	}}}
}

// statsConfig says which statistics exist. By default almost none of Envoy's do:
// Istio's own, the managers', and the counts of authorization.
func (a *Agent) statsConfig() object {
	var patterns []any
	add := func(kind string, values ...string) {
		for _, v := range values {
			if v != "" {
				patterns = append(patterns, object{kind: v})
			}
		}
	}
	add("prefix", "reporter=", "cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm", "component", "istio")
	add("suffix", "rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied")
	if a.Env("EXIT_ON_ZERO_ACTIVE_CONNECTIONS") == "true" {
		add("suffix", "downstream_cx_active")
	}
	matcher, _ := a.ProxyConfig["proxyStatsMatcher"].(map[string]any)
	add("prefix", a.statNames("sidecar.istio.io/statsInclusionPrefixes", matcher["inclusionPrefixes"])...)
	add("suffix", a.statNames("sidecar.istio.io/statsInclusionSuffixes", matcher["inclusionSuffixes"])...)
	patterns = append(patterns, object{"safe_regex": object{"regex": `vhost\..*\.route\..*`}})
	for _, r := range a.statNames("sidecar.istio.io/statsInclusionRegexps", matcher["inclusionRegexps"]) {
		if r != "" {
			patterns = append(patterns, object{"safe_regex": object{"regex": r}})
		}
	}
	return object{
		"use_all_default_tags": false,
		"stats_tags":           statsTags(),
		"stats_matcher":        object{"inclusion_list": object{"patterns": patterns}},
	}
}

// statNames gives the names of an annotation, or of the proxy configuration.
func (a *Agent) statNames(annotation string, list any) []string {
	var out []string
	if v := a.Annotations[annotation]; v != "" {
		out = strings.Split(v, ",")
	} else if l, ok := list.([]any); ok {
		for _, x := range l {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
	}
	ip, _, _ := strings.Cut(a.text("INSTANCE_IPS"), ",")
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "{pod_ip}", ip)
	}
	return out
}

// statsTags are Istio's: names of clusters and prefixes end in a semicolon.
func statsTags() []any {
	tags := []struct{ name, regex string }{
		{"cluster_name", `^cluster(\.(.+);)`},
		{"http_conn_manager_prefix", `^http\.(((?:[_.[:digit:]\w]*|[_\[\]aAbBcCdDeEfF[:digit:]\w\:]*));\.)`},
		{"tcp_prefix", `^tcp\.((.*?)\.)\w+?$`},
		{"response_code", `_rq(_(\d{3}))$`},
		{"response_code_class", `_rq(_(\dxx))$`},
		{"http_conn_manager_listener_prefix", `^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
		{"listener_address", `^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
		{"authz_enforce_result", `rbac(\.(allowed|denied))`},
		{"authz_dry_run_action", `(\.istio_dry_run_(allow|deny)_)`},
		{"authz_dry_run_result", `(\.shadow_(allowed|denied))`},
	}
	out := make([]any, len(tags))
	for i, t := range tags {
		out[i] = object{"tag_name": t.name, "regex": t.regex}
	}
	return out
}
