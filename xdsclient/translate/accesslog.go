//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	file "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	cel "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	stream "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"

	"sluice/internal/config"
)

// defaultLogFormat is what Envoy writes when a file logger has no format.
const defaultLogFormat = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% " +
	"%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" " +
	"\"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\"\n"

func (s scope) accessLogs(field string, in []*accesslog.AccessLog) []*config.AccessLog {
	var out []*config.AccessLog
	for i, l := range in {
		if v := s.index(field, i).accessLog(l); v != nil {
			out = append(out, v)
		}
	}
	return out
}

func (s scope) accessLog(l *accesslog.AccessLog) *config.AccessLog {
	out := &config.AccessLog{Name: l.GetName()}
	if l.GetFilter() != nil {
		f := s.at("filter").logFilter(l.Filter, 0)
		out.Filter = &f
	}
	t, ok := s.at("typed_config").unwrap(l.GetName(), l.GetTypedConfig())
	if !ok {
		return nil
	}
	decode, ok := s.r.AccessLoggers[t.name]
	if !ok {
		s.missing(l.GetName(), t.name)
		return nil
	}
	if out.Sink = decode(s.at("typed_config"), t); out.Sink == nil {
		return nil
	}
	return out
}

func fileLog(s scope, t typed) config.LogSink {
	var m file.FileAccessLog
	if !s.decode(t, &m) {
		return nil
	}
	out := &config.FileLog{Path: m.GetPath()}
	switch x := m.GetAccessLogFormat().(type) {
	case *file.FileAccessLog_Format:
		if x.Format == "" {
			out.Text = s.format(defaultLogFormat)
		} else {
			out.Text = s.at("format").format(x.Format)
		}
	case *file.FileAccessLog_LogFormat:
		out.Text, out.JSON = s.at("log_format").substitution(x.LogFormat)
	case *file.FileAccessLog_JsonFormat:
		out.JSON = s.at("json_format").jsonFormat(x.JsonFormat, 0)
	case *file.FileAccessLog_TypedJsonFormat:
		out.JSON = s.at("typed_json_format").jsonFormat(x.TypedJsonFormat, 0)
	default:
		out.Text = s.format(defaultLogFormat)
	}
	return out
}

func stdoutLog(s scope, t typed) config.LogSink {
	var m stream.StdoutAccessLog
	if !s.decode(t, &m) {
		return nil
	}
	return s.streamLog("/dev/stdout", m.GetLogFormat())
}

func stderrLog(s scope, t typed) config.LogSink {
	var m stream.StderrAccessLog
	if !s.decode(t, &m) {
		return nil
	}
	return s.streamLog("/dev/stderr", m.GetLogFormat())
}

func (s scope) streamLog(path string, f *core.SubstitutionFormatString) config.LogSink {
	out := &config.FileLog{Path: path}
	if f == nil {
		out.Text = s.format(defaultLogFormat)
	} else {
		out.Text, out.JSON = s.at("log_format").substitution(f)
	}
	return out
}

func httpGRPCLog(s scope, t typed) config.LogSink {
	var m als.HttpGrpcAccessLogConfig
	if !s.decode(t, &m) {
		return nil
	}
	out := s.at("common_config").grpcLog(m.GetCommonConfig())
	out.RequestHeaders = lower(m.GetAdditionalRequestHeadersToLog())
	out.RespHeaders = lower(m.GetAdditionalResponseHeadersToLog())
	out.Trailers = lower(m.GetAdditionalResponseTrailersToLog())
	return out
}

func tcpGRPCLog(s scope, t typed) config.LogSink {
	var m als.TcpGrpcAccessLogConfig
	if !s.decode(t, &m) {
		return nil
	}
	out := s.at("common_config").grpcLog(m.GetCommonConfig())
	out.TCP = true
	return out
}

func (s scope) grpcLog(c *als.CommonGrpcAccessLogConfig) *config.GRPCLog {
	s.unsupported(len(c.GetCustomTags()) > 0, "custom_tags", "custom tags of access log services")
	at, service := s.at("grpc_service"), c.GetGrpcService()
	at.unsupported(len(service.GetInitialMetadata()) > 0, "initial_metadata", "metadata of calls to an access log service")
	return &config.GRPCLog{
		Cluster:       at.envoyGRPC(service),
		Authority:     service.GetEnvoyGrpc().GetAuthority(),
		LogName:       c.GetLogName(),
		FlushInterval: s.duration("buffer_flush_interval", c.GetBufferFlushInterval(), seconds(1)),
		BufferSize:    capped(u32(c.GetBufferSizeBytes(), 16384)),
	}
}

// envoyGRPC gives the cluster of a gRPC service; a Google gRPC client has no
// cluster of ours to go through.
func (s scope) envoyGRPC(g *core.GrpcService) string {
	if g.GetGoogleGrpc() != nil {
		s.at("google_grpc").bad("not supported yet: use envoy_grpc")
	}
	return g.GetEnvoyGrpc().GetClusterName()
}

// logFilter converts one node of an access log's filter tree.
func (s scope) logFilter(f *accesslog.AccessLogFilter, depth int) config.LogFilter {
	var out config.LogFilter
	if depth > 32 {
		s.bad("nested more than 32 levels")
		return out
	}
	switch x := f.GetFilterSpecifier().(type) {
	case *accesslog.AccessLogFilter_StatusCodeFilter:
		out.Kind = config.LogStatus
		out.Op, out.Number = s.comparison(x.StatusCodeFilter.GetComparison())
	case *accesslog.AccessLogFilter_DurationFilter:
		out.Kind = config.LogDuration
		out.Op, out.Number = s.comparison(x.DurationFilter.GetComparison())
	case *accesslog.AccessLogFilter_NotHealthCheckFilter:
		out.Kind = config.LogNotHealthCheck
	case *accesslog.AccessLogFilter_TraceableFilter:
		out.Kind = config.LogTraceable
	case *accesslog.AccessLogFilter_RuntimeFilter:
		out.Kind, out.Percent = config.LogRuntime, fraction(x.RuntimeFilter.GetPercentSampled())
	case *accesslog.AccessLogFilter_AndFilter:
		out.Kind, out.Sub = config.LogAnd, s.logFilters("and_filter.filters", x.AndFilter.GetFilters(), depth)
	case *accesslog.AccessLogFilter_OrFilter:
		out.Kind, out.Sub = config.LogOr, s.logFilters("or_filter.filters", x.OrFilter.GetFilters(), depth)
	case *accesslog.AccessLogFilter_HeaderFilter:
		h := s.at("header_filter.header").header(x.HeaderFilter.GetHeader())
		out.Kind, out.Header = config.LogHeader, &h
	case *accesslog.AccessLogFilter_ResponseFlagFilter:
		out.Kind, out.Flags = config.LogResponseFlag, x.ResponseFlagFilter.GetFlags()
	case *accesslog.AccessLogFilter_GrpcStatusFilter:
		out.Kind, out.Exclude = config.LogGRPCStatus, x.GrpcStatusFilter.GetExclude()
		for _, c := range x.GrpcStatusFilter.GetStatuses() {
			out.Codes = append(out.Codes, int(c))
		}
	case *accesslog.AccessLogFilter_MetadataFilter:
		out.Kind = config.LogMetadata
		if m := x.MetadataFilter.GetMatcher(); m != nil {
			v := s.at("metadata_filter.matcher").metadataMatch(m)
			out.Metadata = &v
		}
		out.MatchNo = boolean(x.MetadataFilter.GetMatchIfKeyNotFound(), true)
	case *accesslog.AccessLogFilter_LogTypeFilter:
		out.Kind, out.Exclude = config.LogType, x.LogTypeFilter.GetExclude()
		for _, v := range x.LogTypeFilter.GetTypes() {
			out.Types = append(out.Types, v.String())
		}
	case *accesslog.AccessLogFilter_ExtensionFilter:
		var m cel.ExpressionFilter
		if e := s.at("extension_filter"); e.unpack(x.ExtensionFilter.GetName(), x.ExtensionFilter.GetTypedConfig(), &m) {
			out.Kind, out.CEL = config.LogCEL, e.at("typed_config.expression").expression(m.GetExpression())
		}
	default:
		s.bad("no filter")
	}
	return out
}

func (s scope) logFilters(field string, in []*accesslog.AccessLogFilter, depth int) []config.LogFilter {
	out := make([]config.LogFilter, 0, len(in))
	for i, f := range in {
		out = append(out, s.index(field, i).logFilter(f, depth+1))
	}
	return out
}

func (s scope) comparison(c *accesslog.ComparisonFilter) (config.Comparison, uint64) {
	n := uint64(c.GetValue().GetDefaultValue())
	switch c.GetOp() {
	case accesslog.ComparisonFilter_GE:
		return config.CompareGE, n
	case accesslog.ComparisonFilter_LE:
		return config.CompareLE, n
	case accesslog.ComparisonFilter_NE:
		return config.CompareNE, n
	}
	return config.CompareEQ, n
}
