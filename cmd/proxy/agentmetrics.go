package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// agentMetrics are pilot-agent's own, with its names: what the agent's side of
// the process did, and what the process uses. They are on the merged page only.
type agentMetrics struct {
	registry           *prometheus.Registry
	scrapes            prometheus.Counter
	scrapeFailures     *prometheus.CounterVec
	connectionFailures prometheus.Counter
	startup            prometheus.Gauge
	began              time.Time
	once               sync.Once
}

// newAgentMetrics makes them; expiry is when the certificate ends, zero without one.
func newAgentMetrics(expiry func() time.Time) *agentMetrics {
	m := &agentMetrics{
		registry:           prometheus.NewRegistry(),
		scrapes:            prometheus.NewCounter(prometheus.CounterOpts{Name: "scrapes_total", Help: "Scrapes of the merged metrics."}),
		scrapeFailures:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrape_failures_total", Help: "Endpoints that could not be scraped."}, []string{"type"}),
		connectionFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "istiod_connection_failures", Help: "Connections to istiod that failed."}),
		startup:            prometheus.NewGauge(prometheus.GaugeOpts{Name: "startup_duration_seconds", Help: "Time from the start to ready."}),
		began:              time.Now(),
	}
	m.scrapeFailures.WithLabelValues("application")
	prometheus.WrapRegistererWithPrefix("istio_agent_", m.registry).MustRegister(m.scrapes, m.scrapeFailures, m.connectionFailures,
		certExpiry{expiry, prometheus.NewDesc("cert_expiry_seconds", "Time until the certificate ends.", nil, prometheus.Labels{"resource_name": "default"})},
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return m
}

// started notes that the sidecar is ready; the first time counts.
func (m *agentMetrics) started() {
	m.once.Do(func() {
		m.startup.Set(time.Since(m.began).Seconds())
		prometheus.WrapRegistererWithPrefix("istio_agent_", m.registry).MustRegister(m.startup)
	})
}

// write appends them in Prometheus' text format.
func (m *agentMetrics) write(w io.Writer) error {
	families, err := m.registry.Gather()
	e := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			return fmt.Errorf("writing %s: %w", f.GetName(), err)
		}
	}
	return err
}

// certExpiry tells how long the certificate is good for, once there is one.
type certExpiry struct {
	at   func() time.Time
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c certExpiry) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c certExpiry) Collect(out chan<- prometheus.Metric) {
	if at := c.at(); !at.IsZero() {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, max(0, time.Until(at).Seconds()))
	}
}
