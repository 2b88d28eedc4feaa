package translate

import (
	"strings"

	"sluice/internal/config"
)

// attribute gives what an attribute of expressions stands for: a log operator
// where one says the same.
func attribute(name string) (config.Expression, bool) {
	if it, ok := textAttribute(name); ok {
		return config.Expression{Op: config.ExprAttribute, Format: it}, true
	}
	if op := numberAttribute(name); op != "" {
		return config.Expression{Op: config.ExprNumber, Format: config.FormatItem{Op: op}}, true
	}
	switch name {
	case "request.headers":
		return operation(config.ExprRequestHeaders), true
	case "response.headers":
		return operation(config.ExprResponseHeaders), true
	case "response.trailers":
		return operation(config.ExprResponseTrailers), true
	case "response.flags":
		return operation(config.ExprFlags), true
	case "connection.mtls":
		return operation(config.ExprMTLS), true
	case "request.query":
		return operation(config.ExprQuery), true
	case "metadata.filter_metadata":
		return operation(config.ExprDynamic), true
	}
	return operation(config.ExprError), !strings.Contains(unsupportedAttributes, " "+name+" ")
}

func isAttribute(op config.ExpressionOp) bool {
	return op >= config.ExprAttribute && op <= config.ExprDynamic
}

// unsupportedAttributes are those that Envoy has and we don't, each between
// spaces. Any other name is none to Envoy either: it never holds.
const unsupportedAttributes = " request.time request.duration request.total_size response.total_size response.backend_latency " +
	"connection.dns_san_local_certificate connection.dns_san_peer_certificate connection.uri_san_local_certificate " +
	"connection.uri_san_peer_certificate upstream.dns_san_local_certificate upstream.dns_san_peer_certificate " +
	"upstream.uri_san_local_certificate upstream.uri_san_peer_certificate upstream.sha256_peer_certificate_digest upstream.locality " +
	"upstream.cx_pool_ready_duration xds.node xds.cluster_metadata xds.listener_direction xds.listener_metadata xds.route_metadata " +
	"xds.upstream_host_metadata xds.upstream_host_locality_metadata xds.virtual_host_metadata filter_state upstream_filter_state "

func numberAttribute(name string) string {
	switch name {
	case "request.size":
		return "BYTES_RECEIVED"
	case "response.code":
		return "RESPONSE_CODE"
	case "response.size":
		return "BYTES_SENT"
	case "response.grpc_status":
		return "GRPC_STATUS_NUMBER"
	case "source.port":
		return "DOWNSTREAM_REMOTE_PORT"
	case "destination.port":
		return "DOWNSTREAM_LOCAL_PORT"
	case "connection.id":
		return "CONNECTION_ID"
	case "upstream.port":
		return "UPSTREAM_HOST"
	case "upstream.request_attempt_count":
		return "UPSTREAM_REQUEST_ATTEMPT_COUNT"
	}
	return ""
}

func textAttribute(name string) (config.FormatItem, bool) {
	header := func(name string) (config.FormatItem, bool) {
		return config.FormatItem{Op: "REQ", Arg: name}, true
	}
	switch name {
	case "request.path":
		return header(":path")
	case "request.url_path":
		return config.FormatItem{Op: "PATH", Arg: "NQ:PATH"}, true
	case "request.host":
		return header(":authority")
	case "request.scheme":
		return header(":scheme")
	case "request.method":
		return header(":method")
	case "request.referer":
		return header("referer")
	case "request.useragent":
		return header("user-agent")
	case "request.id":
		return header("x-request-id")
	}
	op := map[string]string{
		"request.protocol":                          "PROTOCOL",
		"response.code_details":                     "RESPONSE_CODE_DETAILS",
		"source.address":                            "DOWNSTREAM_REMOTE_ADDRESS",
		"destination.address":                       "DOWNSTREAM_LOCAL_ADDRESS",
		"connection.requested_server_name":          "REQUESTED_SERVER_NAME",
		"connection.tls_version":                    "DOWNSTREAM_TLS_VERSION",
		"connection.subject_local_certificate":      "DOWNSTREAM_LOCAL_SUBJECT",
		"connection.subject_peer_certificate":       "DOWNSTREAM_PEER_SUBJECT",
		"connection.termination_details":            "CONNECTION_TERMINATION_DETAILS",
		"connection.transport_failure_reason":       "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
		"connection.sha256_peer_certificate_digest": "DOWNSTREAM_PEER_FINGERPRINT_256",
		"upstream.address":                          "UPSTREAM_HOST",
		"upstream.local_address":                    "UPSTREAM_LOCAL_ADDRESS",
		"upstream.tls_version":                      "UPSTREAM_TLS_VERSION",
		"upstream.subject_local_certificate":        "UPSTREAM_LOCAL_SUBJECT",
		"upstream.subject_peer_certificate":         "UPSTREAM_PEER_SUBJECT",
		"upstream.transport_failure_reason":         "UPSTREAM_TRANSPORT_FAILURE_REASON",
		"xds.cluster_name":                          "UPSTREAM_CLUSTER_RAW",
		"xds.route_name":                            "ROUTE_NAME",
		"xds.virtual_host_name":                     "VIRTUAL_HOST_NAME",
		"xds.filter_chain_name":                     "FILTER_CHAIN_NAME",
	}[name]
	return config.FormatItem{Op: op}, op != ""
}
