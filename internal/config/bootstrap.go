package config

import (
	"net/netip"
	"regexp"
	"time"
)

// Node is who this proxy says it is on xDS. MetadataJSON is the canonical JSON
// of the node's metadata struct.
type Node struct {
	ID, Cluster           string
	Region, Zone, SubZone string
	Metadata              Struct
	UserAgentName         string
	UserAgentVersion      string
}

// ADS is how dynamic resources come. Cluster names a static cluster.
type ADS struct {
	Delta   bool
	Cluster string
	// LDS and CDS say which wildcard resources are asked for.
	LDS, CDS            bool
	NodeOnce            bool          // set_node_on_first_message_only
	InitialFetchTimeout time.Duration // 15 s when absent, 0: wait for ever
	LDSTimeout          time.Duration
	CDSTimeout          time.Duration
}

// Bootstrap is a parsed bootstrap: identity, static resources, admin.
type Bootstrap struct {
	Node              Node
	Admin             netip.AddrPort // invalid: none
	AdminPipe         string
	AdminLogs         []*AccessLog
	ADS               *ADS // nil: static only
	Static            Snapshot
	StatsMatcher      *StatsMatcher
	StatsTags         []StatsTag
	FlushInterval     time.Duration
	HistogramBuckets  []HistogramBuckets
	MaxConnections    uint64 // global downstream connections; 0: no limit
	DrainTime         time.Duration
	HeaderPrefix      string // "x-envoy" when absent
	DefaultTLSCurves  []string
	RuntimeLayers     []RuntimeLayer // in order; later ones win
	Runtime           Struct         // their merged values, by flat key
	ClusterManagerBuf uint32
	DisableExtensions []string
}

// RuntimeLayer is one layer of runtime values, by flat key ("a.b"): a number, bool or
// string, or a Struct of numerator and denominator for a fraction. Of a layer that
// isn't static only the name is known.
type RuntimeLayer struct {
	Name   string
	Values Struct
}

// StatsMatcher says which Envoy-named statistics exist. Include true: only
// those that match; false: all but those that match.
type StatsMatcher struct {
	RejectAll bool
	Include   bool
	Patterns  []StringMatch
}

// StatsTag extracts a label from a stat's name, or adds one.
type StatsTag struct {
	Name  string
	Regex *regexp.Regexp // nil: every stat has the label, with the value Fixed
	Fixed string
}

// HistogramBuckets overrides the buckets of histograms that match.
type HistogramBuckets struct {
	Match   StringMatch
	Buckets []float64
}
