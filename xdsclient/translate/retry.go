package translate

import (
	"strings"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	omitmeta "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/omit_host_metadata/v3"
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"

	"sluice/internal/config"
)

// retryConditions gives the flags of a retry_on list. Envoy ignores words it
// doesn't know.
func retryConditions(list string) config.RetryOn {
	var out config.RetryOn
	for _, w := range strings.Split(list, ",") {
		out |= retryCondition(strings.TrimSpace(w))
	}
	return out
}

func retryCondition(w string) config.RetryOn {
	switch w {
	case "5xx":
		return config.Retry5xx
	case "gateway-error":
		return config.RetryGatewayError
	case "reset":
		return config.RetryReset
	case "reset-before-request":
		return config.RetryResetBeforeRequest
	case "connect-failure":
		return config.RetryConnectFailure
	case "envoy-ratelimited":
		return config.RetryEnvoyRatelimited
	case "retriable-4xx":
		return config.RetryRetriable4xx
	case "refused-stream":
		return config.RetryRefusedStream
	case "retriable-status-codes":
		return config.RetryRetriableStatusCodes
	case "retriable-headers":
		return config.RetryRetriableHeaders
	case "http3-post-connect-failure":
		return config.RetryHTTP3PostConnect
	case "cancelled":
		return config.RetryGRPCCancelled
	case "deadline-exceeded":
		return config.RetryGRPCDeadlineExceeded
	case "internal":
		return config.RetryGRPCInternal
	case "resource-exhausted":
		return config.RetryGRPCResourceExhausted
	case "unavailable":
		return config.RetryGRPCUnavailable
	}
	return 0
}

func (s scope) retry(m *route.RetryPolicy, hedge *route.HedgePolicy) *config.RetryPolicy {
	if m == nil && !hedge.GetHedgeOnPerTryTimeout() {
		return nil
	}
	out := &config.RetryPolicy{
		On:                  retryConditions(m.GetRetryOn()),
		NumRetries:          capped(u32(m.GetNumRetries(), 1)),
		PerTryTimeout:       s.duration("per_try_timeout", m.GetPerTryTimeout(), 0),
		PerTryIdleTimeout:   s.duration("per_try_idle_timeout", m.GetPerTryIdleTimeout(), 0),
		RetriableStatus:     ints(m.GetRetriableStatusCodes()),
		RetriableHeaders:    s.headers("retriable_headers", m.GetRetriableHeaders()),
		RetriableRqHeaders:  s.headers("retriable_request_headers", m.GetRetriableRequestHeaders()),
		HostSelectionMax:    int(min(max(m.GetHostSelectionRetryMaxAttempts(), 0), 1<<31-1)),
		BackoffBase:         25 * time.Millisecond,
		HedgeOnPerTry:       hedge.GetHedgeOnPerTryTimeout(),
		RefreshClusterOnTry: m.GetRefreshClusterOnRetry(),
	}
	s.unsupported(len(m.GetRetryOptionsPredicates()) > 0, "retry_options_predicates", "retry options predicates")
	if out.HostSelectionMax == 0 {
		out.HostSelectionMax = 1
	}
	s.backoff(m, out)
	s.hostPredicates(m.GetRetryHostPredicate(), out)
	if p := m.GetRetryPriority(); p != nil {
		var c previous.PreviousPrioritiesConfig
		if s.at("retry_priority").unpack(p.GetName(), p.GetTypedConfig(), &c) {
			out.PreviousPriorities = int(c.GetUpdateFrequency())
		}
	}
	return out
}

func (s scope) backoff(m *route.RetryPolicy, out *config.RetryPolicy) {
	if b := m.GetRetryBackOff(); b != nil {
		at := s.at("retry_back_off")
		out.BackoffBase = max(at.duration("base_interval", b.GetBaseInterval(), 0), time.Millisecond)
		out.BackoffMax = at.duration("max_interval", b.GetMaxInterval(), 0)
		if b.GetMaxInterval() != nil && out.BackoffMax < out.BackoffBase {
			at.bad("retry_policy.max_interval must greater than or equal to the base_interval")
		}
	}
	if out.BackoffMax == 0 {
		out.BackoffMax = 10 * out.BackoffBase
	}
	r := m.GetRateLimitedRetryBackOff()
	if r == nil {
		return
	}
	out.RateLimitedBackoff = &config.RateLimitedBackoff{
		Max: s.duration("rate_limited_retry_back_off.max_interval", r.GetMaxInterval(), seconds(300)),
	}
	for _, h := range r.GetResetHeaders() {
		out.RateLimitedBackoff.Headers = append(out.RateLimitedBackoff.Headers, config.ResetHeader{
			Name: strings.ToLower(h.GetName()), Unix: h.GetFormat() == route.RetryPolicy_UNIX_TIMESTAMP,
		})
	}
}

func (s scope) hostPredicates(in []*route.RetryPolicy_RetryHostPredicate, out *config.RetryPolicy) {
	for i, p := range in {
		at := s.index("retry_host_predicate", i)
		t, ok := at.unwrap(p.GetName(), p.GetTypedConfig())
		if !ok {
			continue
		}
		switch t.name {
		case "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate":
			out.PreviousHosts = true
		case "envoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicate":
			out.OmitCanary = true
		case "envoy.extensions.retry.host.omit_host_metadata.v3.OmitHostMetadataConfig":
			var m omitmeta.OmitHostMetadataConfig
			if at.decode(t, &m) {
				out.OmitHostMetadata = lbMetadata(m.GetMetadataMatch())
			}
		default:
			at.missing(p.GetName(), t.name)
		}
	}
}
