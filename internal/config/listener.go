package config

import (
	"fmt"
	"time"
)

// Direction is a listener's traffic direction, which telemetry reports.
type Direction uint8

// The directions.
const (
	Unspecified Direction = iota
	Inbound
	Outbound
)

// Listener is one received or static listener, linked: its filters are policies
// whose parts are all present.
type Listener struct {
	Meta
	// ShellHash is taken over the bytes without the filter chains: where it is
	// equal and Hash isn't, only chains have changed.
	ShellHash           uint64
	Address             Address
	Additional          []Address
	Direction           Direction
	BindToPort          bool // false: reached only from a listener with UseOriginalDst
	UseOriginalDst      bool
	Transparent         bool
	Freebind            bool
	ReusePort           bool
	Internal            bool // an internal listener: no socket
	Backlog             int  // 0: kernel's limit
	MaxConnections      int  // 0: no limit
	ExactBalance        bool
	Filters             ListenerFilters
	FiltersTimeout      time.Duration // listener_filters_timeout; 0: wait for ever
	ContinueOnTimeout   bool
	Chains              []*FilterChain
	DefaultChain        *FilterChain  // nil: none
	Matcher             *ChainMatcher // chooses by the chains' names; nil: their Match does
	BufferLimit         int           // per_connection_buffer_limit_bytes; 1 MiB when absent
	StatPrefix          string        // "": statistics go by the bound address
	AccessLogs          []*AccessLog
	IgnoreGlobalCxLimit bool
	DrainModifyOnly     bool // drain_type MODIFY_ONLY
}

// ListenerFilters is what looks at a connection before a chain is chosen.
// A nil member means the filter isn't there.
type ListenerFilters struct {
	OriginalDst   bool
	OriginalSrc   *OriginalSrc
	TLSInspector  *Inspector
	HTTPInspector *Inspector
	ProxyProtocol *ProxyProtocol
}

// Inspector is tls_inspector or http_inspector. DisabledPorts lists half-open
// destination port ranges in which it doesn't run.
type Inspector struct {
	DisabledPorts [][2]uint32
	DisabledAll   bool
}

// Disabled reports whether the inspector is off for a destination port.
func (i *Inspector) Disabled(port uint16) bool {
	if i.DisabledAll {
		return true
	}
	for _, r := range i.DisabledPorts {
		if uint32(port) >= r[0] && uint32(port) < r[1] {
			return true
		}
	}
	return false
}

// OriginalSrc makes the upstream connection come from the client's address.
type OriginalSrc struct{ Mark uint32 }

// ProxyProtocol reads a PROXY header (v1 or v2) first.
type ProxyProtocol struct {
	AllowWithoutHeader bool
	StatPrefix         string  // with a dot at its end, or ""
	Disallowed         [2]bool // by version
	Rules              []TLVRule
	Pass               []byte // types of TLVs that upstream PROXY headers may have; see PassAll
	PassAll            bool
}

// TLVRule puts the value of a TLV into dynamic metadata.
type TLVRule struct {
	Type           byte
	Namespace, Key string
}

// Addresses are all that l has.
func (l *Listener) Addresses() []Address { return append([]Address{l.Address}, l.Additional...) }

// Addresses are those that listeners bind, with who does.
type Addresses map[Address]string

// Claim notes the addresses of l, unless another listener has one: the kernel
// would let them share it, and spread connections over them by chance.
func (t Addresses) Claim(l *Listener) error {
	if !l.BindToPort || l.Internal {
		return nil
	}
	all := l.Addresses()
	for _, a := range all {
		if _, ok := t[a]; ok {
			return fmt.Errorf("error adding listener: '%s' has duplicate address '%s' as existing listener", l.Name, a)
		}
	}
	for _, a := range all {
		if a.Pipe != "" || a.IP.Port() != 0 { // else the kernel chooses
			t[a] = l.Name
		}
	}
	return nil
}

// FilterChain is what is done with the connections that fit Match.
type FilterChain struct {
	Name                string
	Hash                uint64 // over the chain's bytes: equal means unchanged
	Match               FilterChainMatch
	TLS                 *DownstreamTLS // nil: raw_buffer
	TransportTimeout    time.Duration  // transport_socket_connect_timeout
	Filters             []NetworkFilter
	Metadata            Metadata
	ProxyProtocolSocket bool
}

// FilterChainMatch is Envoy's FilterChainMatch; empty members match anything.
// Members are tried in the order they stand here (Envoy's documented order).
type FilterChainMatch struct {
	DestinationPort    uint16 // 0: any
	PrefixRanges       Prefixes
	ServerNames        []string // lower-case; "*.x" is a suffix wildcard
	TransportProtocol  string   // "", "tls", "raw_buffer"
	ApplicationProtos  []string
	DirectSourcePrefix Prefixes
	SourceType         SourceType
	SourcePrefix       Prefixes
	SourcePorts        []uint16
	AddressSuffix      string
	SuffixLen          uint32
	SuffixLenSet       bool
}

// SourceType is FilterChainMatch.source_type.
type SourceType uint8

// The source types.
const (
	SourceAny SourceType = iota
	SourceSameIPOrLoopback
	SourceExternal
)

// NetworkFilter is one filter of a chain. The last one is TCPProxy or
// HTTPConnectionManager, which are terminal; Direct is terminal too.
type NetworkFilter interface{ networkFilter() }

// NamedNetworkFilter gives a filter its configured name.
type NamedNetworkFilter struct {
	Name   string
	Filter NetworkFilter
}

// TCPProxy relays bytes to a cluster.
type TCPProxy struct {
	StatPrefix             string
	Cluster                string
	Weighted               []WeightedCluster
	IdleTimeout            time.Duration // 1 h when absent; 0: off
	MaxConnectionDuration  time.Duration
	MaxConnectAttempts     int // 1 when absent
	HashSourceIP           bool
	AccessLogs             []*AccessLog
	AccessLogOnStart       bool // flush_access_log_on_start
	AccessLogOnConnected   bool // flush_access_log_on_connected
	TunnelHost             *Format
	TunnelPost             bool
	TunnelPath             string
	TunnelHeaders          []HeaderAppend
	MetadataMatch          Struct
	FlushAccessLogInterval time.Duration
}

// EchoFilter answers every byte with itself (envoy.filters.network.echo).
type EchoFilter struct{}

// DirectResponse writes Body and closes (envoy.filters.network.direct_response).
type DirectResponse struct{ Body []byte }

// MetadataExchange is istio.metadata_exchange on a TCP chain or cluster: peer
// metadata travels before the first byte when ALPN agreed on Protocol.
type MetadataExchange struct {
	Protocol        string
	EnableDiscovery bool
}

// NetworkStats is istio.stats on a TCP chain.
type NetworkStats struct{ Stats *IstioStats }

// ConnectionRate is envoy.filters.network.local_ratelimit.
type ConnectionRate struct {
	StatPrefix string
	ShareKey   string // "": a bucket of its own
	Bucket     TokenBucket
	Off        bool // runtime_enabled's default_value is false
}

// NetworkRBAC is envoy.filters.network.rbac.
type NetworkRBAC struct{ RBAC *RBAC }

// SNICluster names the cluster by the SNI.
type SNICluster struct{}

func (*TCPProxy) networkFilter()              {}
func (*EchoFilter) networkFilter()            {}
func (*DirectResponse) networkFilter()        {}
func (*MetadataExchange) networkFilter()      {}
func (*NetworkStats) networkFilter()          {}
func (*NetworkRBAC) networkFilter()           {}
func (*ConnectionRate) networkFilter()        {}
func (*SNICluster) networkFilter()            {}
func (*HTTPConnectionManager) networkFilter() {}

// Codec is which HTTP a connection manager speaks.
type Codec uint8

// The codecs.
const (
	CodecAuto Codec = iota
	CodecHTTP1
	CodecHTTP2
)

// ServerHeader is server_header_transformation.
type ServerHeader uint8

// The transformations of the server header.
const (
	ServerOverwrite ServerHeader = iota
	ServerAppendIfAbsent
	ServerPassThrough
)

// ForwardClientCert is forward_client_cert_details.
type ForwardClientCert uint8

// The treatments of x-forwarded-client-cert.
const (
	XFCCSanitize ForwardClientCert = iota
	XFCCForwardOnly
	XFCCAppendForward
	XFCCSanitizeSet
	XFCCAlwaysForwardOnly
)

// EscapedSlashes is path_with_escaped_slashes_action.
type EscapedSlashes uint8

// The treatments of %2F and %5C in a path.
const (
	SlashesKeep EscapedSlashes = iota
	SlashesReject
	SlashesUnescapeRedirect
	SlashesUnescapeForward
)

// HTTPConnectionManager serves HTTP on a chain.
type HTTPConnectionManager struct {
	StatPrefix           string
	Codec                Codec
	RouteName            string              // RDS name; "" when Routes is inline
	Routes               *RouteConfiguration // inline, nil with RDS
	RDSInitialTimeout    time.Duration
	Filters              []HTTPFilter // in order; the router is implied last
	Router               Router
	AccessLogs           []*AccessLog
	AccessLogInterval    time.Duration // between records of a request that goes on; 0: none
	AccessLogOnNew       bool
	AccessLogOnTunnel    bool     // a record when an upgrade or CONNECT is accepted
	Tracing              *Tracing // nil: off
	ServerName           string   // "envoy" when absent
	ServerHeader         ServerHeader
	UseRemoteAddress     bool
	XFFTrustedHops       int
	SkipXFFAppend        bool
	InternalCIDRs        Prefixes // internal_address_config.cidr_ranges
	InternalUnixSockets  bool
	Via                  string
	GenerateRequestID    bool
	PreserveRequestID    bool // preserve_external_request_id
	AlwaysSetRequestID   bool // always_set_request_id_in_response
	PackTraceReason      bool // uuid extension: 14th nibble
	UseRequestIDSampling bool
	ForwardClientCert    ForwardClientCert
	XFCC                 XFCCFields
	Proxy100Continue     bool
	Upgrades             []Upgrade
	NormalizePath        bool
	MergeSlashes         bool
	EscapedSlashes       EscapedSlashes
	StripPort            StripPort
	StripTrailingDot     bool
	StreamIdleTimeout    time.Duration // 5 min when absent
	RequestTimeout       time.Duration
	RequestHeadersTime   time.Duration // request_headers_timeout
	StreamFlushTimeout   time.Duration
	IdleTimeout          time.Duration // common_http_protocol_options; 1 h when absent
	MaxConnDuration      time.Duration
	HTTP1SafeDuration    bool // http1_safe_max_connection_duration
	MaxStreamDuration    time.Duration
	MaxRequestsPerConn   int
	MaxHeaders           int // 100 when absent
	MaxHeadersKB         int // 60 when absent
	Underscores          Underscores
	DrainTimeout         time.Duration // 5 s when absent
	DelayedCloseTimeout  time.Duration // 1 s when absent
	HTTP1                HTTP1Options
	HTTP2                HTTP2Options
	LocalReplies         []LocalReply
	LocalReplyFormat     *BodyFormat
	SchemeOverwrite      string // scheme_header_transformation
	StreamErrorOnInvalid bool   // stream_error_on_invalid_http_message
	AddUserAgent         bool
	RepresentIPv4Remote  bool
	EarlyHeaderMutation  []HeaderMutation
	AppendXForwardedPort bool
	ProxyStatus          bool
	AppendLocalOverload  bool
}

// StripPort says which port is taken off Host and :authority.
type StripPort uint8

// The choices of StripPort.
const (
	StripPortNone StripPort = iota
	StripPortMatching
	StripPortAny
)

// Underscores is headers_with_underscores_action.
type Underscores uint8

// The treatments of header names with an underscore.
const (
	UnderscoresAllow Underscores = iota
	UnderscoresReject
	UnderscoresDrop
)

// XFCCFields says what set_current_client_cert_details adds.
type XFCCFields struct{ Subject, Cert, Chain, DNS, URI bool }

// Upgrade is one allowed upgrade type (lower-case), e.g. "websocket".
type Upgrade struct {
	Type    string
	Enabled bool
	Connect bool // CONNECT terminated here (connect_config on the route)
}

// HTTP1Options are http_protocol_options.
type HTTP1Options struct {
	AcceptHTTP10           bool
	DefaultHost            string // default_host_for_http_10
	AllowAbsoluteURL       bool   // true when absent
	EnableTrailers         bool
	AllowChunkedLength     bool
	ProperCase             bool
	PreserveCase           bool
	PreserveElseProper     bool // formatter_type_on_envoy_headers PROPER_CASE
	ForwardReason          bool // forward_reason_phrase
	SendFullyQualified     bool
	StreamErrorOnInvalid   bool
	AllowCustomMethods     bool
	IgnoreHTTP11Upgrade    []StringMatch
	RemoveTrailersIfNoTETs bool
}

// HTTP2Options are http2_protocol_options. Defaults are Envoy's.
type HTTP2Options struct {
	HeaderTableSize        uint32 // 4096
	MaxConcurrentStreams   uint32 // 1024 when absent (Envoy 1.40)
	InitialStreamWindow    uint32 // 16 MiB when absent
	InitialConnWindow      uint32 // 24 MiB when absent
	MaxOutboundFrames      uint32 // 10000
	MaxOutboundControl     uint32 // 1000
	MaxConsecutiveEmpty    uint32 // 1
	MaxPriorityPerStream   uint32 // 100
	MaxWindowUpdatePerData uint32 // 10
	AllowConnect           bool
	AllowMetadata          bool
	StreamErrorOnInvalid   bool
	KeepaliveInterval      time.Duration
	KeepaliveTimeout       time.Duration
	KeepaliveIdle          time.Duration
}

// LocalReply is one mapper of local_reply_config.
type LocalReply struct {
	Filter  *LogFilter
	Status  int // 0: unchanged
	Body    *Format
	Format  *BodyFormat
	Headers []HeaderMutation
}

// BodyFormat writes a local reply's body.
type BodyFormat struct {
	Text        *Format
	JSON        *JSONFormat
	ContentType string
}

// Tracing is the HCM's tracing section. Percentages are of requests.
type Tracing struct {
	Client, Random, Overall Percent
	Verbose                 bool
	SpawnUpstream           bool
	MaxPathLen              int
	CustomTags              []CustomTag
	Provider                TracerProvider // nil: sampling decisions only
	OperationName           *Format
	UpstreamOperation       *Format
}

// TracerProvider is where spans go; the tracing packages define the kinds.
type TracerProvider interface{ tracerProvider() }

// ZipkinTracer sends spans to a Zipkin collector cluster.
type ZipkinTracer struct {
	Cluster, Path, Host string
	TraceID128          bool
	SharedSpanContext   bool
	W3C                 bool
	Split               bool // split_spans_for_request
}

// OTelTracer sends spans by OTLP.
type OTelTracer struct {
	Cluster     string
	Authority   string // "" with gRPC: the cluster's name
	HTTPPath    string // "" means gRPC
	Headers     [][2]string
	ServiceName string
	Attributes  [][2]string   // of the resource
	Environment bool          // OTEL_RESOURCE_ATTRIBUTES has more of them
	AlwaysOn    bool          // the caller's decision doesn't count
	Timeout     time.Duration // of HTTP; Envoy's gRPC exporter doesn't keep to it
}

func (*ZipkinTracer) tracerProvider() {}
func (*OTelTracer) tracerProvider()   {}

// CustomTag is one custom_tags entry of Tracing.
type CustomTag struct {
	Tag, Literal, Header, Env, Default string
	MetadataKind                       string // "", "request", "route", "cluster", "host"
	MetadataKey                        []string
	Value                              *Format
}

// HTTPFilter is one filter of an HCM, before the router.
type HTTPFilter struct {
	Name     string
	Policy   HTTPPolicy // nil with Discovery until link has filled it in
	Disabled bool       // only routes turn it on
	// Discovery says that Policy comes by itself (ECDS); nil: it is inline.
	Discovery *Discovery
}

// Discovery names the extension config that gives an HTTPFilter its Policy.
type Discovery struct {
	Default        HTTPPolicy    // until it comes; nil: none
	WithoutWarming bool          // Default serves at once
	Timeout        time.Duration // 15 s when absent, 0: wait for ever
	TypeURLs       []string      // what it may be, full message names
}

// Router is envoy.filters.http.router.
type Router struct {
	SuppressEnvoyHeaders bool
	DynamicStats         bool
	StartChildSpan       bool
	StrictHeaders        []string
	UpstreamLogs         []*AccessLog
	RespectExpectedRq    bool
}
