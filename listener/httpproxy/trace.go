package httpproxy

import (
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
)

// The reasons to trace a request, as the 15th character of an x-request-id.
const (
	untraced     = '4'
	bySampling   = '9'
	byForce      = 'a'
	byClient     = 'b'
	reasonAt     = 14
	lengthOfUUID = 36
)

// traceTo prepares a connection manager for its tracing section.
func (p *Proxy) traceTo(t *config.Tracing) {
	if t == nil || p.server.opts.Tracer == nil {
		return
	}
	z, ok := t.Provider.(*config.ZipkinTracer)
	if !ok {
		return
	}
	if p.tracer = p.server.opts.Tracer(t); p.tracer != nil {
		p.zipkin = z
	}
}

// trace decides whether the request is traced, says so in its x-request-id, and
// begins its span.
func (r *request) trace() {
	t := r.proxy.config.Tracing
	if t == nil {
		return
	}
	reason := r.traceReason(t)
	r.rec.Sampled = reason != untraced
	v := r.group.Values
	switch reason {
	case bySampling:
		v[tracingRandom]++
	case byForce:
		v[tracingForced]++
	case byClient:
		v[tracingClient]++
	default:
		v[tracingNot]++
	}
	if r.proxy.zipkin != nil {
		r.beginSpan(r.proxy.zipkin)
	}
}

// traceReason follows Envoy: what an x-request-id says counts; where it says
// nothing, a client may ask, then an internal client may force, then chance has
// its say, by the identifier's first digits, which are the same at every hop.
// Overall sampling can only take away.
func (r *request) traceReason(t *config.Tracing) byte {
	if !r.proxy.config.UseRequestIDSampling {
		return bySampling
	}
	id := r.head.Get(httpmsg.XRequestID)
	if len(id) < 8 {
		return untraced
	}
	n, err := strconv.ParseUint(string(id[:8]), 16, 32)
	if err != nil {
		return untraced
	}
	client, random, overall := r.sampling(t)
	share := uint32(n%10_000) * 100
	reason := reasonOf(id)
	if reason == untraced {
		switch {
		case r.head.Has(httpmsg.XClientTraceID) && uint32(r.local.rnd.Uint64()%1_000_000) < client.PerMillion:
			reason = byClient
		case r.head.Has(httpmsg.XEnvoyForceTrace):
			reason = byForce
		case share < random.PerMillion:
			reason = bySampling
		default:
			return untraced
		}
		r.packReason(reason)
	}
	if share >= overall.PerMillion {
		reason = untraced
		r.packReason(reason)
	}
	return reason
}

// sampling gives the shares for this request: the route's where it has any.
func (r *request) sampling(t *config.Tracing) (client, random, overall config.Percent) {
	client, random, overall = t.Client, t.Random, t.Overall
	if r.route == nil || r.route.Config.Tracing == nil {
		return client, random, overall
	}
	own := r.route.Config.Tracing
	for _, o := range [...]struct{ to, from *config.Percent }{{&client, own.Client}, {&random, own.Random}, {&overall, own.Overall}} {
		if o.from != nil {
			*o.to = *o.from
		}
	}
	return client, random, overall
}

func reasonOf(id []byte) byte {
	if len(id) != lengthOfUUID {
		return untraced
	}
	switch c := id[reasonAt]; c {
	case bySampling, byForce, byClient:
		return c
	}
	return untraced
}

// packReason writes the reason into x-request-id, where it is configured to be.
func (r *request) packReason(reason byte) {
	id := r.head.Get(httpmsg.XRequestID)
	if !r.proxy.config.PackTraceReason || len(id) != lengthOfUUID {
		return
	}
	l := r.local
	l.bufC = append(l.bufC[:0], id...)
	l.bufC[reasonAt] = reason
	r.head.Set(httpmsg.XRequestID, l.bufC)
}

// beginSpan makes the request's span: a child of the one that its headers tell
// of, which also says whether it is reported, or the root of a new trace.
// Headers that can't be read leave it without one.
func (r *request) beginSpan(z *config.ZipkinTracer) {
	c, ok := readB3(&r.head)
	if !ok {
		return
	}
	if !c.found && z.W3C {
		c = readTraceparent(&r.head, c)
	}
	s := &r.span
	s.Server = z.Split || r.proxy.listener == nil || r.proxy.listener.Direction != config.Outbound
	switch rnd := r.local.rnd; {
	case !c.found:
		s.Low = rnd.Uint64() | 1 // 0 is no identifier
		s.ID = s.Low
		if z.TraceID128 {
			s.High = rnd.Uint64() | 1
		}
	case s.Server && z.SharedSpanContext:
		s.High, s.Low, s.ID, s.Parent, s.Shared = c.high, c.low, c.span, c.parent, true
	default:
		s.High, s.Low, s.ID, s.Parent = c.high, c.low, rnd.Uint64()|1, c.span
	}
	s.Sampled = r.rec.Sampled
	if c.decided {
		s.Sampled = c.sampled
	}
	if r.route != nil {
		s.Decorated = r.route.Config.Decorator
	}
	text := telemetry.AppendTraceID(make([]byte, 0, 48), s)
	n := len(text)
	all := string(telemetry.AppendSpanID(text, s.ID))
	r.rec.TraceID, r.rec.SpanID = all[:n], all[n:]
}

// propagate tells the upstream of the span.
func (r *request) propagate() {
	s := &r.span
	if s.ID == 0 {
		return
	}
	h, sampled := &r.head, "0"
	if s.Sampled {
		sampled = "1"
	}
	h.SetString(httpmsg.XB3TraceID, r.rec.TraceID)
	h.SetString(httpmsg.XB3SpanID, r.rec.SpanID)
	if s.Parent != 0 {
		r.local.bufC = telemetry.AppendSpanID(r.local.bufC[:0], s.Parent)
		h.Set(httpmsg.XB3ParentSpanID, r.local.bufC)
	}
	h.SetString(httpmsg.XB3Sampled, sampled)
	if !r.proxy.zipkin.W3C {
		return
	}
	b := append(r.local.bufC[:0], "00-"...)
	b = append(telemetry.AppendSpanID(b, s.High), r.rec.TraceID[len(r.rec.TraceID)-16:]...)
	b = append(append(append(b, '-'), r.rec.SpanID...), "-0"...)
	r.local.bufC = append(b, sampled...)
	h.Set(httpmsg.Traceparent, r.local.bufC)
}

// nameSpan takes the operation that a peer gave in its head.
func (r *request) nameSpan(h *httpmsg.Head) {
	if !r.span.Sampled {
		return
	}
	if op := h.Get(httpmsg.XEnvoyDecoratorOperation); len(op) > 0 {
		r.span.Name = string(op)
	}
}

// report sends the span where it is sampled.
func (r *request) report() {
	if !r.span.Sampled {
		return
	}
	var own []config.CustomTag
	if r.route != nil && r.route.Config.Tracing != nil {
		own = r.route.Config.Tracing.CustomTags
	}
	r.local.log.Span(r.proxy.tracer, &r.span, &r.rec, own)
}
