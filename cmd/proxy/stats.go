package main

import (
	"context"
	"strings"
	"time"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener"
)

// scrapeLimit bounds how long a scrape waits for a worker.
const scrapeLimit = 2 * time.Second

// stats registers the statistics that no worker's Set holds: the server's and
// the listeners', under Envoy's names.
func (p *process) stats() {
	p.plane.metrics.Global(p.serverStats)
	p.plane.metrics.Global(p.plane.listenerStats)
	p.plane.metrics.Global(p.controlStats)
}

// controlStats are the xDS client's.
func (p *process) controlStats(emit func(telemetry.Metric)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	s, err := p.client.Status(ctx)
	if err != nil {
		return
	}
	for name, v := range s.Stats {
		kind := telemetry.Counter
		if strings.HasPrefix(name, "control_plane.") || strings.HasSuffix(name, "_active") || strings.HasSuffix(name, "_warming") || strings.HasSuffix(name, "_clusters") {
			kind = telemetry.Gauge
		}
		m := telemetry.Metric{Name: name, Prom: "envoy_" + promName.Replace(name), Kind: kind, Value: v}
		if of, ok := strings.CutPrefix(name, "cluster."); ok { // where the data plane counts the same cluster
			at := strings.LastIndexByte(of, '.')
			if p.settings.plane.keep != nil && !p.settings.plane.keep(of[:at]) {
				continue
			}
			m.Prom, m.Labels = "envoy_cluster_"+of[at+1:], []telemetry.Label{{Name: "envoy_cluster_name", Value: of[:at]}}
		}
		emit(m)
	}
}

// promName makes a part of a Prometheus name.
var promName = strings.NewReplacer(".", "_", "|", "_", ":", "_", "-", "_", ";", "_")

func (p *process) serverStats(emit func(telemetry.Metric)) {
	gauge := func(name string, v uint64) {
		emit(telemetry.Metric{Name: name, Prom: "envoy_" + strings.ReplaceAll(name, ".", "_"), Kind: telemetry.Gauge, Value: v})
	}
	state := p.state.Load()
	gauge("server.state", uint64(state))
	gauge("server.uptime", uint64(time.Since(p.began).Seconds()))
	gauge("server.live", one(state == int32(admin.Live)))
	gauge("server.concurrency", uint64(len(p.plane.workers)))
	l := p.plane.listeners.Stats()
	gauge("listener_manager.total_listeners_draining", l.Draining)
	gauge("listener_manager.total_filter_chains_draining", l.DrainingChains)
	for name, v := range map[string]uint64{"listener_create_success": l.CreateSuccess, "listener_create_failure": l.CreateFailure, "listener_stopped": l.Stopped} {
		emit(telemetry.Metric{Name: "listener_manager." + name, Prom: "envoy_listener_manager_" + name, Value: v})
	}
	gauge("listener_manager.workers_started", one(state != int32(admin.PreInitializing)))
}

func one(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// listenerStats sums the workers' counters of each listener.
func (p *plane) listenerStats(emit func(telemetry.Metric)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	type row struct {
		config *config.Listener
		n      listener.Counters
	}
	rows := make(chan row)
	go func() { // ends when every worker has answered, or at the limit
		defer close(rows)
		_ = p.listeners.Visit(ctx, func(_ int, c *config.Listener, n listener.Counters) {
			select {
			case rows <- row{c, n}:
			case <-ctx.Done():
			}
		})
	}()
	for r := range rows {
		emitListener(emit, p.statPrefix(r.config), &r.n)
	}
}

// statPrefix is the stat_prefix, or the address as Envoy writes it in names.
func (p *plane) statPrefix(c *config.Listener) string {
	if c.StatPrefix != "" {
		return c.StatPrefix
	}
	name := c.Address.String()
	if bound := p.listeners.Bound(c.Name); len(bound) > 0 {
		name = bound[0].String()
	}
	return strings.ReplaceAll(name, ":", "_")
}

func emitListener(emit func(telemetry.Metric), prefix string, n *listener.Counters) {
	own := func(name string, v uint64, kind telemetry.Kind) {
		emit(telemetry.Metric{Name: "listener." + prefix + "." + name, Prom: "envoy_listener_" + strings.ReplaceAll(name, ".", "_"),
			Labels: []telemetry.Label{{Name: "envoy_listener_address", Value: prefix}}, Kind: kind, Value: v})
	}
	shared := func(name string, v uint64) {
		emit(telemetry.Metric{Name: name, Prom: "envoy_" + strings.ReplaceAll(name, ".", "_"), Value: v})
	}
	own("downstream_cx_total", n.Total, telemetry.Counter)
	own("downstream_cx_active", n.Active, telemetry.Gauge)
	own("downstream_cx_destroy", n.Total-n.Active, telemetry.Counter)
	own("downstream_cx_overflow", n.Overflow, telemetry.Counter)
	own("downstream_global_cx_overflow", n.GlobalOverflow, telemetry.Counter)
	own("downstream_pre_cx_timeout", n.PreTimeout, telemetry.Counter)
	own("downstream_pre_cx_active", n.PreActive, telemetry.Gauge)
	own("no_filter_chain_match", n.NoMatch, telemetry.Counter)
	own("ssl.handshake", n.Handshakes, telemetry.Counter)
	own("ssl.connection_error", n.HandshakeErrors, telemetry.Counter)
	own("ssl.fail_verify_no_cert", n.FailNoCert, telemetry.Counter)
	own("ssl.fail_verify_error", n.FailError, telemetry.Counter)
	own("ssl.fail_verify_san", n.FailSAN, telemetry.Counter)
	own("ssl.fail_verify_cert_hash", n.FailHash, telemetry.Counter)
	own("ssl.no_certificate", n.NoCert, telemetry.Counter)
	shared("tls_inspector.tls_found", n.TLSFound)
	shared("tls_inspector.tls_not_found", n.TLSNotFound)
	shared("tls_inspector.client_hello_too_large", n.HelloTooLarge)
	shared("http_inspector.http10_found", n.HTTP10)
	shared("http_inspector.http11_found", n.HTTP11)
	shared("http_inspector.http2_found", n.HTTP2)
	shared("http_inspector.http_not_found", n.HTTPNotFound)
}
