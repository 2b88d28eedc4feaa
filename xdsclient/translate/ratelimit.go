//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"sluice/internal/config"
)

// localRateLimit is the filter's own config; it may come without a bucket.
func localRateLimit(s scope, t typed) config.HTTPPolicy {
	var m ratelimit.LocalRateLimit
	if !s.decode(t, &m) {
		return nil
	}
	s.unsupported(m.GetLocalClusterRateLimit() != nil, "local_cluster_rate_limit", "limits shared with a local cluster")
	out := &config.LocalRateLimit{
		StatPrefix:        m.GetStatPrefix(),
		Status:            int(m.GetStatus().GetCode()),
		ResourceExhausted: m.GetRateLimitedAsResourceExhausted(),
		Enabled:           fraction(m.GetFilterEnabled().GetDefaultValue()),
		Enforced:          fraction(m.GetFilterEnforced().GetDefaultValue()),
		ResponseHeaders:   s.mutations("response_headers_to_add", "", m.GetResponseHeadersToAdd(), nil),
		RequestHeaders:    s.mutations("request_headers_to_add_when_not_enforced", "", m.GetRequestHeadersToAddWhenNotEnforced(), nil),
		PerConnection:     m.GetLocalRateLimitPerDownstreamConnection(),
		XRateLimit:        m.GetEnableXRatelimitHeaders() == descriptor.XRateLimitHeadersRFCVersion_DRAFT_VERSION_03,
		RetryAfter:        m.GetEnableRetryAfterHeader(),
		Descriptors:       s.rateDescriptors(m.GetDescriptors()),
		MaxDynamic:        capped(u32(m.GetMaxDynamicDescriptors(), 20)),
		SpareBucket:       !boolean(m.GetAlwaysConsumeDefaultTokenBucket(), true),
		RateLimits:        s.ownRateLimits(m.GetRateLimits()),
		Stage:             m.GetStage(),
		VirtualHost:       config.VirtualHostLimits(m.GetVhRateLimits()),
	}
	if out.Status < 400 {
		out.Status = 429 // Envoy: anything below 400 becomes 429
	}
	if m.GetTokenBucket() != nil {
		b := s.tokenBucket(m.GetTokenBucket())
		out.Bucket = &b
	}
	return out
}

// routeLocalRateLimit is the same message on a route, where a bucket is required.
func routeLocalRateLimit(s scope, t typed) config.HTTPPolicy {
	p, _ := localRateLimit(s, t).(*config.LocalRateLimit)
	if p == nil {
		return nil
	}
	if p.Bucket == nil {
		s.at("token_bucket").bad("local rate limit token bucket must be set for per filter configs")
	}
	return p
}

// tokenBucket converts the member token_bucket of a message.
func (s scope) tokenBucket(b *typev3.TokenBucket) config.TokenBucket {
	s = s.at("token_bucket")
	out := config.TokenBucket{Max: b.GetMaxTokens(), Fill: u32(b.GetTokensPerFill(), 1), Interval: s.duration("fill_interval", b.GetFillInterval(), 0)}
	if out.Interval < 50*time.Millisecond {
		s.at("fill_interval").bad("local rate limit token bucket fill timer must be >= 50ms")
	}
	return out
}

func (s scope) rateDescriptors(in []*descriptor.LocalRateLimitDescriptor) []config.RateDescriptor {
	var out []config.RateDescriptor
	for i, d := range in {
		at := s.index("descriptors", i)
		n := config.RateDescriptor{Bucket: at.tokenBucket(d.GetTokenBucket()), Shadow: d.GetShadowMode()}
		for _, e := range d.GetEntries() {
			n.Entries = append(n.Entries, config.RateEntry{Key: e.GetKey(), Value: e.GetValue()})
		}
		same := func(o config.RateDescriptor) bool { return slices.Equal(o.Entries, n.Entries) }
		if slices.ContainsFunc(out, same) {
			at.bad("duplicate descriptor in the local rate descriptor")
		}
		out = append(out, n)
	}
	return out
}

// ownRateLimits converts the rate_limits of the filter itself, which may say
// less than those of a route.
func (s scope) ownRateLimits(in []*route.RateLimit) []config.RateLimit {
	for i, m := range in {
		at := s.index("rate_limits", i)
		if m.GetStage() != nil || m.GetDisableKey() != "" {
			at.bad("'stage' field and 'disable_key' field are not supported")
		}
		if m.GetLimit() != nil {
			at.at("limit").bad("'limit' field is not supported")
		}
	}
	return s.rateLimits(in)
}

// rateLimits converts rate_limits. Only the local filter uses them, for which
// limit means nothing and an entry with disable_key is none.
func (s scope) rateLimits(in []*route.RateLimit) []config.RateLimit {
	var out []config.RateLimit
	for i, m := range in {
		at := s.index("rate_limits", i)
		at.unsupported(m.GetHitsAddend() != nil, "hits_addend", "requests that count more than once")
		at.unsupported(m.GetApplyOnStreamDone(), "apply_on_stream_done", "counting at the end of a request")
		at.unsupported(m.GetXRatelimitOption() != route.RateLimit_UNSPECIFIED, "x_ratelimit_option", "x-ratelimit headers by rate limit")
		l := config.RateLimit{Stage: u32(m.GetStage(), 0)}
		for j, a := range m.GetActions() {
			l.Actions = append(l.Actions, at.index("actions", j).rateAction(a))
		}
		if m.GetDisableKey() == "" {
			out = append(out, l)
		}
	}
	return out
}

func (s scope) rateAction(a *route.RateLimit_Action) config.RateAction {
	switch x := a.GetActionSpecifier().(type) {
	case *route.RateLimit_Action_GenericKey_:
		return config.RateAction{Source: config.RateGenericKey, Key: cmp.Or(x.GenericKey.GetDescriptorKey(), "generic_key"), Value: x.GenericKey.GetDescriptorValue()}
	case *route.RateLimit_Action_RequestHeaders_:
		m := x.RequestHeaders
		return config.RateAction{Source: config.RateRequestHeader, Key: m.GetDescriptorKey(), Name: strings.ToLower(m.GetHeaderName()), SkipAbsent: m.GetSkipIfAbsent()}
	case *route.RateLimit_Action_QueryParameters_:
		m := x.QueryParameters
		return config.RateAction{Source: config.RateQueryParam, Key: m.GetDescriptorKey(), Name: m.GetQueryParameterName(), SkipAbsent: m.GetSkipIfAbsent()}
	case *route.RateLimit_Action_RemoteAddress_:
		return config.RateAction{Source: config.RateRemoteAddress, Key: "remote_address"}
	case *route.RateLimit_Action_MaskedRemoteAddress_:
		m := x.MaskedRemoteAddress
		return config.RateAction{Source: config.RateMaskedRemote, Key: "masked_remote_address",
			Masked: capped(u32(m.GetV4PrefixMaskLen(), 32)), Masked6: capped(u32(m.GetV6PrefixMaskLen(), 128))}
	case *route.RateLimit_Action_HeaderValueMatch_:
		m := x.HeaderValueMatch
		return config.RateAction{Source: config.RateHeaderMatch, Key: cmp.Or(m.GetDescriptorKey(), "header_match"), Value: m.GetDescriptorValue(),
			Headers: s.at("header_value_match").headers("headers", m.GetHeaders()), Unless: !boolean(m.GetExpectMatch(), true)}
	case *route.RateLimit_Action_QueryParameterValueMatch_:
		m := x.QueryParameterValueMatch
		return config.RateAction{Source: config.RateQueryMatch, Key: cmp.Or(m.GetDescriptorKey(), "query_match"), Value: m.GetDescriptorValue(),
			Query: s.at("query_parameter_value_match").queries(m.GetQueryParameters()), Unless: !boolean(m.GetExpectMatch(), true)}
	}
	s.bad("not supported yet: the rate limit action %s", actionName(a))
	return config.RateAction{}
}

// actionName is the member of the action that is set, as the message calls it.
func actionName(a *route.RateLimit_Action) string {
	m := a.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("action_specifier")); f != nil {
		return string(f.Name())
	}
	return "that is none"
}
