package config

import (
	"net/netip"
	"time"
)

// DiscoveryType is how a cluster finds its endpoints.
type DiscoveryType uint8

// The discovery types.
const (
	Static DiscoveryType = iota
	StrictDNS
	LogicalDNS
	EDS
	OriginalDst
)

// LBPolicy is a load balancing algorithm.
type LBPolicy uint8

// The policies.
const (
	RoundRobin LBPolicy = iota
	LeastRequest
	Random
	RingHash
	Maglev
	ClusterProvided
)

// Cluster is one upstream cluster, linked: Load holds its endpoints whatever
// they came from. MetaHash of Load changes with EDS, Hash with CDS.
type Cluster struct {
	Meta
	AltStatName   string
	EDSName       string // service_name, or the cluster's own name
	Load          *LoadAssignment
	Metadata      Packed
	TLS           *UpstreamTLS
	SocketMatches []SocketMatch
	*ClusterOptions
}

// ClusterOptions are what clusters made alike have in common: a mesh has
// thousands of clusters and few sets of options.
type ClusterOptions struct {
	Type            DiscoveryType
	EDSTimeout      time.Duration // of eds_config: 15 s when absent, 0: wait for ever
	ConnectTimeout  time.Duration // 5 s when absent
	LB              LBPolicy
	LeastRequest    LeastRequestOptions
	RingHash        RingHashOptions
	MaglevTableSize uint64
	OriginalDst     OriginalDstOptions
	SlowStart       *SlowStart
	LBCommon        LBCommon
	Subset          *SubsetLB
	Breakers        [2]Breaker // by Priority
	Outlier         *Outlier
	DNS             DNSOptions
	CleanupInterval time.Duration
	Bind            netip.Addr // upstream_bind_config; invalid: none
	BindPort        uint16
	BindFreebind    bool
	Keepalive       Keepalive
	BufferLimit     int          // 1 MiB when absent
	ProxyProtocol   *ProxyHeader // transport socket wrapper; nil: none
	HTTP            HTTPProtocol
	TCPExchange     *MetadataExchange // upstream network filter
	Internal        bool              // endpoints are internal addresses
	MaxRequests     int               // per connection; 0: no limit
	IdleTimeout     time.Duration     // pooled HTTP connections; 1 h when absent
	MaxConnDuration time.Duration
	MaxStream       time.Duration
	MaxHeaders      int // 100 when absent
	MaxHeadersKB    int // 60 when absent
	TCPIdleTimeout  time.Duration
	CloseOnFailure  bool // close_connections_on_host_health_failure
	IgnoreOnRemoval bool // ignore_health_on_host_removal
	ConnPoolPerDown bool // connection_pool_per_downstream_connection
	TrackRemaining  bool
	RespectDNSTTL   bool
	PreconnectRatio float64
	WaitForWarm     bool
	AutoSNI         bool // upstream_http_protocol_options.auto_sni
	AutoSANValid    bool
	OverrideSNI     string // override_auto_sni_header
}

// HTTPProtocol says which HTTP goes upstream.
type HTTPProtocol struct {
	Kind  UpstreamProtocol
	HTTP1 HTTP1Options
	HTTP2 HTTP2Options
}

// UpstreamProtocol chooses the upstream HTTP version.
type UpstreamProtocol uint8

// The choices.
const (
	UpstreamHTTP1 UpstreamProtocol = iota
	UpstreamHTTP2
	UpstreamDownstream // use_downstream_protocol_config
	UpstreamAuto       // auto_config, by ALPN
)

// SocketMatch chooses a transport socket by endpoint metadata
// "envoy.transport_socket_match". TLS nil is raw_buffer.
type SocketMatch struct {
	Name          string
	Match         map[string]string
	TLS           *UpstreamTLS
	Internal      bool
	ProxyProtocol *ProxyHeader
}

// ProxyHeader is sent ahead on upstream connections. Version 1 has no TLVs.
type ProxyHeader struct {
	Version int
	Pass    []byte // types of the client's TLVs that go on; see PassAll
	PassAll bool
	Added   []TLV
}

// TLV is one of a PROXY header of version 2.
type TLV struct {
	Type  byte
	Value []byte
}

// LoadAssignment is the endpoints of one cluster. Hash is over its bytes.
type LoadAssignment struct {
	Meta
	Localities         []Locality
	OverProvision      uint32 // percent, 140 when absent
	WeightedPriority   bool
	DropPerMillion     []DropOverload
	StaleAfter         time.Duration
	NamedEndpointsUsed bool
}

// DropOverload drops a share of requests by category.
type DropOverload struct {
	Category string
	Percent  Percent
}

// Locality is the endpoints of one locality and priority.
type Locality struct {
	Region, Zone, SubZone string
	Weight                uint32 // 0: none
	Priority              uint32
	Endpoints             []Endpoint
}

// HealthStatus is the health that EDS reports.
type HealthStatus uint8

// The health states.
const (
	HealthUnknown HealthStatus = iota
	HealthHealthy
	HealthUnhealthy
	HealthDraining
	HealthTimeout
	HealthDegraded
)

// Usable reports whether load balancing may choose such an endpoint.
func (h HealthStatus) Usable() bool {
	return h == HealthUnknown || h == HealthHealthy || h == HealthDegraded
}

// Endpoint is one upstream host.
type Endpoint struct {
	Address  Address
	Hostname string
	Health   HealthStatus
	Weight   uint32 // at least 1
	Metadata Packed
}

// LeastRequestOptions are least_request_lb_config.
type LeastRequestOptions struct {
	Choices uint32  // 2 when absent
	Bias    float64 // 1 when absent
	Full    bool    // selection_method FULL_SCAN
}

// RingHashOptions are ring_hash_lb_config.
type RingHashOptions struct {
	Min, Max    uint64 // 1024, 8 Mi when absent
	Murmur      bool
	UseHostname bool
}

// OriginalDstOptions are original_dst_lb_config.
type OriginalDstOptions struct {
	UseHeader    bool
	Header       string
	PortOverride uint16
	MetadataKey  []string
	MetadataNS   string
}

// SlowStart is slow_start_config.
type SlowStart struct {
	Window     time.Duration
	Aggression float64 // 1 when absent
	MinPercent float64 // 10 when absent
}

// LBCommon are the fields of common_lb_config.
type LBCommon struct {
	PanicThreshold    float64 // percent, 50 when absent
	LocalityWeighted  bool
	ZoneAware         *ZoneAware
	ConsistentHost    bool
	HashBalanceFactor uint32
	MergeWindow       time.Duration
	IgnoreNewHosts    bool
	OverrideHealth    []HealthStatus
	CloseOnHostSet    bool
	HostnameForHash   bool
}

// ZoneAware is zone_aware_lb_config.
type ZoneAware struct {
	RoutingEnabled float64
	MinClusterSize uint64
	FailOnPanic    bool
}

// SubsetLB is lb_subset_config.
type SubsetLB struct {
	Fallback  uint8 // 0 none, 1 any, 2 default subset
	Default   Struct
	Selectors []SubsetSelector
	// ListAsAny reads a list of values of an endpoint as any of them; FallbackList
	// tries the entries of fallback_list of the wanted metadata in order.
	ListAsAny, FallbackList bool
}

// SubsetSelector is one subset selector, its keys sorted.
type SubsetSelector struct {
	Keys         []string
	Fallback     uint8 // 0 the cluster's, 1 none, 2 any, 3 default subset, 4 FallbackKeys
	FallbackKeys []string
	Single       bool
}

// Unlimited is a breaker that never opens.
const Unlimited = ^uint32(0)

// Breaker is circuit_breakers of one priority. Envoy's default is 1024 for
// connections, pending and requests, 3 for retries.
type Breaker struct {
	Connections, Pending, Requests, Retries, Pools uint32
	Budget                                         *RetryBudget
	TrackRemaining                                 bool
	PerHostConnections                             uint32 // per_host_thresholds; Unlimited when absent
}

// RetryBudget is retry_budget.
type RetryBudget struct {
	Percent        float64 // 20 when absent
	MinConcurrency uint32  // 3 when absent
	Interval       time.Duration
}

// Outlier is outlier_detection, defaults filled in.
type Outlier struct {
	Consecutive5xx, ConsecutiveGateway, ConsecutiveLocal    uint32
	Enforce5xx, EnforceGateway, EnforceLocal                uint32 // percent
	EnforceSuccessRate, EnforceFailure, EnforceLocalSuccess uint32
	EnforceLocalFailure                                     uint32
	Interval, BaseEjection, MaxEjection, MaxJitter          time.Duration
	MaxEjectionPercent                                      uint32
	AlwaysEjectOne                                          bool
	SplitLocal                                              bool
	SuccessMinHosts, SuccessVolume, SuccessStdev            uint32
	FailureThreshold, FailureMinHosts, FailureVolume        uint32
	SuccessfulActiveHC                                      bool
	ErrorStatus                                             [][2]int // monitor: half-open ranges
}

// DNSOptions are a DNS cluster's.
type DNSOptions struct {
	Refresh, FailureBase, FailureMax, Jitter time.Duration
	RespectTTL                               bool
	V4Only, V6Only                           bool
	V4Preferred, All                         bool
	Resolvers                                []netip.AddrPort
	Port                                     uint16
}
