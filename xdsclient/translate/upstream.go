//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	internalupstream "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/internal_upstream/v3"
	proxyprotocol "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbuffer "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	upstreamhttp "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"sluice/internal/config"
)

// optionsKey is where a cluster's HTTP options are.
const optionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// socket is an upstream transport socket, unwrapped.
type socket struct {
	tls           *config.UpstreamTLS
	proxyProtocol *config.ProxyHeader
	internal      bool
}

func (s scope) upstreamSockets(m *clusterv3.Cluster, out *config.Cluster) {
	if ts := m.GetTransportSocket(); ts != nil {
		k := s.at("transport_socket").upstreamSocket(ts, 0)
		out.TLS, out.ProxyProtocol, out.Internal = k.tls, k.proxyProtocol, k.internal
	}
	names := map[string]bool{}
	if n := len(m.GetTransportSocketMatches()); n > 0 {
		out.SocketMatches = make([]config.SocketMatch, 0, n)
	}
	for i, tm := range m.GetTransportSocketMatches() {
		at := s.index("transport_socket_matches", i)
		if names[tm.GetName()] {
			at.at("name").bad("duplicate transport socket match name %q", tm.GetName())
		}
		names[tm.GetName()] = true
		k := at.at("transport_socket").upstreamSocket(tm.GetTransportSocket(), 0)
		match := *s.r.alike.sockets.share(&config.SocketMatch{
			Name: tm.GetName(), Match: stringsIn(tm.GetMatch()), Internal: k.internal, ProxyProtocol: k.proxyProtocol,
		})
		match.TLS = k.tls // has the cluster's own SNI
		out.SocketMatches = append(out.SocketMatches, match)
	}
}

func (s scope) upstreamSocket(ts *core.TransportSocket, depth int) socket {
	t, ok := s.at("typed_config").unwrap(ts.GetName(), ts.GetTypedConfig())
	if !ok {
		return socket{}
	}
	decode, ok := s.r.UpstreamSockets[t.name]
	if !ok || depth > 4 {
		s.missing(ts.GetName(), t.name)
		return socket{}
	}
	return decode(s.at("typed_config"), t, depth)
}

func upstreamRaw(s scope, t typed, _ int) socket {
	s.decode(t, &rawbuffer.RawBuffer{})
	return socket{}
}

func upstreamProxyProtocol(s scope, t typed, depth int) socket {
	var m proxyprotocol.ProxyProtocolUpstreamTransport
	if !s.decode(t, &m) {
		return socket{}
	}
	out := s.at("transport_socket").upstreamSocket(m.GetTransportSocket(), depth+1)
	p := &config.ProxyHeader{Version: 1}
	if m.GetConfig().GetVersion() == core.ProxyProtocolConfig_V2 {
		p.Version = 2
	}
	p.PassAll, p.Pass = passTLVs(m.GetConfig().GetPassThroughTlvs())
	for _, t := range m.GetConfig().GetAddedTlvs() {
		p.Added = append(p.Added, config.TLV{Type: byte(t.GetType()), Value: t.GetValue()})
	}
	out.proxyProtocol = p
	return out
}

func upstreamInternal(s scope, t typed, depth int) socket {
	var m internalupstream.InternalUpstreamTransport
	if !s.decode(t, &m) {
		return socket{}
	}
	out := s.at("transport_socket").upstreamSocket(m.GetTransportSocket(), depth+1)
	out.internal = true
	return out
}

// protocolOptions reads the cluster's HTTP options, from the extension or from
// the older fields of the cluster.
func (s scope) protocolOptions(m *clusterv3.Cluster, out *config.Cluster) {
	s.commonUpstream(m.GetCommonHttpProtocolOptions(), out)
	out.HTTP.HTTP1 = s.at("http_protocol_options").http1(m.GetHttpProtocolOptions(), false)
	out.HTTP.HTTP2 = s.at("http2_protocol_options").http2(m.GetHttp2ProtocolOptions(), false)
	if m.GetHttp2ProtocolOptions() != nil {
		out.HTTP.Kind = config.UpstreamHTTP2
	}
	if m.GetProtocolSelection() == clusterv3.Cluster_USE_DOWNSTREAM_PROTOCOL {
		out.HTTP.Kind = config.UpstreamDownstream
	}
	if o := m.GetUpstreamHttpProtocolOptions(); o != nil {
		out.AutoSNI, out.AutoSANValid, out.OverrideSNI = o.GetAutoSni(), o.GetAutoSanValidation(), o.GetOverrideAutoSniHeader()
	}
	for _, name := range sortedKeys(m.GetTypedExtensionProtocolOptions()) {
		at := s.at("typed_extension_protocol_options[" + name + "]")
		t, ok := at.unwrap(name, m.TypedExtensionProtocolOptions[name])
		if !ok || at.ignored(t.name) {
			continue
		}
		if t.name != optionsKey {
			at.missing(name, t.name)
			continue
		}
		at.httpOptions(t, out)
	}
}

func (s scope) commonUpstream(c *core.HttpProtocolOptions, out *config.Cluster) {
	s = s.at("common_http_protocol_options")
	out.IdleTimeout = s.duration("idle_timeout", c.GetIdleTimeout(), seconds(3600))
	out.TCPIdleTimeout = s.duration("idle_timeout", c.GetIdleTimeout(), seconds(600))
	out.MaxConnDuration = s.duration("max_connection_duration", c.GetMaxConnectionDuration(), 0)
	out.MaxStream = s.duration("max_stream_duration", c.GetMaxStreamDuration(), 0)
	out.MaxHeaders = capped(u32(c.GetMaxHeadersCount(), 100))
	out.MaxHeadersKB = capped(u32(c.GetMaxResponseHeadersKb(), 60))
	if c.GetMaxRequestsPerConnection() != nil {
		out.MaxRequests = capped(c.MaxRequestsPerConnection.Value)
	}
}

func (s scope) httpOptions(t typed, out *config.Cluster) {
	var m upstreamhttp.HttpProtocolOptions
	if !s.decode(t, &m) {
		return
	}
	s.commonUpstream(m.GetCommonHttpProtocolOptions(), out)
	if o := m.GetUpstreamHttpProtocolOptions(); o != nil {
		out.AutoSNI, out.AutoSANValid, out.OverrideSNI = o.GetAutoSni(), o.GetAutoSanValidation(), o.GetOverrideAutoSniHeader()
	}
	h1, h2 := m.GetExplicitHttpConfig().GetHttpProtocolOptions(), m.GetExplicitHttpConfig().GetHttp2ProtocolOptions()
	switch x := m.GetUpstreamProtocolOptions().(type) {
	case *upstreamhttp.HttpProtocolOptions_ExplicitHttpConfig_:
		out.HTTP.Kind = config.UpstreamHTTP1
		if h2 != nil {
			out.HTTP.Kind = config.UpstreamHTTP2
		}
		s.unsupported(x.ExplicitHttpConfig.GetHttp3ProtocolOptions() != nil, "explicit_http_config.http3_protocol_options", "HTTP/3")
	case *upstreamhttp.HttpProtocolOptions_UseDownstreamProtocolConfig:
		out.HTTP.Kind = config.UpstreamDownstream
		h1, h2 = x.UseDownstreamProtocolConfig.GetHttpProtocolOptions(), x.UseDownstreamProtocolConfig.GetHttp2ProtocolOptions()
	case *upstreamhttp.HttpProtocolOptions_AutoConfig:
		out.HTTP.Kind = config.UpstreamAuto
		h1, h2 = x.AutoConfig.GetHttpProtocolOptions(), x.AutoConfig.GetHttp2ProtocolOptions()
		s.unsupported(x.AutoConfig.GetHttp3ProtocolOptions() != nil, "auto_config.http3_protocol_options", "HTTP/3")
	}
	out.HTTP.HTTP1 = s.at("http_protocol_options").http1(h1, false)
	out.HTTP.HTTP2 = s.at("http2_protocol_options").http2(h2, false)
	for i, f := range m.GetHttpFilters() {
		if url := shortURL(f.GetTypedConfig().GetTypeUrl()); url != "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec" {
			s.index("http_filters", i).missing(f.GetName(), url)
		}
	}
	s.unsupported(len(m.GetRequestMirrorPolicies()) > 0, "request_mirror_policies", "mirroring by cluster")
	s.unsupported(m.GetRetryPolicy() != nil, "retry_policy", "retries by cluster")
	s.unsupported(len(m.GetHashPolicy()) > 0, "hash_policy", "hash policies by cluster")
	if e := m.GetOutlierDetection().GetErrorMatcher(); e != nil && out.Outlier != nil {
		out.Outlier.ErrorStatus = s.at("outlier_detection.error_matcher").errorStatus(e)
	}
}
