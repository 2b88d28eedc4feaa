package pool

import "sluice/internal/telemetry"

// The counters and gauges of a cluster, as indexes into its group's values.
const (
	CxTotal = iota
	CxActive
	CxHTTP1
	CxHTTP2
	CxConnectFail
	CxConnectTimeout
	CxConnectAttemptsExceeded
	CxOverflow
	CxDestroy
	CxDestroyLocal
	CxDestroyRemote
	CxDestroyLocalActive
	CxDestroyRemoteActive
	CxDestroyActive
	CxIdleTimeout
	CxMaxRequests
	CxMaxDuration
	CxProtocolError
	CxNoneHealthy
	CxPoolOverflow
	CxCloseNotify
	CxRxBytes
	CxTxBytes
	RqTotal
	RqActive
	RqPendingTotal
	RqPendingActive
	RqPendingOverflow
	RqActiveOverflow
	RqPendingFailureEject
	RqCancelled
	RqTimeout
	RqPerTryTimeout
	RqPerTryIdleTimeout
	RqMaxDuration
	RqRxReset
	RqTxReset
	RqRetry
	RqRetrySuccess
	RqRetryOverflow
	RqRetryLimitExceeded
	RqRetryBackoffExponential
	RqRetryBackoffRatelimited
	RqCompleted
	RetryOrShadowAbandoned
	LBHealthyPanic
	OriginalDstHostInvalid
	InternalRedirectSucceeded
	InternalRedirectFailed
	MembershipChange
	Handshake
	FailVerifySAN
	FailVerifyError
	FailVerifyNoCert
	ConnectionError
	FailVerifyHash
	NoCertificate
	SessionReused
	FlowPaused
	FlowResumed
	FlowBackedUp
	FlowDrained
	numStats
)

// Stats names them in order.
func Stats() []telemetry.Stat {
	s := make([]telemetry.Stat, numStats)
	for i, name := range [numStats]string{
		"upstream_cx_total", "upstream_cx_active", "upstream_cx_http1_total", "upstream_cx_http2_total", "upstream_cx_connect_fail",
		"upstream_cx_connect_timeout", "upstream_cx_connect_attempts_exceeded", "upstream_cx_overflow", "upstream_cx_destroy",
		"upstream_cx_destroy_local", "upstream_cx_destroy_remote", "upstream_cx_destroy_local_with_active_rq",
		"upstream_cx_destroy_remote_with_active_rq", "upstream_cx_destroy_with_active_rq", "upstream_cx_idle_timeout", "upstream_cx_max_requests",
		"upstream_cx_max_duration_reached", "upstream_cx_protocol_error", "upstream_cx_none_healthy", "upstream_cx_pool_overflow",
		"upstream_cx_close_notify", "upstream_cx_rx_bytes_total", "upstream_cx_tx_bytes_total", "upstream_rq_total", "upstream_rq_active",
		"upstream_rq_pending_total", "upstream_rq_pending_active", "upstream_rq_pending_overflow", "upstream_rq_active_overflow", "upstream_rq_pending_failure_eject",
		"upstream_rq_cancelled", "upstream_rq_timeout", "upstream_rq_per_try_timeout", "upstream_rq_per_try_idle_timeout",
		"upstream_rq_max_duration_reached", "upstream_rq_rx_reset", "upstream_rq_tx_reset", "upstream_rq_retry",
		"upstream_rq_retry_success", "upstream_rq_retry_overflow", "upstream_rq_retry_limit_exceeded",
		"upstream_rq_retry_backoff_exponential", "upstream_rq_retry_backoff_ratelimited", "upstream_rq_completed",
		"retry_or_shadow_abandoned", "lb_healthy_panic", "original_dst_host_invalid", "upstream_internal_redirect_succeeded_total",
		"upstream_internal_redirect_failed_total", "membership_change",
		"ssl.handshake", "ssl.fail_verify_san", "ssl.fail_verify_error", "ssl.fail_verify_no_cert", "ssl.connection_error",
		"ssl.fail_verify_cert_hash", "ssl.no_certificate", "ssl.session_reused",
		"upstream_flow_control_paused_reading_total", "upstream_flow_control_resumed_reading_total",
		"upstream_flow_control_backed_up_total", "upstream_flow_control_drained_total",
	} {
		s[i] = telemetry.Stat{Name: name, Gauge: i == CxActive || i == RqActive || i == RqPendingActive}
	}
	return s
}
