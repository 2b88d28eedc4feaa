package main

import (
	"net/http"
	"sync"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/upstream/call"
	"sluice/upstream/export"
)

// tracers makes the way of spans to their collectors. Connection managers with
// the same collector share one, as they do in Envoy.
func (p *plane) tracers(o *planeOptions) func(*config.Tracing) *telemetry.Tracer {
	var mu sync.Mutex
	made := map[config.ZipkinTracer]*export.Destination{}
	address := firstAddress()
	return func(t *config.Tracing) *telemetry.Tracer {
		z, ok := t.Provider.(*config.ZipkinTracer)
		if !ok {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		to := made[*z]
		if to == nil {
			to = p.zipkin(z, o)
			made[*z] = to
			for _, w := range p.workers {
				w.Post(func() { p.reported(w, 0, export.Delivered); p.reported(w, 0, export.Failed) })
			}
		}
		return &telemetry.Tracer{Config: t, Service: o.node.Cluster, Node: o.node.ID, Address: address,
			Send: func(worker int, span []byte) { p.exports[worker].Add(to, span) }}
	}
}

// zipkin is a collector, with Envoy's runtime keys and their defaults.
func (p *plane) zipkin(z *config.ZipkinTracer, o *planeOptions) *export.Destination {
	timeout := o.milliseconds("tracing.zipkin.request_timeout", 5000)
	head := func(h *httpmsg.Head) {
		h.SetMethod([]byte(http.MethodPost))
		h.SetPath([]byte(z.Path))
		h.SetAuthority([]byte(z.Host))
		h.SetScheme([]byte("http"))
		h.AddString(httpmsg.ContentType, "application/json")
	}
	return &export.Destination{
		Entries:  max(1, o.whole("tracing.zipkin.min_flush_spans", 5)),
		Interval: o.milliseconds("tracing.zipkin.flush_interval_ms", 5000),
		Told:     p.reported,
		Lost: func(a *call.Answer, n int) int {
			if a.Status == http.StatusAccepted {
				return 0
			}
			return n
		},
		Request: func(spans []byte, _ int) *call.Request {
			return &call.Request{Cluster: z.Cluster, Head: head, Body: telemetry.ZipkinList(spans), Forwarded: true, Streamed: true, Timeout: timeout}
		},
	}
}

// reported counts what became of a report of n spans, in Envoy's statistics; of
// none it makes them known.
func (p *plane) reported(w *worker.Worker, n int, o export.Outcome) {
	report := "tracing.zipkin.reports_dropped"
	if o == export.Delivered {
		report = "tracing.zipkin.reports_sent"
	}
	p.reports.count(w, report, uint64(min(n, 1)))
	if o != export.Dropped {
		p.reports.count(w, "tracing.zipkin.spans_sent", uint64(n))
	}
}

// whole is a runtime value that is a whole number.
func (o *planeOptions) whole(key string, other int) int {
	if v, ok := o.runtime[key].(float64); ok && v >= 0 {
		return int(v)
	}
	return other
}

func (o *planeOptions) milliseconds(key string, other int) time.Duration {
	return time.Duration(o.whole(key, other)) * time.Millisecond
}
