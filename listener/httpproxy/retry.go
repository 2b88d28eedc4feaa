package httpproxy

import (
	"strconv"
	"strings"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/route"
	"sluice/upstream"
	"sluice/upstream/balance"
	"sluice/upstream/pool"
)

// retryPlan is what is left to try for one request.
type retryPlan struct {
	r        *request
	policy   *config.RetryPolicy
	on       config.RetryOn
	left     int
	statuses []int  // asked for by header
	names    string // x-envoy-retriable-header-names
	next     time.Duration
	top      time.Duration
	active   bool // there are conditions
	dropped  bool // the content is gone, or a response has begun
	counted  bool // one is under way, in the breaker
	hosts    [8]*upstream.Host
	nhosts   int
	tried    uint64 // priorities
	excluded uint64 // of them, those to stay away from for now
	skip     func(*balance.Host) bool
}

func (p *retryPlan) clear() {
	skip := p.skip
	*p = retryPlan{skip: skip}
}

// planRetries reads the policy of the route and what an internal client asks
// for; the headers that ask are removed.
func planRetries(r *request) retryPlan {
	h := &r.head
	p := retryPlan{r: r, policy: r.route.Retry, left: 1, skip: r.plan.skip}
	if p.policy != nil {
		p.on, p.left = p.policy.On, p.policy.NumRetries
	}
	p.on |= retryOn(h.Get(httpmsg.XEnvoyRetryOn)) | retryOn(h.Get(httpmsg.XEnvoyRetryGRPCOn))
	if v := h.Get(httpmsg.XEnvoyMaxRetries); v != nil && p.on != 0 {
		if n, err := strconv.Atoi(string(v)); err == nil && n >= 0 {
			p.left = n
		}
	}
	if v := h.Get(httpmsg.XEnvoyRetriableStatusCodes); v != nil {
		for s := range strings.SplitSeq(string(v), ",") {
			if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
				p.statuses = append(p.statuses, n)
			}
		}
	}
	p.names = string(h.Get(httpmsg.XEnvoyRetriableHeaderNames))
	for _, id := range [...]httpmsg.ID{httpmsg.XEnvoyRetryOn, httpmsg.XEnvoyRetryGRPCOn, httpmsg.XEnvoyMaxRetries,
		httpmsg.XEnvoyRetriableStatusCodes, httpmsg.XEnvoyRetriableHeaderNames, httpmsg.XEnvoyHedgeOnPerTryTimeout} {
		if h.Has(id) {
			h.Del(id)
		}
	}
	p.active = p.on != 0
	if p.policy != nil && len(p.policy.RetriableRqHeaders) > 0 {
		p.active = p.active && anyHeader(p.policy.RetriableRqHeaders, r)
	}
	p.backoff()
	return p
}

func anyHeader(list []config.HeaderMatch, r *request) bool {
	for i := range list {
		if r.match.HeaderMatches(&list[i]) {
			return true
		}
	}
	return false
}

func (p *retryPlan) backoff() {
	p.next, p.top = 25*time.Millisecond, 0
	if p.policy != nil {
		if p.policy.BackoffBase > 0 {
			p.next = p.policy.BackoffBase
		}
		p.top = p.policy.BackoffMax
	}
	if p.top <= 0 {
		p.top = 10 * p.next
	}
}

// retryOn parses a retry_on list; unknown words are passed over.
func retryOn(v []byte) (on config.RetryOn) {
	if len(v) == 0 {
		return 0
	}
	for w := range strings.SplitSeq(string(v), ",") {
		switch strings.TrimSpace(w) {
		case "5xx":
			on |= config.Retry5xx
		case "gateway-error":
			on |= config.RetryGatewayError
		case "reset":
			on |= config.RetryReset
		case "reset-before-request":
			on |= config.RetryResetBeforeRequest
		case "connect-failure":
			on |= config.RetryConnectFailure
		case "envoy-ratelimited":
			on |= config.RetryEnvoyRatelimited
		case "retriable-4xx":
			on |= config.RetryRetriable4xx
		case "refused-stream":
			on |= config.RetryRefusedStream
		case "retriable-status-codes":
			on |= config.RetryRetriableStatusCodes
		case "retriable-headers":
			on |= config.RetryRetriableHeaders
		case "cancelled":
			on |= config.RetryGRPCCancelled
		case "deadline-exceeded":
			on |= config.RetryGRPCDeadlineExceeded
		case "internal":
			on |= config.RetryGRPCInternal
		case "resource-exhausted":
			on |= config.RetryGRPCResourceExhausted
		case "unavailable":
			on |= config.RetryGRPCUnavailable
		}
	}
	return on
}

// armed reports whether content must be kept for another try.
func (p *retryPlan) armed() bool { return p.active && !p.dropped }

// abandon gives retrying up because the content outgrew its buffer.
func (p *retryPlan) abandon() {
	if p.armed() {
		p.dropped = true
		p.r.cluster.Stats[pool.RetryOrShadowAbandoned]++
	}
}

// spent ends retrying without a count.
func (p *retryPlan) spent() { p.dropped = true }

// settled takes a retry that is over out of the breaker.
func (p *retryPlan) settled() {
	if p.counted {
		p.counted = false
		p.r.cluster.Breakers(p.r.priority()).Retries.Dec()
	}
}

func (p *retryPlan) tryIdle() time.Duration {
	if p.r == nil {
		return 0
	}
	return p.r.limits.tryIdle
}

func (r *request) priority() config.Priority {
	if a := r.action(); a != nil {
		return a.Priority
	}
	return config.PriorityDefault
}

// steer keeps a retry away from hosts and priorities that were tried.
func (p *retryPlan) steer(q *upstream.Query) {
	if p.policy == nil || p.nhosts == 0 {
		return
	}
	if p.policy.PreviousHosts {
		if p.skip == nil {
			r := p.r
			p.skip = func(h *balance.Host) bool { return r.plan.was(h) }
		}
		q.Skip, q.Tries = p.skip, max(1, p.policy.HostSelectionMax)
	}
	if n := p.policy.PreviousPriorities; n > 0 {
		if (p.r.rec.Attempts-1)%n == 0 {
			p.excluded = p.tried
		}
		q.Priorities = p.excluded
	}
}

func (p *retryPlan) was(h *balance.Host) bool {
	for _, x := range p.hosts[:p.nhosts] {
		if &x.Host == h {
			return true
		}
	}
	return false
}

func (p *retryPlan) used(h *upstream.Host) {
	if p.nhosts < len(p.hosts) {
		p.hosts[p.nhosts] = h
		p.nhosts++
	}
	if h.Priority < 64 {
		p.tried |= 1 << h.Priority
	}
}

// retryHead decides by a response's head; when another try is made, the
// response is dropped.
func (r *request) retryHead(h *httpmsg.Head) bool {
	p := &r.plan
	if !p.active || !p.wantsHead(h) {
		if p.counted && r.rec.Attempts > 1 {
			r.cluster.Stats[pool.RqRetrySuccess]++
			r.count("retry_success")
		}
		return false
	}
	if !p.allowed() {
		return false
	}
	r.cluster.CountAs("retry.upstream_rq_", h.Status)
	wait, limited := p.asked(h)
	r.up.cancelQuietly()
	r.later(wait, limited)
	return true
}

// cancelQuietly drops a response that came.
func (t *attempt) cancelQuietly() {
	if t.stream != nil {
		t.stream.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetLocal})
	}
	t.release()
}

func (p *retryPlan) wantsHead(h *httpmsg.Head) bool {
	on, s := p.on, h.Status
	if h.Has(httpmsg.XEnvoyRatelimited) {
		return on&config.RetryEnvoyRatelimited != 0
	}
	switch {
	case on&config.Retry5xx != 0 && s >= 500 && s < 600,
		on&config.RetryGatewayError != 0 && s >= 502 && s <= 504,
		on&config.RetryRetriable4xx != 0 && s == 409:
		return true
	case on&config.RetryRetriableStatusCodes != 0 && p.listed(s):
		return true
	case on&config.RetryRetriableHeaders != 0 && p.headerListed(h):
		return true
	}
	return p.wantsGRPC(h)
}

func (p *retryPlan) listed(status int) bool {
	for _, c := range p.statuses {
		if c == status {
			return true
		}
	}
	if p.policy != nil {
		for _, c := range p.policy.RetriableStatus {
			if c == status {
				return true
			}
		}
	}
	return false
}

func (p *retryPlan) headerListed(h *httpmsg.Head) bool {
	if p.policy != nil {
		for i := range p.policy.RetriableHeaders {
			if route.HeaderMatches(&p.policy.RetriableHeaders[i], h, &p.r.local.joined) {
				return true
			}
		}
	}
	for n := range strings.SplitSeq(p.names, ",") {
		if n = strings.ToLower(strings.TrimSpace(n)); n != "" {
			if _, ok := h.Value(n); ok {
				return true
			}
		}
	}
	return false
}

func (p *retryPlan) wantsGRPC(h *httpmsg.Head) bool {
	const any = config.RetryGRPCCancelled | config.RetryGRPCDeadlineExceeded | config.RetryGRPCInternal |
		config.RetryGRPCResourceExhausted | config.RetryGRPCUnavailable
	if p.on&any == 0 || !h.Has(httpmsg.GRPCStatus) {
		return false
	}
	switch string(h.Get(httpmsg.GRPCStatus)) {
	case "1":
		return p.on&config.RetryGRPCCancelled != 0
	case "4":
		return p.on&config.RetryGRPCDeadlineExceeded != 0
	case "8":
		return p.on&config.RetryGRPCResourceExhausted != 0
	case "13":
		return p.on&config.RetryGRPCInternal != 0
	case "14":
		return p.on&config.RetryGRPCUnavailable != 0
	}
	return false
}

// retryReset decides after a try that gave no response.
func (r *request) retryReset(c cause) bool {
	p := &r.plan
	if !p.active || !p.wantsReset(c, r.up.sent) || !p.allowed() {
		return false
	}
	r.later(0, false)
	return true
}

func (p *retryPlan) wantsReset(c cause, sent bool) bool {
	on := p.on
	connect := c == causeConnect || c == causeLocalConnect || c == causeConnectTimeout
	switch {
	case c == causeOverflow:
		return false
	case on&(config.Retry5xx|config.RetryGatewayError|config.RetryReset) != 0:
		return true
	case on&config.RetryResetBeforeRequest != 0 && !sent:
		return true
	case on&config.RetryConnectFailure != 0 && connect:
		return true
	}
	return on&config.RetryRefusedStream != 0 && c == causeRefused
}

// allowed counts a retry, or says why there is none in the record's flags.
func (p *retryPlan) allowed() bool {
	r := p.r
	if p.dropped || r.lost > 0 {
		return false
	}
	p.settled()
	st := r.cluster.Stats
	if p.left <= 0 {
		st[pool.RqRetryLimitExceeded]++
		r.count("retry_limit_exceeded")
		addFlag(r, telemetry.URX)
		return false
	}
	p.left--
	b := r.cluster.Breakers(r.priority())
	if !b.AllowRetry() {
		st[pool.RqRetryOverflow]++
		r.count("retry_overflow")
		addFlag(r, telemetry.UO)
		return false
	}
	b.Retries.Inc()
	p.counted = true
	return true
}

// asked reads how long a response wants us to wait.
func (p *retryPlan) asked(h *httpmsg.Head) (time.Duration, bool) {
	if p.policy == nil || p.policy.RateLimitedBackoff == nil {
		return 0, false
	}
	b := p.policy.RateLimitedBackoff
	limit := b.Max
	if limit <= 0 {
		limit = 5 * time.Minute
	}
	for _, x := range b.Headers {
		v, ok := h.Value(x.Name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			continue
		}
		if x.Unix {
			n -= p.r.local.worker.Wall().Unix()
		}
		d := time.Duration(n) * time.Second
		if n < 0 || d > limit {
			continue
		}
		// A little jitter, so that the clients don't come back at once.
		return d + time.Duration(p.r.local.rnd.Uint64()%uint64(d/2+time.Millisecond)), true
	}
	return 0, false
}

// later makes the next try after the back-off.
func (r *request) later(wait time.Duration, limited bool) {
	p := &r.plan
	st := r.cluster.Stats
	if limited {
		st[pool.RqRetryBackoffRatelimited]++
	} else {
		st[pool.RqRetryBackoffExponential]++
		wait = time.Duration(r.local.rnd.Uint64() % uint64(p.next))
		p.next = min(2*p.next, p.top)
	}
	r.waiting = true
	r.local.worker.Start(&r.backoff, wait)
}

func (r *request) onBackoff() {
	r.waiting = false
	if !r.over {
		r.cluster.Stats[pool.RqRetry]++
		r.count("retry")
		r.try()
	}
}
