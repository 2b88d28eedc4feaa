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
	if r.proxy.tracer == nil {
		return
	}
	switch p := t.Provider.(type) {
	case *config.ZipkinTracer:
		if c, ok := zipkinContext(&r.head, p); ok {
			r.beginSpan(c, spanStyle{long: p.TraceID128, shared: p.SharedSpanContext, server: p.Split})
		}
	case *config.OTelTracer:
		r.beginSpan(otelContext(&r.head, p, r.rec.Sampled), spanStyle{long: true})
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

// spanStyle is what tracers do differently: traces of 128 bits, a server's span
// that is its client's too, and a server's whatever the direction.
type spanStyle struct{ long, shared, server bool }

// zipkinContext is what a Zipkin tracer reads. It isn't ok where the headers can't
// be read: there is no span then.
func zipkinContext(h *httpmsg.Head, z *config.ZipkinTracer) (c traceContext, ok bool) {
	c, ok = readB3(h)
	if ok && !c.found && z.W3C {
		c = readTraceparent(h, c)
	}
	return c, ok
}

// otelContext is what an OpenTelemetry tracer reads. A caller's decision counts
// only for what is sampled here, and with the always-on sampler not even there.
func otelContext(h *httpmsg.Head, t *config.OTelTracer, sampled bool) traceContext {
	c := readTraceparent(h, traceContext{})
	c.decided = c.decided && sampled && !t.AlwaysOn
	return c
}

// beginSpan makes the request's span: a child of the one that c tells of, or the
// root of a new trace.
func (r *request) beginSpan(c traceContext, style spanStyle) {
	s := &r.span
	s.Server = style.server || r.proxy.listener == nil || r.proxy.listener.Direction != config.Outbound
	s.Shared = s.Server && style.shared
	switch {
	case !c.found:
		s.Low = r.local.identifier()
		s.ID = s.Low
		if style.long {
			s.High = r.local.identifier()
		}
	case s.Shared:
		s.High, s.Low, s.ID, s.Parent = c.high, c.low, c.span, c.parent
	default:
		s.High, s.Low, s.ID, s.Parent = c.high, c.low, r.local.identifier(), c.span
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

// identifier is of a trace or span: 0 is none.
func (l *local) identifier() uint64 {
	for {
		if n := l.rnd.Uint64(); n != 0 {
			return n
		}
	}
}

// propagate tells the upstream of the span.
func (r *request) propagate() {
	if r.span.ID == 0 {
		return
	}
	z, _ := r.proxy.config.Tracing.Provider.(*config.ZipkinTracer)
	switch {
	case z == nil:
	case r.head.Has(httpmsg.B3): // Envoy answers in the form that it was told in
		r.sendSingleB3()
	default:
		r.sendB3()
	}
	if z == nil || z.W3C {
		r.sendTraceparent()
	}
	if z == nil && !r.head.Has(httpmsg.Tracestate) {
		r.head.SetString(httpmsg.Tracestate, "") // as Envoy does
	}
}

func (r *request) sendB3() {
	s, h := &r.span, &r.head
	h.SetString(httpmsg.XB3TraceID, r.rec.TraceID)
	h.SetString(httpmsg.XB3SpanID, r.rec.SpanID)
	if s.Parent != 0 {
		r.local.bufC = telemetry.AppendSpanID(r.local.bufC[:0], s.Parent)
		h.Set(httpmsg.XB3ParentSpanID, r.local.bufC)
	}
	h.SetString(httpmsg.XB3Sampled, flagOf(s))
}

func (r *request) sendSingleB3() {
	s := &r.span
	b := append(append(r.local.bufC[:0], r.rec.TraceID...), '-')
	b = append(append(b, r.rec.SpanID...), '-')
	b = append(b, flagOf(s)...)
	if s.Parent != 0 {
		b = telemetry.AppendSpanID(append(b, '-'), s.Parent)
	}
	r.local.bufC = b
	r.head.Set(httpmsg.B3, b)
}

func (r *request) sendTraceparent() {
	s := &r.span
	b := append(r.local.bufC[:0], "00-"...)
	b = telemetry.AppendSpanID(telemetry.AppendSpanID(b, s.High), s.Low)
	b = append(append(append(b, '-'), r.rec.SpanID...), "-0"...)
	r.local.bufC = append(b, flagOf(s)...)
	r.head.Set(httpmsg.Traceparent, r.local.bufC)
}

func flagOf(s *telemetry.Span) string {
	if s.Sampled {
		return "1"
	}
	return "0"
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
