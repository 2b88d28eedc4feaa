//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuid "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"

	"sluice/internal/config"
)

func connectionManager(s scope, t typed) config.NetworkFilter {
	var m hcm.HttpConnectionManager
	if !s.decode(t, &m) {
		return nil
	}
	s.hcmUnsupported(&m)
	out := &config.HTTPConnectionManager{
		StatPrefix:           m.GetStatPrefix(),
		Codec:                config.Codec(m.GetCodecType()),
		AccessLogs:           s.accessLogs("access_log", m.GetAccessLog()),
		ServerName:           m.GetServerName(),
		ServerHeader:         config.ServerHeader(m.GetServerHeaderTransformation()),
		UseRemoteAddress:     boolean(m.GetUseRemoteAddress(), false),
		XFFTrustedHops:       capped(m.GetXffNumTrustedHops()),
		SkipXFFAppend:        m.GetSkipXffAppend(),
		InternalCIDRs:        s.prefixes("internal_address_config.cidr_ranges", m.GetInternalAddressConfig().GetCidrRanges()),
		InternalUnixSockets:  m.GetInternalAddressConfig().GetUnixSockets(),
		Via:                  m.GetVia(),
		GenerateRequestID:    boolean(m.GetGenerateRequestId(), true),
		PreserveRequestID:    m.GetPreserveExternalRequestId(),
		AlwaysSetRequestID:   m.GetAlwaysSetRequestIdInResponse(),
		ForwardClientCert:    config.ForwardClientCert(m.GetForwardClientCertDetails()),
		XFCC:                 xfcc(m.GetSetCurrentClientCertDetails()),
		Proxy100Continue:     m.GetProxy_100Continue(),
		NormalizePath:        boolean(m.GetNormalizePath(), false),
		MergeSlashes:         m.GetMergeSlashes(),
		EscapedSlashes:       escapedSlashes(m.GetPathWithEscapedSlashesAction()),
		StripPort:            s.stripPort(&m),
		StripTrailingDot:     m.GetStripTrailingHostDot(),
		AddUserAgent:         boolean(m.GetAddUserAgent(), false),
		RepresentIPv4Remote:  m.GetRepresentIpv4RemoteAddressAsIpv4MappedIpv6(),
		AppendXForwardedPort: m.GetAppendXForwardedPort(),
		AppendLocalOverload:  m.GetAppendLocalOverload(),
		ProxyStatus:          m.GetProxyStatusConfig() != nil,
		StreamErrorOnInvalid: boolean(m.GetStreamErrorOnInvalidHttpMessage(), false),
		SchemeOverwrite:      m.GetSchemeHeaderTransformation().GetSchemeToOverwrite(),
		MaxHeadersKB:         capped(u32(m.GetMaxRequestHeadersKb(), 60)),
		HTTP1SafeDuration:    m.GetHttp1SafeMaxConnectionDuration(),
	}
	if out.ServerName == "" {
		out.ServerName = "envoy"
	}
	s.hcmTimeouts(&m, out)
	s.commonHTTP(m.GetCommonHttpProtocolOptions(), out)
	out.HTTP1 = s.at("http_protocol_options").http1(m.GetHttpProtocolOptions(), out.StreamErrorOnInvalid)
	out.HTTP2 = s.at("http2_protocol_options").http2(m.GetHttp2ProtocolOptions(), out.StreamErrorOnInvalid)
	s.hcmLogging(&m, out)
	s.requestID(m.GetRequestIdExtension(), out)
	out.Tracing = s.at("tracing").tracing(m.GetTracing())
	out.Upgrades = s.upgrades(m.GetUpgradeConfigs())
	out.EarlyHeaderMutation = s.earlyMutations(m.GetEarlyHeaderMutationExtensions())
	s.localReplies(m.GetLocalReplyConfig(), out)
	s.httpFilters(m.GetHttpFilters(), out)
	s.routeSource(&m, out)
	return out
}

func (s scope) hcmUnsupported(m *hcm.HttpConnectionManager) {
	s.unsupported(m.GetCodecType() == hcm.HttpConnectionManager_HTTP3, "codec_type", "HTTP/3")
	s.unsupported(len(m.GetOriginalIpDetectionExtensions()) > 0, "original_ip_detection_extensions", "who the client is would be decided otherwise")
	s.unsupported(m.GetForwardClientCertMatcher() != nil, "forward_client_cert_matcher", "XFCC by matcher")
	s.unsupported(m.GetPathNormalizationOptions() != nil, "path_normalization_options", "use normalize_path")
	s.unsupported(m.GetForwardProtoConfig() != nil, "forward_proto_config", "trusting x-forwarded-proto by rules")
	if p := s.at("common_http_protocol_options"); m.GetCommonHttpProtocolOptions().GetMaxResponseHeadersKb() != nil {
		p.at("max_response_headers_kb").bad("only for upstream connections")
	}
}

func (s scope) hcmTimeouts(m *hcm.HttpConnectionManager, out *config.HTTPConnectionManager) {
	out.StreamIdleTimeout = s.duration("stream_idle_timeout", m.GetStreamIdleTimeout(), seconds(300))
	out.StreamFlushTimeout = s.duration("stream_flush_timeout", m.GetStreamFlushTimeout(), out.StreamIdleTimeout)
	out.RequestTimeout = s.duration("request_timeout", m.GetRequestTimeout(), 0)
	out.RequestHeadersTime = s.duration("request_headers_timeout", m.GetRequestHeadersTimeout(), 0)
	out.DrainTimeout = s.duration("drain_timeout", m.GetDrainTimeout(), seconds(5))
	out.DelayedCloseTimeout = s.duration("delayed_close_timeout", m.GetDelayedCloseTimeout(), seconds(1))
}

func (s scope) commonHTTP(m *core.HttpProtocolOptions, out *config.HTTPConnectionManager) {
	s = s.at("common_http_protocol_options")
	out.IdleTimeout = s.duration("idle_timeout", m.GetIdleTimeout(), seconds(3600))
	out.MaxConnDuration = s.duration("max_connection_duration", m.GetMaxConnectionDuration(), 0)
	out.MaxStreamDuration = s.duration("max_stream_duration", m.GetMaxStreamDuration(), 0)
	out.MaxRequestsPerConn = capped(u32(m.GetMaxRequestsPerConnection(), 0))
	out.MaxHeaders = capped(u32(m.GetMaxHeadersCount(), 100))
	out.Underscores = config.Underscores(m.GetHeadersWithUnderscoresAction())
}

func xfcc(m *hcm.HttpConnectionManager_SetCurrentClientCertDetails) config.XFCCFields {
	return config.XFCCFields{
		Subject: boolean(m.GetSubject(), false), Cert: m.GetCert(), Chain: m.GetChain(), DNS: m.GetDns(), URI: m.GetUri(),
	}
}

func escapedSlashes(a hcm.HttpConnectionManager_PathWithEscapedSlashesAction) config.EscapedSlashes {
	switch a {
	case hcm.HttpConnectionManager_REJECT_REQUEST:
		return config.SlashesReject
	case hcm.HttpConnectionManager_UNESCAPE_AND_REDIRECT:
		return config.SlashesUnescapeRedirect
	case hcm.HttpConnectionManager_UNESCAPE_AND_FORWARD:
		return config.SlashesUnescapeForward
	}
	return config.SlashesKeep
}

func (s scope) stripPort(m *hcm.HttpConnectionManager) config.StripPort {
	anyPort := m.GetStripAnyHostPort()
	switch {
	case anyPort && m.GetStripMatchingHostPort():
		s.bad("cannot enable both strip_matching_host_port and strip_any_host_port")
	case anyPort:
		return config.StripPortAny
	case m.GetStripMatchingHostPort():
		return config.StripPortMatching
	}
	return config.StripPortNone
}

func (s scope) hcmLogging(m *hcm.HttpConnectionManager, out *config.HTTPConnectionManager) {
	o := m.GetAccessLogOptions()
	out.AccessLogOnNew = m.GetFlushAccessLogOnNewRequest() || o.GetFlushAccessLogOnNewRequest()
	out.AccessLogOnTunnel = o.GetFlushLogOnTunnelSuccessfullyEstablished()
	out.AccessLogInterval = s.duration("access_log_flush_interval", m.GetAccessLogFlushInterval(), 0)
	if o.GetAccessLogFlushInterval() != nil {
		out.AccessLogInterval = s.duration("access_log_options.access_log_flush_interval", o.AccessLogFlushInterval, 0)
	}
}

func (s scope) requestID(m *hcm.RequestIDExtension, out *config.HTTPConnectionManager) {
	out.PackTraceReason, out.UseRequestIDSampling = true, true
	if m.GetTypedConfig() == nil {
		return
	}
	var u uuid.UuidRequestIdConfig
	if !s.at("request_id_extension.typed_config").unpack("request id", m.TypedConfig, &u) {
		return
	}
	out.PackTraceReason = boolean(u.GetPackTraceReason(), true)
	out.UseRequestIDSampling = boolean(u.GetUseRequestIdForTraceSampling(), true)
}

func (s scope) upgrades(in []*hcm.HttpConnectionManager_UpgradeConfig) []config.Upgrade {
	var out []config.Upgrade
	seen := map[string]bool{}
	for i, u := range in {
		at := s.index("upgrade_configs", i)
		at.unsupported(len(u.GetFilters()) > 0, "filters", "filters of an upgrade")
		name := strings.ToLower(u.GetUpgradeType())
		if seen[name] {
			at.bad("multiple upgrades of type '%s'", u.GetUpgradeType())
		}
		seen[name] = true
		out = append(out, config.Upgrade{Type: name, Enabled: boolean(u.GetEnabled(), true)})
	}
	return out
}

func (s scope) localReplies(m *hcm.LocalReplyConfig, out *config.HTTPConnectionManager) {
	s = s.at("local_reply_config")
	out.LocalReplyFormat = s.at("body_format").bodyFormat(m.GetBodyFormat())
	for i, r := range m.GetMappers() {
		at := s.index("mappers", i)
		filter := at.at("filter").logFilter(r.GetFilter(), 0)
		lr := config.LocalReply{
			Filter:  &filter,
			Status:  capped(u32(r.GetStatusCode(), 0)),
			Format:  at.at("body_format_override").bodyFormat(r.GetBodyFormatOverride()),
			Headers: at.mutations("headers_to_add", "", r.GetHeadersToAdd(), nil),
		}
		if r.GetBody() != nil {
			if b, ok := at.at("body").data(r.Body); ok {
				lr.Body = &config.Format{Items: []config.FormatItem{{Text: string(b)}}}
			}
		}
		out.LocalReplies = append(out.LocalReplies, lr)
	}
}

func (s scope) bodyFormat(m *core.SubstitutionFormatString) *config.BodyFormat {
	if m == nil {
		return nil
	}
	out := &config.BodyFormat{ContentType: m.GetContentType()}
	out.Text, out.JSON = s.substitution(m)
	return out
}

// routeSource says where the route table comes from.
func (s scope) routeSource(m *hcm.HttpConnectionManager, out *config.HTTPConnectionManager) {
	switch x := m.GetRouteSpecifier().(type) {
	case *hcm.HttpConnectionManager_Rds:
		at := s.at("rds")
		out.RouteName = x.Rds.GetRouteConfigName()
		out.RDSInitialTimeout = at.adsSource("config_source", x.Rds.GetConfigSource())
		if out.RouteName == "" {
			at.at("route_config_name").bad("empty")
		}
	case *hcm.HttpConnectionManager_RouteConfig:
		at := s.at("route_config")
		out.Routes = at.routes(x.RouteConfig, true)
		out.Routes.Hash = hashMessage(x.RouteConfig)
	default:
		s.bad("not supported yet: the route source must be rds or route_config")
	}
}
