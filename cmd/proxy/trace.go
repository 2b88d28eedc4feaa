package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/upstream/call"
	"sluice/upstream/export"
)

const exportSpans = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// tracers makes the way of spans to their collectors. Connection managers with
// equal tracers share one, as they do in Envoy.
func (p *plane) tracers(o *planeOptions) func(*config.Tracing) *telemetry.Tracer {
	var mu sync.Mutex
	made := map[string]*export.Destination{}
	address := firstAddress()
	return func(t *config.Tracing) *telemetry.Tracer {
		mu.Lock()
		defer mu.Unlock()
		key := fmt.Sprintf("%T %+v", t.Provider, t.Provider)
		to := made[key]
		if to == nil {
			if to = p.collector(t.Provider, o); to == nil {
				return nil
			}
			made[key] = to
		}
		return &telemetry.Tracer{Config: t, Service: o.node.Cluster, Node: o.node.ID, Zone: o.node.Zone, Address: address,
			Send: func(worker int, span []byte) { p.exports[worker].Add(to, span) }}
	}
}

// collector is where a tracer's spans go, with Envoy's runtime keys and their
// defaults; nil: nowhere.
func (p *plane) collector(provider config.TracerProvider, o *planeOptions) *export.Destination {
	to := &export.Destination{}
	var kind string
	switch t := provider.(type) {
	case *config.ZipkinTracer:
		kind = "tracing.zipkin."
		timeout := o.milliseconds(kind+"request_timeout", 5000)
		to.Request = func(spans []byte, _ int) *call.Request { return zipkinRequest(t, spans, timeout) }
		to.Lost = unless(http.StatusAccepted)
		to.Told = p.zipkinTold
	case *config.OTelTracer:
		if t.Cluster == "" {
			return nil
		}
		kind = "tracing.opentelemetry."
		resource := telemetry.OTelTraceResource(t, version, p.resource(t))
		to.Request = func(spans []byte, _ int) *call.Request {
			return otelRequest(t, telemetry.OTelTraceRequest(resource, spans, version))
		}
		if to.Lost = lost; t.HTTPPath != "" {
			to.Lost = unless(http.StatusOK)
		}
		to.Told = p.otelTold
	default:
		return nil
	}
	to.Entries = max(1, o.whole(kind+"min_flush_spans", 5))
	to.Interval = o.milliseconds(kind+"flush_interval_ms", 5000)
	for _, w := range p.workers {
		w.Post(func() { to.Told(w, 0, export.Delivered); to.Told(w, 0, export.Failed) })
	}
	return to
}

func zipkinRequest(z *config.ZipkinTracer, spans []byte, timeout time.Duration) *call.Request {
	return post(z.Cluster, z.Host, z.Path, "application/json", telemetry.ZipkinList(spans), timeout)
}

func otelRequest(t *config.OTelTracer, message []byte) *call.Request {
	var r *call.Request
	if t.HTTPPath == "" {
		r = call.Unary(t.Cluster, t.Authority, exportSpans, message, 0)
	} else {
		r = post(t.Cluster, t.Authority, t.HTTPPath, "application/x-protobuf", message, t.Timeout)
	}
	plain := r.Head
	r.Head = func(h *httpmsg.Head) {
		plain(h)
		h.AddString(httpmsg.UserAgent, "OTel-OTLP-Exporter-sluice/"+version)
		for _, f := range t.Headers {
			h.Add([]byte(f[0]), []byte(f[1]))
		}
	}
	return r
}

func post(cluster, authority, path, content string, body []byte, timeout time.Duration) *call.Request {
	return &call.Request{Cluster: cluster, Body: body, Forwarded: true, Streamed: true, Timeout: timeout,
		Head: func(h *httpmsg.Head) {
			h.SetMethod([]byte(http.MethodPost))
			h.SetPath([]byte(path))
			h.SetAuthority([]byte(authority))
			h.SetScheme([]byte("http"))
			h.AddString(httpmsg.ContentType, content)
		}}
}

// resource is what OTEL_RESOURCE_ATTRIBUTES says where it is asked for: "a=b,c=d",
// with percent signs before what isn't itself.
func (p *plane) resource(t *config.OTelTracer) (out [][2]string) {
	if !t.Environment {
		return nil
	}
	for pair := range strings.SplitSeq(p.env("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if plain, err := url.PathUnescape(value); ok && err == nil {
			out = append(out, [2]string{key, plain})
		}
	}
	return out
}

// unless is the Lost of a collector that answers success.
func unless(success int) func(a *call.Answer, n int) int {
	return func(a *call.Answer, n int) int {
		if a.Status == success {
			return 0
		}
		return n
	}
}

// zipkinTold counts what became of a report of n spans, in Envoy's statistics; of
// none it makes them known.
func (p *plane) zipkinTold(w *worker.Worker, n int, o export.Outcome) {
	report := "tracing.zipkin.reports_dropped"
	if o == export.Delivered {
		report = "tracing.zipkin.reports_sent"
	}
	p.reports.count(w, report, uint64(min(n, 1)))
	if o != export.Dropped {
		p.reports.count(w, "tracing.zipkin.spans_sent", uint64(n))
	}
}

// otelTold is the same for OpenTelemetry.
func (p *plane) otelTold(w *worker.Worker, n int, o export.Outcome) {
	spans := "tracing.opentelemetry.spans_dropped"
	if o == export.Delivered {
		spans = "tracing.opentelemetry.spans_sent"
	}
	p.reports.count(w, spans, uint64(n))
}
