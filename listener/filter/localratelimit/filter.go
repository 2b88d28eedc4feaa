// Package localratelimit is envoy.filters.http.local_ratelimit: how many
// requests may pass, by token buckets in this process; what is over is answered
// with 429. Requests that have a description of their own are counted by it.
//
// The buckets belong to the filter: routes that override the policy have their
// own, and a push keeps those of every chain and route table it leaves alone.
// Workers share a bucket, which is one atomic number each request moves on; a
// lock is taken only by requests whose descriptor leaves a value open.
package localratelimit

import (
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/downstream"
	"sluice/listener/filter"
	"sluice/listener/filter/tokenbucket"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct {
	policy   *config.LocalRateLimit
	limiter  *limiter
	response *route.Mutations
	request  *route.Mutations
	groups   []*telemetry.Group // by worker, made by it
}

// New makes the filter, its buckets full.
func New(p *config.LocalRateLimit, workers int) *Filter {
	return &Filter{policy: p, limiter: newLimiter(p), response: route.CompileMutations(p.ResponseHeaders),
		request: route.CompileMutations(p.RequestHeaders), groups: make([]*telemetry.Group, workers)}
}

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	g := f.group(x)
	if !x.Chance(f.policy.Enabled) {
		return filter.Continue
	}
	g.Inc("enabled")
	v := f.take(x, s)
	if v.bucket != nil && f.policy.XRateLimit {
		s.Any = v.bucket
	}
	if v.outcome == allowed {
		g.Inc("ok")
		return filter.Continue
	}
	g.Inc("rate_limited")
	if v.outcome == shadowed {
		g.Inc("shadow_mode")
		return filter.Continue
	}
	if !x.Chance(f.policy.Enforced) {
		f.request.Apply(x.Request, x.Eval, &x.Edits)
		return filter.Continue
	}
	g.Inc("enforced")
	f.refuse(x, v.bucket)
	return filter.Stop
}

// take asks the buckets for the request.
func (f *Filter) take(x *filter.Exchange, s *filter.Slot) verdict {
	l := f.limiter
	if f.policy.PerConnection {
		l = ofConnection(x.Conn, f.policy)
	}
	var room [8]*limit
	fit := room[:0]
	if len(l.exact)+len(l.open) > 0 {
		fit = f.fit(l, fit, x, s)
	}
	return l.take(x.Worker.Now(), fit)
}

// connectionKey names the limiter in a connection's filter state. Envoy has one
// a connection too, whatever policies its requests come under: the first makes it.
const connectionKey = "per_connection_local_rate_limiter"

func ofConnection(c *downstream.Connection, p *config.LocalRateLimit) *limiter {
	n := c.Note()
	if l, ok := n.FilterState[connectionKey].(*limiter); ok {
		return l
	}
	if n.FilterState == nil {
		n.FilterState = make(map[string]any)
	}
	l := newLimiter(p)
	n.FilterState[connectionKey] = l
	return l
}

// refuse answers in the upstream's place.
func (f *Filter) refuse(x *filter.Exchange, b *tokenbucket.Bucket) {
	p, grpc := f.policy, -1
	if p.ResourceExhausted {
		grpc = 8
	}
	x.Reply(filter.Reply{Status: p.Status, Body: "local_rate_limited", Details: "local_rate_limited", Flag: telemetry.RL, GRPC: grpc,
		Headers: func(h *httpmsg.Head) {
			f.response.Apply(h, x.Eval, &x.Edits)
			if _, own := h.Value("retry-after"); p.RetryAfter && p.Status == 429 && !own {
				addNumber(x, h, "retry-after", max(1, seconds(b, x)))
			}
		}})
}

// Encode implements filter.HTTP: it tells of the bucket that decided.
func (f *Filter) Encode(x *filter.Exchange, s *filter.Slot) {
	b, ok := s.Any.(*tokenbucket.Bucket)
	if !ok {
		return
	}
	addNumber(x, x.Response, "x-ratelimit-limit", uint64(b.Max()))
	addNumber(x, x.Response, "x-ratelimit-remaining", uint64(b.Left(x.Worker.Now())))
	addNumber(x, x.Response, "x-ratelimit-reset", seconds(b, x))
}

// seconds is how long it takes until there is a token, rounded up.
func seconds(b *tokenbucket.Bucket, x *filter.Exchange) uint64 {
	return uint64(b.Wait(x.Worker.Now())+1e9-1) / 1e9
}

func addNumber(x *filter.Exchange, h *httpmsg.Head, name string, n uint64) {
	x.Scratch = strconv.AppendUint(x.Scratch[:0], n, 10)
	h.AddName(name, x.Scratch)
}

// group gives the worker's counters of the stat_prefix.
func (f *Filter) group(x *filter.Exchange) *telemetry.Group {
	i := x.Worker.Index()
	if g := f.groups[i]; g != nil {
		return g
	}
	g := x.Set.Named(telemetry.HTTPLocalRateLimit, f.policy.StatPrefix)
	for _, name := range [...]string{"enabled", "ok", "rate_limited", "enforced", "shadow_mode"} {
		g.Touch(name)
	}
	f.groups[i] = g
	return g
}
