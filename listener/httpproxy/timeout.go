package httpproxy

import (
	"strconv"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/upstream"
	"sluice/upstream/pool"
)

// limits are the timeouts of a request, settled when its route is known.
type limits struct {
	global   time.Duration // of the whole, from the end of the request; 0: none
	perTry   time.Duration
	tryIdle  time.Duration
	upstream time.Duration // the cluster's max_stream_duration
	idle     time.Duration
	grpc     bool // the timeout is told in grpc-timeout too
}

// startTimers starts what runs from the head on: stream idle and max duration.
func (r *request) startTimers() {
	m, w := r.proxy.config, r.local.worker
	r.limits.idle = m.StreamIdleTimeout
	total := m.MaxStreamDuration
	if a := r.action(); a != nil {
		if a.IdleTimeout != nil {
			r.limits.idle = *a.IdleTimeout
		}
		if s := a.MaxStream; s != nil {
			total = r.streamLimit(s, total)
		}
	}
	if r.limits.idle > 0 {
		w.Start(&r.idle, r.limits.idle)
	}
	if total > 0 {
		w.Start(&r.total, total)
	}
	if m.AccessLogInterval > 0 {
		w.Start(&r.meanwhile, m.AccessLogInterval)
	}
}

// onLogInterval logs a request that goes on.
func (r *request) onLogInterval() {
	r.log("DownstreamPeriodic")
	r.local.worker.Start(&r.meanwhile, r.proxy.config.AccessLogInterval)
}

// streamLimit is max_stream_duration of a route: for gRPC what the client asked
// for, bounded.
func (r *request) streamLimit(s *config.MaxStreamDuration, total time.Duration) time.Duration {
	if s.Max != nil {
		total = *s.Max
	}
	if s.GRPCHeaderMax == nil || !r.grpc {
		return total
	}
	d, ok := grpcTimeout(r.head.Get(httpmsg.GRPCTimeout))
	if !ok {
		return total
	}
	if limit := *s.GRPCHeaderMax; limit > 0 && (d == 0 || d > limit) {
		d = limit
	}
	if d == 0 {
		return total
	}
	if s.GRPCHeaderOffset > 0 && s.GRPCHeaderOffset < d {
		d -= s.GRPCHeaderOffset
	}
	d = max(d, time.Millisecond)
	b := strconv.AppendInt(r.numbers[:0], min(ms(d), 99999999), 10)
	r.head.Set(httpmsg.GRPCTimeout, append(b, 'm'))
	return d
}

func (r *request) action() *config.RouteAction {
	if r.route == nil {
		return nil
	}
	return r.route.Config.Action
}

// planTimeouts settles the router's timeouts: the route's, the client's where
// it may ask, and gRPC's.
func (r *request) planTimeouts(a *config.RouteAction) {
	l, h := &r.limits, &r.head
	if a.MaxStream == nil {
		l.global = a.Timeout
		if r.grpc && a.MaxGRPCTimeout != nil {
			l.global, l.grpc = grpcGlobal(a, h.Get(httpmsg.GRPCTimeout)), true
		}
	}
	if p := r.route.Retry; p != nil {
		l.perTry, l.tryIdle = p.PerTryTimeout, p.PerTryIdleTimeout
	}
	respected := false
	if r.proxy.config.Router.RespectExpectedRq {
		respected = setMillis(&l.global, h.Get(httpmsg.XEnvoyExpectedRqTimeoutMs))
	}
	if !respected {
		setMillis(&l.global, h.Get(httpmsg.XEnvoyUpstreamRqTimeoutMs))
	}
	setMillis(&l.perTry, h.Get(httpmsg.XEnvoyUpstreamRqPerTryTimeoutMs))
	h.Del(httpmsg.XEnvoyUpstreamRqTimeoutMs)
	h.Del(httpmsg.XEnvoyUpstreamRqPerTryTimeoutMs)
	if h.Has(httpmsg.XEnvoyUpstreamRqTimeoutAltResponse) {
		r.altTimeout = true
		h.Del(httpmsg.XEnvoyUpstreamRqTimeoutAltResponse)
	}
	if l.perTry >= l.global && l.global != 0 {
		l.perTry = 0
	}
	l.upstream = r.cluster.Config.MaxStream
	if respected {
		return
	}
	r.expected()
}

// expected tells the next hop how long we will wait.
func (r *request) expected() {
	l := &r.limits
	d := l.perTry
	if d == 0 {
		d = l.global
	}
	if d <= 0 {
		return
	}
	if l.global > 0 && r.timeout.Active() {
		left := l.global - time.Duration(r.local.worker.Now()-r.rec.RequestEnd)
		d = min(d, max(left, time.Millisecond))
	}
	if !r.proxy.config.Router.SuppressEnvoyHeaders {
		r.setNumber(&r.head, httpmsg.XEnvoyExpectedRqTimeoutMs, ms(d))
	}
	if l.grpc {
		b := strconv.AppendInt(r.numbers[:0], min(ms(d), 99999999), 10)
		r.head.Set(httpmsg.GRPCTimeout, append(b, 'm'))
	}
}

// setAttemptHeaders brings the head up to date for one try.
func (r *request) setAttemptHeaders() {
	if r.rec.Attempts == 1 {
		return
	}
	if r.route.Host.Config.IncludeAttemptCount {
		r.setNumber(&r.head, httpmsg.XEnvoyAttemptCount, int64(r.rec.Attempts))
	}
	if !r.proxy.config.Router.RespectExpectedRq {
		r.expected()
	}
}

func grpcGlobal(a *config.RouteAction, header []byte) time.Duration {
	d, _ := grpcTimeout(header)
	if a.GRPCTimeoutOffset > 0 && a.GRPCTimeoutOffset < d {
		d -= a.GRPCTimeoutOffset
	}
	if limit := *a.MaxGRPCTimeout; limit > 0 && (d == 0 || d > limit) {
		d = limit
	}
	return d
}

const century = 100 * 365 * 24 * time.Hour

// grpcTimeout parses grpc-timeout; a malformed one is no timeout. Values too
// large for a Duration saturate.
func grpcTimeout(v []byte) (time.Duration, bool) {
	if len(v) < 2 || len(v) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(v[:len(v)-1]), 10, 32)
	if err != nil {
		return 0, false
	}
	unit := time.Duration(0)
	switch v[len(v)-1] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	if n > uint64(century/unit) {
		return 0, true // as good as none
	}
	d := time.Duration(n) * unit
	if r := d % time.Millisecond; r != 0 { // Envoy counts milliseconds, rounded up
		d += time.Millisecond - r
	}
	return d, true
}

// setMillis takes a number of milliseconds; anything else changes nothing.
func setMillis(d *time.Duration, v []byte) bool {
	if len(v) == 0 {
		return false
	}
	n, err := strconv.ParseUint(string(v), 10, 40)
	if err != nil {
		return false
	}
	*d = time.Duration(n) * time.Millisecond
	return true
}

// requestComplete is the moment from which the response is waited for.
func (r *request) requestComplete() {
	w := r.local.worker
	w.Stop(&r.whole)
	if r.gathering {
		r.goOn()
	}
	r.mirrored()
	if r.over || r.cluster == nil || r.answered && r.up.stream == nil {
		return
	}
	if r.limits.global > 0 && !r.timeout.Active() {
		w.Start(&r.timeout, r.limits.global)
	}
	r.startTryTimer()
}

func (r *request) startTryTimer() {
	switch {
	case r.over || r.headOut || r.waiting:
	case r.limits.perTry > 0:
		r.local.worker.Start(&r.perTry, r.limits.perTry)
	case r.limits.tryIdle > 0:
		r.local.worker.Start(&r.perTry, r.limits.tryIdle)
	}
}

// awaitTry restarts the per-try idle timeout after bytes came.
func (r *request) awaitTry() {
	if r.limits.tryIdle > 0 && !r.over && r.up.stream != nil {
		r.local.worker.Start(&r.perTry, r.limits.tryIdle)
	}
}

func (r *request) stopTimers() {
	w := r.local.worker
	w.Stop(&r.idle)
	w.Stop(&r.timeout)
	w.Stop(&r.perTry)
	w.Stop(&r.total)
	w.Stop(&r.whole)
	w.Stop(&r.backoff)
	w.Stop(&r.headTime)
	w.Stop(&r.meanwhile)
}

// touch notes activity for the stream idle timeout.
func (r *request) touch() {
	if r.limits.idle > 0 && r.idle.Active() {
		r.local.worker.Start(&r.idle, r.limits.idle)
	}
}

func (r *request) onIdle() {
	r.group.Values[rqIdleTimeout]++
	addFlag(r, telemetry.SI)
	status := 504
	if !r.downEnd {
		status = 408
	}
	r.reply(filter.Reply{Status: status, Body: "stream timeout", Details: "stream_idle_timeout", GRPC: -1})
}

// onSlowHead ends a request on HTTP/2 whose head doesn't end.
func (r *request) onSlowHead() {
	r.group.Values[rqHeaderTimeout]++
	r.reply(filter.Reply{Status: 408, Body: "request header timeout", Details: "request_header_timeout", GRPC: -1})
}

func (r *request) onRequestTimeout() {
	r.group.Values[rqTimeout]++
	r.reply(filter.Reply{Status: 408, Body: "request timeout", Details: "request_overall_timeout", GRPC: -1})
}

func (r *request) onMaxDuration() {
	if r.limits.upstream > 0 && r.up.stream != nil {
		r.cluster.Stats[pool.RqMaxDuration]++
		if !r.headOut && r.retryReset(causeLocalReset) {
			return
		}
		addFlag(r, telemetry.UMSDR)
		r.reply(filter.Reply{Status: 504, Body: "upstream max stream duration reached",
			Details: "upstream_max_stream_duration_reached", GRPC: -1})
		return
	}
	r.group.Values[rqMaxDuration]++
	r.reply(filter.Reply{Status: 504, Body: "downstream duration timeout", Details: "max_duration_timeout", GRPC: 4})
}

// onTimeout is the route's timeout: it is never retried.
func (r *request) onTimeout() {
	flying := r.up.active || r.up.stream != nil
	if flying {
		r.cluster.Stats[pool.RqTimeout]++
		r.count("timeout")
		r.up.host.Report(upstream.LocalTimeout)
	}
	if flying && !r.headOut && !r.up.begun {
		r.charge(504)
	}
	r.timedOut("response_timeout")
}

// timedOut answers 504, or what the client asked for instead.
func (r *request) timedOut(details string) {
	addFlag(r, telemetry.UT)
	r.waiting = false
	if r.up.host != nil && r.rec.UpstreamHost == "" {
		r.rec.UpstreamHost = r.up.host.Name
	}
	status, body := 504, "upstream request timeout"
	if r.altTimeout {
		status, body = 204, ""
	}
	r.reply(filter.Reply{Status: status, Body: body, Details: details, GRPC: -1})
}

// onPerTry is the per-try timeout, or the per-try idle timeout.
func (t *attempt) onPerTry() {
	r := t.r
	idle := r.limits.perTry == 0 || t.begun
	if t.host != nil {
		t.host.Report(upstream.LocalTimeout)
	}
	details := "upstream_per_try_timeout"
	if idle {
		r.cluster.Stats[pool.RqPerTryIdleTimeout]++
		details = "upstream_per_try_idle_timeout"
	} else {
		r.cluster.Stats[pool.RqPerTryTimeout]++
	}
	t.cancel(httpmsg.ResetLocal)
	if !r.headOut && r.retryReset(causePerTry) {
		return
	}
	if !r.headOut {
		r.charge(504)
	}
	r.timedOut(details)
}
