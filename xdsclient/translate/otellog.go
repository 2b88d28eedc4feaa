//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	otel "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	otlp "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"sluice/internal/config"
)

// maxOTelDepth bounds the nesting of a body and of attributes.
const maxOTelDepth = 32

func otelLog(s scope, t typed) config.LogSink {
	var m otel.OpenTelemetryAccessLogConfig
	if !s.decode(t, &m) {
		return nil
	}
	s.unsupported(m.GetHttpService() != nil, "http_service", "OpenTelemetry logs over HTTP")
	s.unsupported(len(m.GetResourceDetectors()) > 0, "resource_detectors", "resource detectors")
	s.unsupported(len(m.GetCustomTags()) > 0, "custom_tags", "custom tags of OpenTelemetry logs")
	for i, e := range m.GetFormatters() {
		s.index("formatters", i).formatter(e)
	}
	out := &config.OTelLog{StatPrefix: m.GetStatPrefix(), DisableBuiltin: m.GetDisableBuiltinLabels(), Attributes: s.at("attributes").otelFormat(m.GetAttributes(), 0)}
	s.otelCollector(&m, out)
	if b := m.GetBody(); b != nil {
		v := s.at("body").otelValue(b, 0)
		out.Body = &v
	}
	for _, kv := range m.GetResourceAttributes().GetValues() {
		value, err := proto.Marshal(kv.GetValue())
		if err != nil {
			s.at("resource_attributes").bad("%v", err)
		}
		out.Resource = append(out.Resource, config.OTelLabel{Key: kv.GetKey(), Value: value})
	}
	return out
}

// otelCollector reads where records go and when: from common_config, where its
// older place says so, and from the fields that took its place.
func (s scope) otelCollector(m *otel.OpenTelemetryAccessLogConfig, out *config.OTelLog) {
	common, at, service := m.GetCommonConfig(), s, m.GetGrpcService()
	size, interval := m.GetBufferSizeBytes(), m.GetBufferFlushInterval()
	out.LogName, out.FilterState = m.GetLogName(), m.GetFilterStateObjectsToLog()
	if common != nil {
		s.unsupported(len(common.GetCustomTags()) > 0, "common_config.custom_tags", "custom tags of OpenTelemetry logs")
	}
	if service == nil {
		at, service = s.at("common_config"), common.GetGrpcService()
	}
	if out.LogName == "" {
		out.LogName = common.GetLogName()
	}
	if len(out.FilterState) == 0 {
		out.FilterState = common.GetFilterStateObjectsToLog()
	}
	if size == nil {
		size = common.GetBufferSizeBytes()
	}
	if interval == nil {
		interval = common.GetBufferFlushInterval()
	}
	out.BufferSize = capped(u32(size, 16384))
	out.FlushInterval = s.duration("buffer_flush_interval", interval, seconds(1))
	at = at.at("grpc_service")
	at.unsupported(len(service.GetInitialMetadata()) > 0, "initial_metadata", "metadata of calls to a collector")
	out.Cluster, out.Authority = at.envoyGRPC(service), service.GetEnvoyGrpc().GetAuthority()
}

func (s scope) otelFormat(list *otlp.KeyValueList, depth int) *config.JSONFormat {
	out := &config.JSONFormat{}
	for _, kv := range list.GetValues() {
		out.Keys = append(out.Keys, kv.GetKey())
		out.Values = append(out.Values, s.at(kv.GetKey()).otelValue(kv.GetValue(), depth))
	}
	return out
}

// otelValue takes the kinds of value that Envoy does; it refuses the others too.
func (s scope) otelValue(v *otlp.AnyValue, depth int) config.JSONValue {
	if depth > maxOTelDepth {
		s.bad("nested more than %d levels", maxOTelDepth)
		return config.JSONValue{}
	}
	switch x := v.GetValue().(type) {
	case *otlp.AnyValue_StringValue:
		return config.JSONValue{Format: s.format(x.StringValue)}
	case *otlp.AnyValue_KvlistValue:
		return config.JSONValue{Object: s.otelFormat(x.KvlistValue, depth+1)}
	case *otlp.AnyValue_ArrayValue:
		list := make([]config.JSONValue, 0, len(x.ArrayValue.GetValues()))
		for i, e := range x.ArrayValue.GetValues() {
			list = append(list, s.index("array_value.values", i).otelValue(e, depth+1))
		}
		return config.JSONValue{List: list}
	}
	s.bad("only strings, lists of key and value, and arrays are values of OpenTelemetry logs")
	return config.JSONValue{}
}
