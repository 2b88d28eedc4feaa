package config

import "time"

// Format is a parsed substitution format string: literal text and operators.
type Format struct {
	Items     []FormatItem
	OmitEmpty bool // missing values print nothing instead of "-"
}

// FormatItem is literal text (Op "") or one operator such as
// %REQ(X?Y):10%: Op "REQ", Arg "X", Alt "Y", Max 10. Sub is a time layout or
// an extra argument; names of headers are lower-case.
type FormatItem struct {
	Text string
	Op   string
	Arg  string
	Alt  string
	Path []string // metadata keys
	Max  int      // 0: whole, -1: nothing
	JSON bool     // a JSON format's value that keeps its type
}

// Literal gives the text when the format is constant.
func (f *Format) Literal() (string, bool) {
	switch {
	case f == nil || len(f.Items) == 0:
		return "", true
	case len(f.Items) == 1 && f.Items[0].Op == "":
		return f.Items[0].Text, true
	}
	return "", false
}

// JSONFormat is a json_format: an ordered tree whose leaves are formats.
type JSONFormat struct {
	Keys      []string
	Values    []JSONValue
	SortKeys  bool
	OmitEmpty bool
}

// JSONValue is a leaf (Format), an object, a list, or a constant.
type JSONValue struct {
	Format *Format
	Object *JSONFormat
	List   []JSONValue
	Const  Value
	IsVal  bool // Const counts
}

// AccessLog is one configured access logger.
type AccessLog struct {
	Name   string
	Filter *LogFilter // nil: everything
	Sink   LogSink
}

// LogSink is where an access log goes: a closed set.
type LogSink interface{ logSink() }

// FileLog writes lines to a file; "/dev/stdout" and "/dev/stderr" are the
// process's own.
type FileLog struct {
	Path string
	Text *Format
	JSON *JSONFormat
}

// GRPCLog streams entries to an access log service, in batches.
type GRPCLog struct {
	Cluster, LogName            string
	Authority                   string // empty: the cluster's name
	TCP                         bool   // entries of connections, not of requests
	FlushInterval               time.Duration
	BufferSize                  int // bytes that are sent at once
	RequestHeaders, RespHeaders []string
	Trailers                    []string
}

// OTelLog sends OTLP log records to a collector, in batches.
type OTelLog struct {
	Cluster, LogName string
	Authority        string // empty: the cluster's name
	StatPrefix       string
	FlushInterval    time.Duration
	BufferSize       int        // bytes that are sent at once
	Body             *JSONValue // nil: none
	Attributes       *JSONFormat
	Resource         []OTelLabel
	FilterState      []string
	DisableBuiltin   bool // no log_name, zone_name, cluster_name and node_name in the resource
}

// OTelLabel is an attribute of the resource that records come from. Value is an
// encoded opentelemetry.proto.common.v1.AnyValue, passed on as it was configured.
type OTelLabel struct {
	Key   string
	Value []byte
}

func (*FileLog) logSink() {}
func (*GRPCLog) logSink() {}
func (*OTelLog) logSink() {}

// LogFilterKind says which members of a LogFilter count.
type LogFilterKind uint8

// The kinds of access log filter.
const (
	LogAnd LogFilterKind = iota
	LogOr
	LogStatus
	LogDuration
	LogNotHealthCheck
	LogTraceable
	LogRuntime
	LogHeader
	LogResponseFlag
	LogGRPCStatus
	LogMetadata
	LogType
	LogCEL
)

// Comparison is an access log filter's comparison operator.
type Comparison uint8

// The comparisons.
const (
	CompareEQ Comparison = iota
	CompareGE
	CompareLE
	CompareNE
)

// LogFilter is one node of an access log filter.
type LogFilter struct {
	Kind     LogFilterKind
	Sub      []LogFilter
	Op       Comparison
	Number   uint64 // status code, or milliseconds
	Percent  Percent
	Header   *HeaderMatch
	Flags    []string
	Codes    []int
	Exclude  bool
	Metadata *MetadataMatch
	Types    []string
	MatchNo  bool // metadata: match_if_key_not_found
	CEL      *Expression
}
