package translate

import (
	"google.golang.org/protobuf/types/known/structpb"
	alpn "istio.io/api/envoy/config/filter/http/alpn/v2alpha1"
	stats "istio.io/api/envoy/extensions/stats"

	"sluice/internal/config"
)

// The filters here are Istio's own. Two of them have no generated Go type: istiod
// sends them as TypedStruct, which is the form that is read.

func (s scope) structOnly(t typed) (map[string]*structpb.Value, bool) {
	if t.fields == nil && len(t.value) > 0 {
		s.bad("%s: only the TypedStruct form is supported", t.name)
		return nil, false
	}
	return t.fields.GetFields(), true
}

// peerMetadata is istio.metadata_exchange for HTTP.
func peerMetadata(s scope, t typed) config.HTTPPolicy {
	f, ok := s.structOnly(t)
	if !ok {
		return nil
	}
	out := &config.PeerMetadata{
		DownstreamDiscovery: s.peerMethods("downstream_discovery", f["downstream_discovery"]),
		UpstreamDiscovery:   s.peerMethods("upstream_discovery", f["upstream_discovery"]),
	}
	var skipDown, skipUp bool
	out.DownstreamPropagation, skipDown = propagation(f["downstream_propagation"])
	out.UpstreamPropagation, skipUp = propagation(f["upstream_propagation"])
	out.SkipExternalClusters = skipDown || skipUp
	for _, v := range f["additional_labels"].GetListValue().GetValues() {
		out.AdditionalLabels = append(out.AdditionalLabels, v.GetStringValue())
	}
	return out
}

func (s scope) peerMethods(field string, v *structpb.Value) []config.PeerMethod {
	var out []config.PeerMethod
	for i, e := range v.GetListValue().GetValues() {
		m := e.GetStructValue().GetFields()
		switch {
		case m["istio_headers"] != nil:
			out = append(out, config.PeerByHeaders)
		case m["workload_discovery"] != nil:
			out = append(out, config.PeerByWorkloadDiscovery)
		case m["baggage"] != nil:
			out = append(out, config.PeerByBaggage)
		case m["upstream_filter_state"] != nil:
			// HBONE's way; without it the next one decides.
		default:
			s.index(field, i).bad("not supported yet: this discovery method")
		}
	}
	return out
}

func propagation(v *structpb.Value) (headers, skipExternal bool) {
	for _, e := range v.GetListValue().GetValues() {
		if h := e.GetStructValue().GetFields()["istio_headers"]; h != nil {
			headers = true
			skipExternal = skipExternal || h.GetStructValue().GetFields()["skip_external_clusters"].GetBoolValue()
		}
	}
	return headers, skipExternal
}

// metadataExchange is istio.metadata_exchange for TCP, on chains and clusters.
func metadataExchange(s scope, t typed) config.NetworkFilter {
	f, ok := s.structOnly(t)
	if !ok {
		return nil
	}
	out := &config.MetadataExchange{
		Protocol:        f["protocol"].GetStringValue(),
		EnableDiscovery: f["enable_discovery"].GetBoolValue() || f["enableDiscovery"].GetBoolValue(),
	}
	if out.Protocol == "" {
		s.at("protocol").bad("empty")
	}
	return out
}

func networkStats(s scope, t typed) config.NetworkFilter {
	if p := s.pluginConfig(t); p != nil {
		return &config.NetworkStats{Stats: p}
	}
	return nil
}

func httpStats(s scope, t typed) config.HTTPPolicy {
	if p := s.pluginConfig(t); p != nil {
		return p
	}
	return nil
}

// pluginConfig converts istio.stats' stats.PluginConfig.
func (s scope) pluginConfig(t typed) *config.IstioStats {
	var m stats.PluginConfig
	if !s.decode(t, &m) {
		return nil
	}
	out := &config.IstioStats{
		DisableHostFallback: m.GetDisableHostHeaderFallback(),
		ReportingInterval:   s.duration("tcp_reporting_duration", m.GetTcpReportingDuration(), seconds(5)),
	}
	if m.GetReporter() != stats.Reporter_UNSPECIFIED {
		out.Reporter = m.GetReporter().String()
	}
	s.unsupported(len(m.GetDefinitions()) > 0, "definitions", "metrics of one's own")
	for i, c := range m.GetMetrics() {
		s.index("metrics", i).unsupported(c.GetMatch() != "", "match", "overrides by expression")
		o := config.MetricOverride{Name: c.GetName(), Drop: c.GetDrop(), Remove: c.GetTagsToRemove()}
		for _, label := range sortedKeys(c.GetDimensions()) {
			o.Dimensions = append(o.Dimensions, config.Dimension{Label: label, Expression: c.Dimensions[label]})
		}
		out.Metrics = append(out.Metrics, o)
	}
	return out
}

func istioALPN(s scope, t typed) config.HTTPPolicy {
	var m alpn.FilterConfig
	if !s.decode(t, &m) {
		return nil
	}
	out := &config.IstioALPN{}
	for _, o := range m.GetAlpnOverride() {
		switch o.GetUpstreamProtocol() {
		case alpn.FilterConfig_HTTP10:
			out.HTTP10 = o.GetAlpnOverride()
		case alpn.FilterConfig_HTTP11:
			out.HTTP11 = o.GetAlpnOverride()
		case alpn.FilterConfig_HTTP2:
			out.HTTP2 = o.GetAlpnOverride()
		}
	}
	return out
}
