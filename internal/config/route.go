package config

import (
	"regexp"
	"time"
)

// RouteConfiguration is one RDS resource or inline route table.
type RouteConfiguration struct {
	Meta
	VirtualHosts         []*VirtualHost
	RequestHeaders       []HeaderMutation
	ResponseHeaders      []HeaderMutation
	MostSpecificFirst    bool // most_specific_header_mutations_wins
	IgnorePortInHost     bool
	ValidateClusters     bool
	MaxDirectBody        int
	InternalOnlyHeaders  []string
	MirrorPolicies       []Mirror
	PerFilter            map[string]HTTPPolicy
	IgnorePathParameters bool
}

// VirtualHost is a set of domains and their routes. Domains are lower-case.
type VirtualHost struct {
	// Hash identifies what it was made of, to whoever made it; 0: it isn't known.
	Hash                   uint64
	Name                   string
	Domains                []string
	Routes                 []*Route
	RequireTLS             TLSRequirement
	RequestHeaders         []HeaderMutation
	ResponseHeaders        []HeaderMutation
	Retry                  *RetryPolicy
	MirrorPolicies         []Mirror
	PerFilter              map[string]HTTPPolicy
	IncludeAttemptCount    bool
	IncludeAttemptResponse bool
	RetryBufferLimit       int // per_request_buffer_limit_bytes; -1: unset
	VirtualClusters        []VirtualCluster
	RateLimits             []RateLimit
	Metadata               Metadata
}

// VirtualCluster names requests for statistics.
type VirtualCluster struct {
	Name    string
	Headers []HeaderMatch
}

// TLSRequirement is require_tls.
type TLSRequirement uint8

// The TLS requirements.
const (
	TLSNone TLSRequirement = iota
	TLSExternalOnly
	TLSAll
)

// Route is one route; exactly one of Action, Redirect, Direct is set.
type Route struct {
	Name             string
	Match            RouteMatch
	Action           *RouteAction
	Redirect         *Redirect
	Direct           *Direct
	Metadata         Metadata
	Decorator        string
	DecoratorNoProp  bool // decorator.propagate: false
	RequestHeaders   []HeaderMutation
	ResponseHeaders  []HeaderMutation
	PerFilter        map[string]HTTPPolicy
	StatPrefix       string
	RetryBufferLimit int // -1: unset
	Tracing          *RouteTracing
}

// RouteTracing overrides the HCM's sampling for a route; nil members don't.
type RouteTracing struct {
	Client, Random, Overall *Percent
	CustomTags              []CustomTag
}

// PathKind says how RouteMatch.Path compares.
type PathKind uint8

// The kinds of path match.
const (
	PathPrefix PathKind = iota
	PathExact
	PathRegex     // whole path without the query
	PathSeparated // path_separated_prefix
	PathConnect   // connect_matcher
	PathTemplate  // uri_template pattern, compiled into Regex
)

// RouteMatch is Envoy's RouteMatch.
type RouteMatch struct {
	Kind       PathKind
	Path       string
	IgnoreCase bool
	Regex      *regexp.Regexp
	Headers    []HeaderMatch
	Query      []QueryMatch
	Cookies    []CookieMatch
	Fraction   *Percent // runtime_fraction
	GRPC       bool
	TLSPresent *bool // tls_context.presented
	TLSValid   *bool
	Metadata   []MetadataMatch
}

// CookieMatch matches the first cookie of a name; an absent cookie is a value
// that doesn't match.
type CookieMatch struct {
	Name   string
	String *StringMatch
	Invert bool
}

// RouteAction sends the request to a cluster.
type RouteAction struct {
	Cluster            string
	ClusterHeader      string
	Weighted           []WeightedCluster
	TotalWeight        uint32
	WeightHeader       string
	NotFoundStatus     int // cluster_not_found_response_code, 503 when absent
	Timeout            time.Duration
	IdleTimeout        *time.Duration // nil: the HCM's
	FlushTimeout       *time.Duration
	MaxGRPCTimeout     *time.Duration
	GRPCTimeoutOffset  time.Duration
	MaxStream          *MaxStreamDuration
	Retry              *RetryPolicy
	PrefixRewrite      string
	RegexRewrite       *RegexRewrite
	PathTemplate       string // path_rewrite_policy uri_template
	HostRewrite        string
	AutoHostRewrite    bool
	HostRewriteHeader  string
	HostRewriteRegex   *RegexRewrite
	HostFormat         *Format
	AppendXFH          bool // append_x_forwarded_host
	HashPolicies       []HashPolicy
	Mirrors            []Mirror
	Priority           Priority
	Upgrades           []Upgrade
	MetadataMatch      Struct
	InternalRedirect   *InternalRedirect
	ConnectTermination bool
	PostTunnel         bool
	EarlyData          bool
	RateLimits         []RateLimit
	WithHostLimits     bool // include_vh_rate_limits
}

// InternalRedirect is internal_redirect_policy.
type InternalRedirect struct {
	Max           int
	Codes         []int
	AllowCross    bool
	CopyHeaders   []string
	SafeCross     bool
	PreviousOnce  bool
	AllowedRoutes []string // names; nil: all
}

// MaxStreamDuration is max_stream_duration: nil members are absent. With one
// present Envoy ignores the route's timeout.
type MaxStreamDuration struct {
	Max              *time.Duration
	GRPCHeaderMax    *time.Duration
	GRPCHeaderOffset time.Duration
}

// WeightedCluster is one choice of a weighted action.
type WeightedCluster struct {
	Name            string
	ClusterHeader   string
	Weight          uint32
	RequestHeaders  []HeaderMutation
	ResponseHeaders []HeaderMutation
	HostRewrite     string
	MetadataMatch   Struct
	PerFilter       map[string]HTTPPolicy
}

// RegexRewrite replaces what Regex matches by Substitution, in Go's $n syntax.
type RegexRewrite struct {
	Regex        *regexp.Regexp
	Substitution string
}

// Mirror is one request mirror policy.
type Mirror struct {
	Cluster         string
	ClusterHeader   string
	Fraction        *Percent // nil: all
	NoShadowSuffix  bool     // disable_shadow_host_suffix_append
	TraceSampled    *bool
	HostRewrite     string
	HeaderMutations []HeaderMutation
}

// Priority is Envoy's RoutingPriority.
type Priority uint8

// The priorities.
const (
	PriorityDefault Priority = iota
	PriorityHigh
)

// HashKind says what a HashPolicy hashes.
type HashKind uint8

// The kinds of hash policy.
const (
	HashHeader HashKind = iota
	HashCookie
	HashSourceIP
	HashQuery
	HashFilterState
)

// HashPolicy is one hash_policy entry.
type HashPolicy struct {
	Kind     HashKind
	Name     string
	Rewrite  *RegexRewrite
	TTL      *time.Duration // cookie: nil means never generated
	Path     string
	Attrs    []CookieAttr
	Terminal bool
}

// CookieAttr is an attribute of a generated cookie.
type CookieAttr struct{ Name, Value string }

// Redirect is a redirect action. Zero members keep the request's part.
type Redirect struct {
	Status        int // 301 when absent
	Scheme        string
	HTTPS         bool
	Host          string
	Port          uint32
	Path          string
	PrefixRewrite string
	RegexRewrite  *RegexRewrite
	StripQuery    bool
}

// Direct is a direct_response.
type Direct struct {
	Status     int
	Body       []byte
	BodyFormat *BodyFormat
}

// HeaderAppendAction is HeaderValueOption.append_action.
type HeaderAppendAction uint8

// The append actions.
const (
	AppendOrAdd HeaderAppendAction = iota
	AddIfAbsent
	OverwriteOrAdd
	OverwriteIfExists
)

// HeaderMutation removes a header (Remove) or writes one.
type HeaderMutation struct {
	Remove    string // lower-case; "" when this adds
	Name      string // lower-case
	Value     *Format
	Action    HeaderAppendAction
	KeepEmpty bool
}

// HeaderAppend is a plain header to add.
type HeaderAppend struct {
	Name  string
	Value *Format
}

// RetryOn is a set of retry conditions.
type RetryOn uint32

// The retry conditions of retry_on and retry_grpc_on.
const (
	Retry5xx RetryOn = 1 << iota
	RetryGatewayError
	RetryReset
	RetryResetBeforeRequest
	RetryConnectFailure
	RetryEnvoyRatelimited
	RetryRetriable4xx
	RetryRefusedStream
	RetryRetriableStatusCodes
	RetryRetriableHeaders
	RetryHTTP3PostConnect
	RetryGRPCCancelled
	RetryGRPCDeadlineExceeded
	RetryGRPCInternal
	RetryGRPCResourceExhausted
	RetryGRPCUnavailable
)

// RetryPolicy is Envoy's RetryPolicy.
type RetryPolicy struct {
	On                  RetryOn
	NumRetries          int // 1 when absent
	PerTryTimeout       time.Duration
	PerTryIdleTimeout   time.Duration
	RetriableStatus     []int
	RetriableHeaders    []HeaderMatch
	RetriableRqHeaders  []HeaderMatch
	PreviousHosts       bool
	OmitCanary          bool
	OmitHostMetadata    Struct
	PreviousPriorities  int // update_frequency; 0: off
	HostSelectionMax    int // host_selection_retry_max_attempts; 1 when absent
	BackoffBase         time.Duration
	BackoffMax          time.Duration
	RateLimitedBackoff  *RateLimitedBackoff
	HedgeOnPerTry       bool
	RefreshClusterOnTry bool
}

// RateLimitedBackoff waits as long as a response header asks.
type RateLimitedBackoff struct {
	Headers []ResetHeader
	Max     time.Duration
}

// ResetHeader names a header that carries seconds or a Unix time.
type ResetHeader struct {
	Name string
	Unix bool
}
