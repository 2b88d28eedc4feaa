package httpproxy

import "sluice/internal/telemetry"

// The counters of a connection manager, as indexes into its group's values.
const (
	cxTotal = iota
	cxActive
	cxHTTP1Total
	cxHTTP2Total
	cxHTTP1Active
	cxHTTP2Active
	cxSSLTotal
	cxDestroy
	cxDestroyRemote
	cxDestroyLocal
	cxDestroyRemoteActive
	cxIdleTimeout
	cxMaxDuration
	cxMaxRequests
	cxProtocolError
	cxDrainClose
	cxDelayedClose
	cxUpgradesTotal
	cxUpgradesActive
	rqTotal
	rqActive
	rqHTTP1
	rqHTTP2
	rqCompleted
	rqIdleTimeout
	rqTimeout
	rqHeaderTimeout
	rqMaxDuration
	rqRxReset
	rqTxReset
	rqTooLarge
	rqNonRelative
	rqFailedPath
	rqRedirectedPath
	rqWSOnNonWS
	noRoute
	noCluster
	rqDirect
	rqRedirect
	rqReset
	rqRetrySkipped
	routerRqTotal
	rxBytes
	txBytes
	redirectNoRoute
	redirectTooMany
	redirectScheme
	redirectBadLocation
	redirectPredicate
	rq1xx
	rq2xx
	rq3xx
	rq4xx
	rq5xx
	tracingRandom
	tracingForced
	tracingClient
	tracingNot
	numStats
)

func httpStats() []telemetry.Stat {
	s := make([]telemetry.Stat, numStats)
	for i, name := range [numStats]string{
		"downstream_cx_total", "downstream_cx_active", "downstream_cx_http1_total", "downstream_cx_http2_total",
		"downstream_cx_http1_active", "downstream_cx_http2_active", "downstream_cx_ssl_total", "downstream_cx_destroy",
		"downstream_cx_destroy_remote", "downstream_cx_destroy_local", "downstream_cx_destroy_remote_active_rq",
		"downstream_cx_idle_timeout", "downstream_cx_max_duration_reached", "downstream_cx_max_requests_reached",
		"downstream_cx_protocol_error", "downstream_cx_drain_close", "downstream_cx_delayed_close_timeout", "downstream_cx_upgrades_total", "downstream_cx_upgrades_active",
		"downstream_rq_total", "downstream_rq_active", "downstream_rq_http1_total", "downstream_rq_http2_total",
		"downstream_rq_completed", "downstream_rq_idle_timeout", "downstream_rq_timeout", "downstream_rq_header_timeout",
		"downstream_rq_max_duration_reached", "downstream_rq_rx_reset", "downstream_rq_tx_reset", "downstream_rq_too_large",
		"downstream_rq_non_relative_path", "downstream_rq_failed_path_normalization", "downstream_rq_redirected_with_normalized_path",
		"downstream_rq_ws_on_non_ws_route", "no_route", "no_cluster", "rq_direct_response", "rq_redirect", "rq_reset_after_downstream_response_started",
		"rq_retry_skipped_request_not_complete", "rq_total", "downstream_cx_rx_bytes_total", "downstream_cx_tx_bytes_total",
		"passthrough_internal_redirect_no_route", "passthrough_internal_redirect_too_many_redirects",
		"passthrough_internal_redirect_unsafe_scheme", "passthrough_internal_redirect_bad_location",
		"passthrough_internal_redirect_predicate", "downstream_rq_1xx", "downstream_rq_2xx", "downstream_rq_3xx", "downstream_rq_4xx",
		"downstream_rq_5xx",
		"tracing.random_sampling", "tracing.service_forced", "tracing.client_enabled", "tracing.not_traceable",
	} {
		s[i] = telemetry.Stat{Name: name, Gauge: i == cxActive || i == rqActive || i == cxHTTP1Active || i == cxHTTP2Active || i == cxUpgradesActive}
	}
	return s
}
