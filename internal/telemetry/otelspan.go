package telemetry

import (
	"google.golang.org/protobuf/encoding/protowire"

	"sluice/internal/config"
)

// The fields of opentelemetry.proto.trace.v1 that are written, besides those that
// spans have in common with logs.
const (
	spanTrace      = 1
	spanID         = 2
	spanParent     = 4
	spanName       = 5
	spanKind       = 6
	spanStart      = 7
	spanEnd        = 8
	spanAttributes = 9
	spanStatus     = 15
	statusCode     = 3
	statusError    = 2
	kindServer     = 2
	kindClient     = 3

	scopeOwn     = 1 // of ScopeSpans
	scopeName    = 1
	scopeVersion = 2
)

// otelSpan appends s as a spans field of a ScopeSpans.
func (w *Writer) otelSpan(dst []byte, t *Tracer, s *Span, r *Record) []byte {
	kind := uint64(kindClient)
	if s.Server {
		kind = kindServer
	}
	dst, at := begin(dst, scopeRecords)
	dst = appendID(dst, spanTrace, r.TraceID)
	dst = appendID(dst, spanID, r.SpanID)
	if s.Parent != 0 {
		w.scratch = AppendSpanID(w.scratch[:0], s.Parent)
		dst = appendID(dst, spanParent, string(w.scratch))
	}
	dst = appendBytes(dst, spanName, w.otelName(t, s, r))
	dst = protowire.AppendVarint(protowire.AppendTag(dst, spanKind, protowire.VarintType), kind)
	start := r.Wall.UnixNano()
	dst = protowire.AppendFixed64(protowire.AppendTag(dst, spanStart, protowire.Fixed64Type), uint64(start))
	dst = protowire.AppendFixed64(protowire.AppendTag(dst, spanEnd, protowire.Fixed64Type), uint64(start+r.End-r.Start))
	dst = w.tags.otel(dst)
	if r.Code >= 500 || !s.Server && r.Code >= 400 {
		var status int
		dst, status = begin(dst, spanStatus)
		dst = end(protowire.AppendVarint(protowire.AppendTag(dst, statusCode, protowire.VarintType), statusError), status)
	}
	return end(dst, at)
}

// otelName is the span's given name, or which way the traffic goes.
func (w *Writer) otelName(t *Tracer, s *Span, r *Record) []byte {
	switch {
	case w.nameSpan(t, s, r):
	case s.Server:
		w.scratch = append(w.scratch[:0], "ingress"...)
	default:
		w.scratch = append(append(w.scratch[:0], "egress "...), r.Request.Authority()...)
	}
	makeUTF8(w.scratch)
	return w.scratch
}

// otel appends the tags as attributes of a span.
func (g *spanTags) otel(dst []byte) []byte {
	begun := 0
	for i, key := range g.keys {
		value := g.text[begun:g.ends[i]]
		if begun = g.ends[i]; !g.replaced(i) {
			makeUTF8(value)
			dst = otelText(dst, spanAttributes, key, value)
		}
	}
	return dst
}

// otelText appends a KeyValue of a string as a field.
func otelText[T string | []byte](dst []byte, field protowire.Number, key string, value T) []byte {
	dst, pair := begin(dst, field)
	dst = appendBytes(dst, pairKey, key)
	dst, text := begin(dst, pairValue)
	return end(end(appendBytes(dst, anyString, value), text), pair)
}

// OTelTraceResource encodes the resource that the spans of t come from; more are
// attributes besides the configured.
func OTelTraceResource(t *config.OTelTracer, version string, more [][2]string) []byte {
	own := [][2]string{{"service.name", t.ServiceName}, {"telemetry.sdk.language", "go"}, {"telemetry.sdk.name", "sluice"}, {"telemetry.sdk.version", version}}
	var out []byte
	for _, list := range [...][][2]string{own, more, t.Attributes} {
		for _, a := range list {
			out = otelText(out, resourceAttributes, a[0], a[1])
		}
	}
	return out
}

// OTelTraceRequest encodes an ExportTraceServiceRequest of spans made by a Writer.
// Their scope has the name that queries for a mesh's spans look for.
func OTelTraceRequest(resource, spans []byte, version string) []byte {
	scope, at := begin(nil, scopeOwn)
	scope = end(appendBytes(appendBytes(scope, scopeName, "envoy"), scopeVersion, version), at)
	return OTelRequest(resource, append(scope, spans...))
}
