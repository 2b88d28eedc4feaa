package httpmsg

// ID is a header name that the proxy itself looks at, so that looking it up is
// an array access. Other is every other name.
type ID uint8

// The known names.
const (
	Other ID = iota
	Host
	Connection
	ContentLength
	TransferEncoding
	ContentType
	Upgrade
	Expect
	TE
	Trailer
	KeepAlive
	ProxyConnection
	UserAgent
	Server
	Date
	Cookie
	SetCookie
	Location
	Via
	Origin
	GRPCStatus
	GRPCMessage
	GRPCTimeout
	HTTP2Settings
	XForwardedFor
	XForwardedProto
	XForwardedHost
	XForwardedPort
	XForwardedClientCert
	XRequestID
	XEnvoyInternal
	XEnvoyExternalAddress
	XEnvoyAttemptCount
	XEnvoyExpectedRqTimeoutMs
	XEnvoyOriginalPath
	XEnvoyOriginalHost
	XEnvoyUpstreamServiceTime
	XEnvoyOverloaded
	XEnvoyDecoratorOperation
	XEnvoyPeerMetadata
	XEnvoyPeerMetadataID
	XEnvoyMaxRetries
	XEnvoyRetryOn
	XEnvoyRetryGRPCOn
	XEnvoyRetriableStatusCodes
	XEnvoyRetriableHeaderNames
	XEnvoyUpstreamRqTimeoutMs
	XEnvoyUpstreamRqPerTryTimeoutMs
	XEnvoyUpstreamRqTimeoutAltResponse
	XEnvoyHedgeOnPerTryTimeout
	XEnvoyDownstreamServiceCluster
	XEnvoyDownstreamServiceNode
	XEnvoyIPTags
	XEnvoyForceTrace
	XEnvoyRatelimited
	XEnvoyImmediateHealthCheckFail
	XEnvoyDegraded
	XEnvoyIsTimeoutRetry
	XClientTraceID
	Traceparent
	Tracestate
	XB3TraceID
	XB3SpanID
	XB3ParentSpanID
	XB3Sampled
	XB3Flags
	B3
	Authorization
	AccessControlRequestMethod
	AccessControlRequestHeaders
	numIDs
)

var names = [numIDs]string{
	Host: "host", Connection: "connection", ContentLength: "content-length", TransferEncoding: "transfer-encoding",
	ContentType: "content-type", Upgrade: "upgrade", Expect: "expect", TE: "te", Trailer: "trailer", KeepAlive: "keep-alive",
	ProxyConnection: "proxy-connection", UserAgent: "user-agent", Server: "server", Date: "date", Cookie: "cookie",
	SetCookie: "set-cookie", Location: "location", Via: "via", Origin: "origin", GRPCStatus: "grpc-status",
	GRPCMessage: "grpc-message", GRPCTimeout: "grpc-timeout", HTTP2Settings: "http2-settings",
	XForwardedFor: "x-forwarded-for", XForwardedProto: "x-forwarded-proto", XForwardedHost: "x-forwarded-host",
	XForwardedPort: "x-forwarded-port", XForwardedClientCert: "x-forwarded-client-cert", XRequestID: "x-request-id",
	XEnvoyInternal: "x-envoy-internal", XEnvoyExternalAddress: "x-envoy-external-address",
	XEnvoyAttemptCount: "x-envoy-attempt-count", XEnvoyExpectedRqTimeoutMs: "x-envoy-expected-rq-timeout-ms",
	XEnvoyOriginalPath: "x-envoy-original-path", XEnvoyOriginalHost: "x-envoy-original-host",
	XEnvoyUpstreamServiceTime: "x-envoy-upstream-service-time", XEnvoyOverloaded: "x-envoy-overloaded",
	XEnvoyDecoratorOperation: "x-envoy-decorator-operation", XEnvoyPeerMetadata: "x-envoy-peer-metadata",
	XEnvoyPeerMetadataID: "x-envoy-peer-metadata-id", XEnvoyMaxRetries: "x-envoy-max-retries",
	XEnvoyRetryOn: "x-envoy-retry-on", XEnvoyRetryGRPCOn: "x-envoy-retry-grpc-on",
	XEnvoyRetriableStatusCodes: "x-envoy-retriable-status-codes", XEnvoyRetriableHeaderNames: "x-envoy-retriable-header-names",
	XEnvoyUpstreamRqTimeoutMs: "x-envoy-upstream-rq-timeout-ms", XEnvoyUpstreamRqPerTryTimeoutMs: "x-envoy-upstream-rq-per-try-timeout-ms",
	XEnvoyUpstreamRqTimeoutAltResponse: "x-envoy-upstream-rq-timeout-alt-response",
	XEnvoyHedgeOnPerTryTimeout:         "x-envoy-hedge-on-per-try-timeout",
	XEnvoyDownstreamServiceCluster:     "x-envoy-downstream-service-cluster", XEnvoyDownstreamServiceNode: "x-envoy-downstream-service-node",
	XEnvoyIPTags: "x-envoy-ip-tags", XEnvoyForceTrace: "x-envoy-force-trace", XEnvoyRatelimited: "x-envoy-ratelimited",
	XEnvoyImmediateHealthCheckFail: "x-envoy-immediate-health-check-fail", XEnvoyDegraded: "x-envoy-degraded",
	XEnvoyIsTimeoutRetry: "x-envoy-is-timeout-retry", XClientTraceID: "x-client-trace-id",
	Traceparent: "traceparent", Tracestate: "tracestate", XB3TraceID: "x-b3-traceid", XB3SpanID: "x-b3-spanid",
	XB3ParentSpanID: "x-b3-parentspanid", XB3Sampled: "x-b3-sampled", XB3Flags: "x-b3-flags", B3: "b3",
	Authorization: "authorization", AccessControlRequestMethod: "access-control-request-method",
	AccessControlRequestHeaders: "access-control-request-headers",
}

// byHash finds the known names by a hash of a few bytes; two may share a place.
var byHash = func() (t [512][2]ID) {
	for id := Other + 1; id < numIDs; id++ {
		p := &t[nameHash([]byte(names[id]))]
		if p[0] == Other {
			p[0] = id
		} else {
			p[1] = id // a third is lost, which the test finds
		}
	}
	return t
}()

// Name gives the lower-case name of a known ID, "" for Other.
func (id ID) Name() string { return names[id] }

// nameHash spreads the known names over the table; names must not be empty.
func nameHash(name []byte) uint32 {
	n := len(name)
	k := uint32(n) | uint32(name[n/2])<<8
	if n > 3 {
		k |= uint32(name[n-2])<<16 | uint32(name[n-3])<<24
	}
	return k * 4069211033 >> 23
}

// Lookup gives the ID of a lower-case name, Other when it isn't a known one.
func Lookup(name []byte) ID {
	if len(name) == 0 {
		return Other
	}
	p := byHash[nameHash(name)]
	if p[0] == Other {
		return Other
	}
	if names[p[0]] == string(name) {
		return p[0]
	}
	if p[1] != Other && names[p[1]] == string(name) {
		return p[1]
	}
	return Other
}

// LookupString is Lookup for strings.
func LookupString(name string) ID { return Lookup([]byte(name)) }

// Underscores says what an engine does with received field names that have an
// underscore.
type Underscores uint8

// The actions of headers_with_underscores_action.
const (
	UnderscoresAllow Underscores = iota
	UnderscoresReject
	UnderscoresDrop
)
