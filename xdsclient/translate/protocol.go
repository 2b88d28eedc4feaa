//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	preservecase "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"

	"sluice/internal/config"
)

// http1 converts HTTP/1 options; onInvalid is what holds unless they say
// otherwise.
func (s scope) http1(m *core.Http1ProtocolOptions, onInvalid bool) config.HTTP1Options {
	out := config.HTTP1Options{
		AcceptHTTP10:         m.GetAcceptHttp_10(),
		DefaultHost:          m.GetDefaultHostForHttp_10(),
		AllowAbsoluteURL:     boolean(m.GetAllowAbsoluteUrl(), true),
		EnableTrailers:       m.GetEnableTrailers(),
		AllowChunkedLength:   m.GetAllowChunkedLength(),
		SendFullyQualified:   m.GetSendFullyQualifiedUrl(),
		StreamErrorOnInvalid: boolean(m.GetOverrideStreamErrorOnInvalidHttpMessage(), onInvalid),
		AllowCustomMethods:   m.GetAllowCustomMethods(),
		IgnoreHTTP11Upgrade:  s.stringMatches("ignore_http_11_upgrade", m.GetIgnoreHttp_11Upgrade()),
	}
	switch x := m.GetHeaderKeyFormat().GetHeaderFormat().(type) {
	case *core.Http1ProtocolOptions_HeaderKeyFormat_ProperCaseWords_:
		out.ProperCase = true
	case *core.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter:
		var p preservecase.PreserveCaseFormatterConfig
		at := s.at("header_key_format.stateful_formatter")
		out.PreserveCase = at.unpack(x.StatefulFormatter.GetName(), x.StatefulFormatter.GetTypedConfig(), &p)
		out.ForwardReason = p.GetForwardReasonPhrase()
		out.PreserveElseProper = p.GetFormatterTypeOnEnvoyHeaders() == preservecase.PreserveCaseFormatterConfig_PROPER_CASE
	}
	return out
}

// http2 converts HTTP/2 options with Envoy 1.40's defaults.
func (s scope) http2(m *core.Http2ProtocolOptions, onInvalid bool) config.HTTP2Options {
	k := m.GetConnectionKeepalive()
	at := s.at("connection_keepalive")
	return config.HTTP2Options{
		HeaderTableSize:        u32(m.GetHpackTableSize(), 4096),
		MaxConcurrentStreams:   u32(m.GetMaxConcurrentStreams(), 1024),
		InitialStreamWindow:    u32(m.GetInitialStreamWindowSize(), 16<<20),
		InitialConnWindow:      u32(m.GetInitialConnectionWindowSize(), 24<<20),
		MaxOutboundFrames:      u32(m.GetMaxOutboundFrames(), 10000),
		MaxOutboundControl:     u32(m.GetMaxOutboundControlFrames(), 1000),
		MaxConsecutiveEmpty:    u32(m.GetMaxConsecutiveInboundFramesWithEmptyPayload(), 1),
		MaxPriorityPerStream:   u32(m.GetMaxInboundPriorityFramesPerStream(), 100),
		MaxWindowUpdatePerData: u32(m.GetMaxInboundWindowUpdateFramesPerDataFrameSent(), 10),
		AllowConnect:           m.GetAllowConnect(),
		AllowMetadata:          m.GetAllowMetadata(),
		StreamErrorOnInvalid:   boolean(m.GetOverrideStreamErrorOnInvalidHttpMessage(), m.GetStreamErrorOnInvalidHttpMessaging() || onInvalid),
		KeepaliveInterval:      at.duration("interval", k.GetInterval(), 0),
		KeepaliveTimeout:       at.duration("timeout", k.GetTimeout(), 0),
		KeepaliveIdle:          at.duration("connection_idle_interval", k.GetConnectionIdleInterval(), 0),
	}
}

// defaultFetch is initial_fetch_timeout when absent.
const defaultFetch = 15 * time.Second

// adsSource checks that a resource comes by ADS, the only stream there is, and
// gives its initial fetch timeout (0: wait for ever).
func (s scope) adsSource(field string, c *core.ConfigSource) time.Duration {
	at := s.at(field)
	if c.GetAds() == nil && c.GetSelf() == nil {
		at.bad("not supported yet: a source other than ads")
	}
	return at.duration("initial_fetch_timeout", c.GetInitialFetchTimeout(), defaultFetch)
}
