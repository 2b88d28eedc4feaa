package main

import (
	"encoding/json"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
)

// agentCounts are pilot-agent's own metrics.
type agentCounts struct {
	began                                       time.Time
	once                                        sync.Once
	startup                                     atomic.Int64 // seconds from start to ready, at least 1; 0: not yet
	scrapes, scrapeFailures, connectionFailures atomic.Uint64
}

func (c *agentCounts) started() {
	c.once.Do(func() { c.startup.Store(max(1, int64(time.Since(c.began).Round(time.Second).Seconds()))) })
}

// metrics are pilot-agent's, for the merged page.
func (s *podSide) metrics(emit func(telemetry.Metric)) {
	add := func(kind telemetry.Kind, name string, v uint64, labels ...telemetry.Label) {
		emit(telemetry.Metric{Name: name, Prom: name, Labels: labels, Kind: kind, Value: v})
	}
	for _, component := range []string{"agent", "proxy"} {
		add(telemetry.Gauge, "istio_build", 1, telemetry.Label{Name: "component", Value: component}, telemetry.Label{Name: "tag", Value: istioVersion})
	}
	if n := s.counts.startup.Load(); n > 0 {
		add(telemetry.Gauge, "istio_agent_startup_duration_seconds", uint64(n))
	}
	if at := s.source.Expiry(); !at.IsZero() {
		left := max(0, time.Until(at))
		add(telemetry.Gauge, "istio_agent_cert_expiry_seconds", uint64(left.Seconds()), telemetry.Label{Name: "resource_name", Value: "default"})
	}
	add(telemetry.Counter, "istio_agent_scrapes_total", s.counts.scrapes.Load())
	add(telemetry.Counter, "istio_agent_scrape_failures_total", s.counts.scrapeFailures.Load(), telemetry.Label{Name: "type", Value: "application"})
	add(telemetry.Counter, "istio_agent_istiod_connection_failures", s.counts.connectionFailures.Load())
}

// nameTable writes the table of host names as istiod's debug page does, nil when
// there is none.
func nameTable(t *config.NameTable) []byte {
	if t == nil {
		return nil
	}
	type entry struct {
		IPs       []netip.Addr `json:"ips"`
		Registry  string       `json:"registry,omitempty"`
		Shortname string       `json:"shortname,omitempty"`
		Namespace string       `json:"namespace,omitempty"`
	}
	table := make(map[string]entry, len(t.Hosts))
	for host, e := range t.Hosts {
		table[host] = entry{e.IPs, e.Registry, e.Shortname, e.Namespace}
	}
	b, err := json.MarshalIndent(map[string]any{"table": table}, "", "  ")
	if err != nil {
		return nil
	}
	return append(b, '\n')
}
