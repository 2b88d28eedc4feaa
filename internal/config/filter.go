package config

import (
	"net/netip"
	"time"
)

// HTTPPolicy is what an HTTP filter, or a route's override of one, obeys. It is
// a closed set: the types below.
type HTTPPolicy interface{ httpPolicy() }

// DisabledFilter in PerFilter turns the filter off for a route.
type DisabledFilter struct{}

// EnabledFilter in PerFilter turns on a filter that is Disabled in the chain,
// with the chain's own policy.
type EnabledFilter struct{}

// Fault is envoy.filters.http.fault; nil members are off.
type Fault struct {
	Delay           *FaultDelay
	Abort           *FaultAbort
	ResponseRate    *FaultRate
	Headers         []HeaderMatch
	UpstreamCluster string
	DownstreamNodes []string
	MaxActive       int // 0: no limit
	NoStats         bool
}

// FaultDelay holds a request back.
type FaultDelay struct {
	Fixed      time.Duration
	FromHeader bool
	Percent    Percent
}

// FaultAbort answers in the upstream's place.
type FaultAbort struct {
	HTTPStatus int
	GRPCStatus int // -1: unset
	FromHeader bool
	Percent    Percent
}

// FaultRate limits the response body.
type FaultRate struct {
	KiBPerSecond uint64
	FromHeader   bool
	Percent      Percent
}

// CORS is the policy of envoy.filters.http.cors on a virtual host or route;
// the filter itself has none.
type CORS struct {
	Origins           []StringMatch
	Methods           string
	Headers           string
	Expose            string
	MaxAge            string
	Credentials       *bool
	PrivateNetwork    *bool
	Enabled           Percent
	Shadow            Percent
	ForwardNotMatched *bool // forward_not_matching_preflights; nil: true
}

// GRPCStats is envoy.filters.http.grpc_stats.
type GRPCStats struct {
	EmitFilterState bool
	AllMethods      bool                // by service and method
	Methods         map[string][]string // by service: the methods that have counters of their own
	Upstream        bool
}

// IstioALPN is istio.alpn: the upstream ALPN by downstream protocol. An empty
// list leaves the cluster's.
type IstioALPN struct{ HTTP10, HTTP11, HTTP2 []string }

// PeerMetadata is the HTTP half of istio.metadata_exchange.
type PeerMetadata struct {
	DownstreamDiscovery []PeerMethod
	UpstreamDiscovery   []PeerMethod
	// Propagation says whether the headers are sent that way.
	DownstreamPropagation bool
	UpstreamPropagation   bool
	SkipExternalClusters  bool
	AdditionalLabels      []string
}

// PeerMethod is a way to find peer metadata.
type PeerMethod uint8

// The ways.
const (
	PeerByHeaders PeerMethod = iota
	PeerByWorkloadDiscovery
	PeerByBaggage
)

// IstioStats is istio.stats for HTTP and TCP.
type IstioStats struct {
	DisableHostFallback bool
	ReportingInterval   time.Duration // 5 s when absent
	Metrics             []MetricOverride
	Reporter            string // "" or "SERVER_GATEWAY"
}

// MetricOverride changes the labels of one metric ("" = all).
type MetricOverride struct {
	Name       string
	Drop       bool
	Dimensions []Dimension
	Remove     []string
}

// Dimension sets a label to the value of a CEL expression.
type Dimension struct{ Label, Expression string }

// GRPCWeb is envoy.filters.http.grpc_web.
type GRPCWeb struct{}

// HTTPRBAC is envoy.filters.http.rbac.
type HTTPRBAC struct{ RBAC *RBAC }

// Buffer is envoy.filters.http.buffer.
type Buffer struct{ MaxBytes int }

// CSRF is envoy.filters.http.csrf.
type CSRF struct {
	Enabled Percent
	Shadow  Percent       // of the rest: counted only
	Origins []StringMatch // allowed besides the request's own host
}

// HealthCheckFilter is envoy.filters.http.health_check.
type HealthCheckFilter struct {
	PassThrough bool // requests go on unless the process is told to fail
	Headers     []HeaderMatch
	Clusters    []MinHealthy // that must be well
}

// MinHealthy is the share of a cluster's hosts that must be available.
type MinHealthy struct {
	Cluster string
	Percent Percent
}

// HeaderToMetadata is envoy.filters.http.header_to_metadata.
type HeaderToMetadata struct{ Request, Response []MetadataRule }

// MetadataRule turns a header, or a cookie, into dynamic metadata.
type MetadataRule struct {
	Header  string // lower-case; "": Cookie
	Cookie  string
	Remove  bool // the header
	Present *MetadataFrom
	Missing *MetadataFrom
}

// MetadataFrom says what is written, and where.
type MetadataFrom struct {
	Namespace, Key string
	Value          string // "": the header's
	Rewrite        *RegexRewrite
	Number         bool
}

// HeaderMutationFilter is envoy.filters.http.header_mutation, or an override of it.
type HeaderMutationFilter struct {
	Request, Response []HeaderMutation
	Query             []QueryMutation // after Request
	MostSpecificWins  bool            // overrides act from the table's to the route's
	Next              *HeaderMutationFilter
}

// QueryMutation removes the parameters of a name (Remove) or writes one.
type QueryMutation struct {
	Remove string
	Name   string
	Value  *Format
	Action HeaderAppendAction
}

func (*DisabledFilter) httpPolicy()       {}
func (*EnabledFilter) httpPolicy()        {}
func (*Fault) httpPolicy()                {}
func (*CORS) httpPolicy()                 {}
func (*GRPCStats) httpPolicy()            {}
func (*IstioALPN) httpPolicy()            {}
func (*PeerMetadata) httpPolicy()         {}
func (*IstioStats) httpPolicy()           {}
func (*GRPCWeb) httpPolicy()              {}
func (*HTTPRBAC) httpPolicy()             {}
func (*LocalRateLimit) httpPolicy()       {}
func (*Buffer) httpPolicy()               {}
func (*CSRF) httpPolicy()                 {}
func (*HealthCheckFilter) httpPolicy()    {}
func (*HeaderToMetadata) httpPolicy()     {}
func (*HeaderMutationFilter) httpPolicy() {}

// RBACAction is what a matching policy does.
type RBACAction uint8

// The RBAC actions.
const (
	RBACAllow RBACAction = iota
	RBACDeny
	RBACLog
)

// RBAC is an RBAC filter's rules, shared by HTTP and TCP. Nil rules are off.
type RBAC struct {
	Rules, Shadow         *RBACRules
	StatPrefix            string
	ShadowStatPrefix      string
	EnforcementContinuous bool
	TrackPerRule          bool
	DelayDeny             time.Duration
}

// RBACRules is one set of policies, ordered by name as Envoy evaluates them.
type RBACRules struct {
	Action   RBACAction
	Policies []RBACPolicy
}

// RBACPolicy matches when one permission and one principal match.
type RBACPolicy struct {
	Name        string
	Permissions []RBACExpr
	Principals  []RBACExpr
}

// RBACOp is the operator or attribute of an RBACExpr.
type RBACOp uint8

// The operators and attributes.
const (
	RBACAny RBACOp = iota
	RBACAnd
	RBACOr
	RBACNot
	RBACHeader
	RBACURLPath
	RBACDestIP
	RBACDestPort
	RBACDestPortRange
	RBACMetadata
	RBACServerName
	RBACURITemplate
	RBACAuthenticated
	RBACSourceIP
	RBACDirectRemoteIP
	RBACRemoteIP
	RBACFilterState
)

// RBACExpr is a node of a permission or principal tree; Op says which members
// count.
type RBACExpr struct {
	Op       RBACOp
	Sub      []RBACExpr
	Header   *HeaderMatch
	String   *StringMatch // nil with RBACAuthenticated: any authenticated peer
	Prefix   netip.Prefix
	Ports    [2]uint32 // [start, end)
	Metadata *MetadataMatch
	Key      string
}
