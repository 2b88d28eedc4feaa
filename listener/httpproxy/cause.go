package httpproxy

import (
	"strings"

	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/upstream/pool"
)

// cause is why a try failed without a response.
type cause uint8

const (
	causeConnect cause = iota
	causeLocalConnect
	causeConnectTimeout
	causeTerminated
	causeRemoteReset
	causeRefused
	causeProtocol
	causeLocalReset
	causeOverflow
	causeConnectError // a CONNECT request was refused by RST_STREAM
	causePerTry
)

// describe gives Envoy's words and flag for each cause.
func (c cause) describe() (words string, flag telemetry.Flag) {
	switch c {
	case causeConnect:
		return "remote connection failure", telemetry.UF
	case causeLocalConnect:
		return "local connection failure", telemetry.UF
	case causeConnectTimeout:
		return "connection timeout", telemetry.UF
	case causeTerminated:
		return "connection termination", telemetry.UC
	case causeRemoteReset:
		return "remote reset", telemetry.UR
	case causeRefused:
		return "remote refused stream reset", telemetry.UR
	case causeProtocol:
		return "protocol error", telemetry.UPE
	case causeOverflow:
		return "overflow", telemetry.UO
	case causeConnectError:
		return "remote error with CONNECT request", telemetry.UR
	}
	return "local reset", telemetry.LR
}

func failureCause(k pool.Kind) cause {
	switch k {
	case pool.Overflow:
		return causeOverflow
	case pool.ConnectTimeout:
		return causeConnectTimeout
	case pool.LocalConnectFailure:
		return causeLocalConnect
	}
	return causeConnect
}

func resetCause(r httpmsg.ResetReason) cause {
	switch r.Kind {
	case httpmsg.ResetRemote:
		return causeRemoteReset
	case httpmsg.ResetRefused:
		return causeRefused
	case httpmsg.ResetConnTerminated:
		return causeTerminated
	case httpmsg.ResetProtocolError, httpmsg.ResetHeaderLimit, httpmsg.ResetFlood:
		return causeProtocol
	case httpmsg.ResetConnectError:
		return causeConnectError
	case httpmsg.ResetTimeout:
		return causeConnectTimeout
	case httpmsg.ResetOverflow:
		return causeOverflow
	}
	return causeLocalReset
}

// failed is the end of a try without a whole response: it is made again, or the
// client is told.
func (r *request) failed(c cause, transport string) {
	w := r.local.worker
	w.Stop(&r.perTry)
	if !r.headOut && r.retryReset(c) {
		return
	}
	words := r.blame(c, transport)
	if r.headOut {
		r.group.Values[rqReset]++
		r.cut(httpmsg.ResetLocal)
		return
	}
	r.upstreamReply(c, words)
}

// blame notes in the record why an exchange ended before its time, and gives the
// cause in Envoy's words.
func (r *request) blame(c cause, transport string) (words string) {
	words, flag := c.describe()
	addFlag(r, flag)
	details := "upstream_reset_before_response_started{"
	if r.headOut || r.up.begun {
		details = "upstream_reset_after_response_started{"
	}
	details += words
	if transport != "" {
		details += "|" + transport
	}
	r.rec.Details = strings.ReplaceAll(details+"}", " ", "_")
	return words
}

// upstreamReply tells the client that no response came.
func (r *request) upstreamReply(c cause, words string) {
	status := 503
	if c == causeProtocol {
		status = 502
	}
	body := "upstream connect error or disconnect/reset before headers. "
	if r.rec.Attempts > 1 {
		body += "retried and the latest "
	}
	a := filter.Reply{Status: status, Body: body + "reset reason: " + words, Details: r.rec.Details, GRPC: -1}
	if c == causeOverflow && !r.proxy.config.Router.SuppressEnvoyHeaders {
		a.Headers = func(h *httpmsg.Head) { h.SetString(httpmsg.XEnvoyOverloaded, "true") }
	}
	r.charge(status)
	r.reply(a)
}
