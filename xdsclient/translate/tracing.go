package translate

import (
	"maps"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	trace "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	detectors "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	tracing "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"

	"sluice/internal/config"
)

func (s scope) tracing(m *hcm.HttpConnectionManager_Tracing) *config.Tracing {
	if m == nil {
		return nil
	}
	out := &config.Tracing{
		Client:        percent(m.GetClientSampling(), 100),
		Random:        percent(m.GetRandomSampling(), 100),
		Overall:       percent(m.GetOverallSampling(), 100),
		Verbose:       m.GetVerbose(),
		SpawnUpstream: boolean(m.GetSpawnUpstreamSpan(), false),
		MaxPathLen:    capped(u32(m.GetMaxPathTagLength(), 256)),
		CustomTags:    s.customTags("custom_tags", m.GetCustomTags()),
	}
	if m.GetOperation() != "" {
		out.OperationName = s.at("operation").format(m.Operation)
	}
	if m.GetUpstreamOperation() != "" {
		out.UpstreamOperation = s.at("upstream_operation").format(m.UpstreamOperation)
	}
	if p := m.GetProvider(); p != nil {
		out.Provider = s.at("provider").tracer(p)
	}
	return out
}

func (s scope) tracer(p *trace.Tracing_Http) config.TracerProvider {
	t, ok := s.at("typed_config").unwrap(p.GetName(), p.GetTypedConfig())
	if !ok {
		return nil
	}
	decode, ok := s.r.Tracers[t.name]
	if !ok {
		s.missing(p.GetName(), t.name)
		return nil
	}
	return decode(s.at("typed_config"), t)
}

func zipkin(s scope, t typed) config.TracerProvider {
	var m trace.ZipkinConfig
	if !s.decode(t, &m) {
		return nil
	}
	//lint:ignore SA1019 Envoy still obeys it, and configurations have it
	split := m.GetSplitSpansForRequest()
	out := &config.ZipkinTracer{
		Cluster: m.GetCollectorCluster(), Path: m.GetCollectorEndpoint(), Host: m.GetCollectorHostname(),
		TraceID128: m.GetTraceId_128Bit(), SharedSpanContext: boolean(m.GetSharedSpanContext(), true),
		Split: split,
		W3C:   m.GetTraceContextOption() == trace.ZipkinConfig_USE_B3_WITH_W3C_PROPAGATION,
	}
	s.unsupported(m.GetCollectorEndpointVersion() == trace.ZipkinConfig_HTTP_PROTO, "collector_endpoint_version", "HTTP_PROTO; use HTTP_JSON")
	if h := m.GetCollectorService().GetHttpUri(); h != nil {
		out.Cluster = h.GetCluster()
		out.Host, out.Path = splitURL(h.GetUri())
	}
	if out.Cluster == "" {
		s.at("collector_cluster").bad("collector_cluster must be specified when not using collector_service")
	}
	if out.Host == "" {
		out.Host = out.Cluster
	}
	return out
}

// splitURL gives an http URL's authority and path.
func splitURL(url string) (host, path string) {
	if _, rest, ok := strings.Cut(url, "://"); ok {
		url = rest
	} else if strings.HasPrefix(url, "/") {
		return "", url
	}
	host, path, ok := strings.Cut(url, "/")
	if !ok {
		return host, "/"
	}
	return host, "/" + path
}

func otelTracer(s scope, t typed) config.TracerProvider {
	var m trace.OpenTelemetryConfig
	if !s.decode(t, &m) {
		return nil
	}
	out := &config.OTelTracer{ServiceName: m.GetServiceName()}
	if out.ServiceName == "" {
		out.ServiceName = "unknown_service:envoy"
	}
	switch h := m.GetHttpService(); {
	case h != nil && m.GetGrpcService() != nil:
		s.bad("OpenTelemetry tracer cannot have both gRPC and HTTP exporters configured")
	case h != nil:
		out.Cluster = h.GetHttpUri().GetCluster()
		out.Authority, out.HTTPPath = splitURL(h.GetHttpUri().GetUri())
		for _, o := range h.GetRequestHeadersToAdd() {
			out.Headers = append(out.Headers, [2]string{strings.ToLower(o.GetHeader().GetKey()), o.GetHeader().GetValue()})
		}
		out.Timeout = s.duration("http_service.http_uri.timeout", h.GetHttpUri().GetTimeout(), 0)
	case m.GetGrpcService() != nil:
		out.Cluster = s.at("grpc_service").envoyGRPC(m.GrpcService)
		out.Authority = m.GetGrpcService().GetEnvoyGrpc().GetAuthority()
		out.Timeout = s.duration("grpc_service.timeout", m.GetGrpcService().GetTimeout(), 0)
		for _, v := range m.GetGrpcService().GetInitialMetadata() {
			out.Headers = append(out.Headers, [2]string{strings.ToLower(v.GetKey()), v.GetValue()})
		}
	}
	if e := m.GetSampler(); e != nil {
		s.at("sampler").knownOnly(e, "envoy.extensions.tracers.opentelemetry.samplers.v3.AlwaysOnSamplerConfig")
		out.AlwaysOn = true
	}
	s.detectors(m.GetResourceDetectors(), out)
	return out
}

// detectors adds what resource detectors find; those that look at a host's files
// find nothing.
func (s scope) detectors(list []*core.TypedExtensionConfig, out *config.OTelTracer) {
	for i, e := range list {
		at := s.index("resource_detectors", i)
		t, ok := at.unwrap(e.GetName(), e.GetTypedConfig())
		switch {
		case !ok:
		case t.name == "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.EnvironmentResourceDetectorConfig":
			out.Environment = true
		case t.name == "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.StaticConfigResourceDetectorConfig":
			var m detectors.StaticConfigResourceDetectorConfig
			if at.decode(t, &m) {
				for _, k := range slices.Sorted(maps.Keys(m.GetAttributes())) {
					out.Attributes = append(out.Attributes, [2]string{k, m.Attributes[k]})
				}
			}
		}
	}
}

// knownOnly refuses an extension other than one.
func (s scope) knownOnly(e *core.TypedExtensionConfig, url string) {
	if t, ok := s.unwrap(e.GetName(), e.GetTypedConfig()); ok && t.name != url {
		s.missing(e.GetName(), t.name)
	}
}

func (s scope) customTags(field string, in []*tracing.CustomTag) []config.CustomTag {
	var out []config.CustomTag
	for i, c := range in {
		at := s.index(field, i)
		tag := config.CustomTag{Tag: c.GetTag()}
		switch x := c.GetType().(type) {
		case *tracing.CustomTag_Literal_:
			tag.Literal = x.Literal.GetValue()
		case *tracing.CustomTag_Environment_:
			tag.Env, tag.Default = x.Environment.GetName(), x.Environment.GetDefaultValue()
		case *tracing.CustomTag_RequestHeader:
			tag.Header, tag.Default = strings.ToLower(x.RequestHeader.GetName()), x.RequestHeader.GetDefaultValue()
		case *tracing.CustomTag_Metadata_:
			tag.Default = x.Metadata.GetDefaultValue()
			tag.MetadataKind = metadataKind(x.Metadata.GetKind())
			tag.MetadataKey = metadataKey(x.Metadata.GetMetadataKey())
		case *tracing.CustomTag_Value:
			tag.Value = at.at("value").format(x.Value)
		}
		out = append(out, tag)
	}
	return out
}

func metadataKind(k *metadatav3.MetadataKind) string {
	switch k.GetKind().(type) {
	case *metadatav3.MetadataKind_Route_:
		return "route"
	case *metadatav3.MetadataKind_Cluster_:
		return "cluster"
	case *metadatav3.MetadataKind_Host_:
		return "host"
	}
	return "request"
}

// metadataKey gives the name space and then the path.
func metadataKey(k *metadatav3.MetadataKey) []string {
	out := []string{k.GetKey()}
	for _, p := range k.GetPath() {
		out = append(out, p.GetKey())
	}
	return out
}
