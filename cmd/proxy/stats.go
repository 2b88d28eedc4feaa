package main

import (
	"context"
	"crypto/tls"
	"strconv"
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
	p.plane.metrics.Global(p.runtimeStats)
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
		m := telemetry.Metric{Name: name, Prom: "envoy_" + promName.Replace(name), Kind: kind, Value: v, Used: kind == telemetry.Gauge}
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
		emit(telemetry.Metric{Name: name, Prom: "envoy_" + strings.ReplaceAll(name, ".", "_"), Kind: telemetry.Gauge, Value: v, Used: true})
	}
	state := p.state.Load()
	gauge("server.state", uint64(state))
	gauge("server.uptime", uint64(time.Since(p.began).Seconds()))
	gauge("server.live", one(state == int32(admin.Live) && !p.admin.HealthFailed()))
	gauge("server.days_until_first_cert_expiring", p.plane.firstExpiry())
	gauge("server.concurrency", uint64(len(p.plane.workers)))
	l := p.plane.listeners.Stats()
	gauge("listener_manager.total_listeners_draining", l.Draining)
	gauge("listener_manager.total_filter_chains_draining", l.DrainingChains)
	for name, v := range map[string]uint64{"listener_create_success": l.CreateSuccess, "listener_create_failure": l.CreateFailure, "listener_stopped": l.Stopped} {
		emit(telemetry.Metric{Name: "listener_manager." + name, Prom: "envoy_listener_manager_" + name, Value: v})
	}
	gauge("listener_manager.workers_started", one(state != int32(admin.PreInitializing)))
	for _, w := range p.plane.workers {
		t, prefix := w.Turns(), "server.worker_"+strconv.Itoa(w.Index())+"."
		gauge(prefix+"turn_stalls", t.Stalls)
		gauge(prefix+"turn_longest_us", uint64(t.Longest.Microseconds()))
		gauge(prefix+"turn_busiest_us", uint64(t.Busiest.Microseconds()))
	}
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
	// A worker writes to its own list and never waits. The lists of one that
	// doesn't answer in time aren't read.
	rows := make([][]row, len(p.workers))
	if err := p.listeners.Visit(ctx, func(w int, c *config.Listener, n listener.Counters) { rows[w] = append(rows[w], row{c, n}) }); err != nil {
		return
	}
	for w, list := range rows {
		for i := range list {
			emitListener(emit, p.statPrefix(list[i].config), w, &list[i].n)
		}
	}
}

// statPrefix is the stat_prefix, or the address as Envoy writes it in names.
func (p *plane) statPrefix(c *config.Listener) string {
	if c.StatPrefix != "" {
		return strings.ReplaceAll(c.StatPrefix, ":", "_")
	}
	name := c.Address.String()
	if bound := p.listeners.Bound(c.Name); len(bound) > 0 {
		name = bound[0].String()
	}
	return strings.ReplaceAll(name, ":", "_")
}

// emitter gives the statistics of one listener on one worker.
type emitter struct {
	emit   func(telemetry.Metric)
	prefix string
}

// own is a statistic below the listener's name.
func (e emitter) own(name string, v uint64, kind telemetry.Kind) {
	e.emit(telemetry.Metric{Name: "listener." + e.prefix + "." + name, Prom: "envoy_listener_" + strings.ReplaceAll(name, ".", "_"),
		Labels: []telemetry.Label{{Name: "envoy_listener_address", Value: e.prefix}}, Kind: kind, Value: v, Used: kind == telemetry.Gauge})
}

// tagged is one that Prometheus sees with its last part as a label.
func (e emitter) tagged(name, label, value string, v uint64) {
	e.emit(telemetry.Metric{Name: "listener." + e.prefix + "." + name + "." + value, Prom: "envoy_listener_" + strings.ReplaceAll(name, ".", "_"),
		Labels: []telemetry.Label{{Name: label, Value: value}, {Name: "envoy_listener_address", Value: e.prefix}}, Value: v})
}

// shared is one that all listeners count together.
func (e emitter) shared(name string, v uint64) {
	e.emit(telemetry.Metric{Name: name, Prom: "envoy_" + strings.ReplaceAll(name, ".", "_"), Value: v})
}

func emitListener(emit func(telemetry.Metric), prefix string, worker int, n *listener.Counters) {
	e := emitter{emit, prefix}
	for _, s := range [...]struct {
		name string
		v    uint64
	}{
		{"downstream_cx_total", n.Total}, {"downstream_cx_destroy", n.Destroyed}, {"downstream_cx_overflow", n.Overflow},
		{"downstream_global_cx_overflow", n.GlobalOverflow}, {"downstream_cx_overload_reject", 0}, {"downstream_pre_cx_timeout", n.PreTimeout},
		{"downstream_listener_filter_error", n.FilterError}, {"downstream_listener_filter_remote_close", n.FilterLeft},
		{"downstream_cx_transport_socket_connect_timeout", n.HandshakeTimeouts}, {"no_filter_chain_match", n.NoMatch},
		{"extension_config_missing", 0}, {"network_extension_config_missing", 0},
	} {
		e.own(s.name, s.v, telemetry.Counter)
	}
	e.own("downstream_cx_active", n.Active, telemetry.Gauge)
	e.own("downstream_pre_cx_active", n.PreActive, telemetry.Gauge)
	w := "worker_" + strconv.Itoa(worker)
	e.onWorker(w, "downstream_cx_active", n.Active, telemetry.Gauge)
	e.onWorker(w, "downstream_cx_total", n.Total, telemetry.Counter)
	if n.HasTLS {
		e.tls(n)
	}
	e.inspectors(n)
}

// onWorker is a statistic of one worker; Prometheus has its number as a label.
func (e emitter) onWorker(worker, name string, v uint64, kind telemetry.Kind) {
	e.emit(telemetry.Metric{Name: "listener." + e.prefix + "." + worker + "." + name, Prom: "envoy_listener_worker_" + name, Kind: kind, Value: v, Used: kind == telemetry.Gauge,
		Labels: []telemetry.Label{{Name: "envoy_worker_id", Value: strings.TrimPrefix(worker, "worker_")}, {Name: "envoy_listener_address", Value: e.prefix}}})
}

func (e emitter) tls(n *listener.Counters) {
	for _, s := range [...]struct {
		name string
		v    uint64
	}{
		{"ssl.handshake", n.Handshakes}, {"ssl.connection_error", n.HandshakeErrors}, {"ssl.fail_verify_no_cert", n.FailNoCert},
		{"ssl.fail_verify_error", n.FailError}, {"ssl.fail_verify_san", n.FailSAN}, {"ssl.fail_verify_cert_hash", n.FailHash},
		{"ssl.no_certificate", n.NoCert}, {"ssl.session_reused", n.Resumed}, {"ssl.ocsp_staple_failed", 0}, {"ssl.ocsp_staple_omitted", 0},
		{"ssl.ocsp_staple_requests", 0}, {"ssl.ocsp_staple_responses", 0},
		{"server_ssl_socket_factory.ssl_context_update_by_sds", n.ContextUpdates},
		{"server_ssl_socket_factory.downstream_context_secrets_not_ready", n.NotReady},
		{"server_ssl_socket_factory.upstream_context_secrets_not_ready", 0},
	} {
		e.own(s.name, s.v, telemetry.Counter)
	}
	for _, t := range n.Versions {
		e.tagged("ssl.versions", "envoy_ssl_version", telemetry.VersionName(t.ID), t.N)
	}
	for _, t := range n.Ciphers {
		e.tagged("ssl.ciphers", "envoy_ssl_cipher", telemetry.CipherName(t.ID), t.N)
	}
	for _, t := range n.Curves {
		e.tagged("ssl.curves", "envoy_ssl_curve", telemetry.CurveName(tls.CurveID(t.ID)), t.N)
	}
}

// inspectors are the listener filters' statistics, which have no listener's name.
func (e emitter) inspectors(n *listener.Counters) {
	e.shared("tls_inspector.tls_found", n.TLSFound)
	e.shared("tls_inspector.tls_not_found", n.TLSNotFound)
	e.shared("tls_inspector.client_hello_too_large", n.HelloTooLarge)
	e.shared("tls_inspector.sni_found", n.SNIFound)
	e.shared("tls_inspector.sni_not_found", n.SNINotFound)
	e.shared("tls_inspector.alpn_found", n.ALPNFound)
	e.shared("tls_inspector.alpn_not_found", n.ALPNNotFound)
	e.shared("http_inspector.http10_found", n.HTTP10)
	e.shared("http_inspector.http11_found", n.HTTP11)
	e.shared("http_inspector.http2_found", n.HTTP2)
	e.shared("http_inspector.http_not_found", n.HTTPNotFound)
	if n.ProxyPrefix == nil {
		return
	}
	prefix := "proxy_proto." + *n.ProxyPrefix
	e.shared(prefix+"not_found_allowed", n.ProxyAllowed)
	e.shared(prefix+"not_found_disallowed", n.ProxyNotFound)
	for i, version := range [...]string{"1", "2"} {
		for name, v := range map[string]uint64{"found": n.ProxyFound[i], "disallowed": n.ProxyDisallowed[i], "error": n.ProxyErrors[i]} {
			e.emit(telemetry.Metric{Name: prefix + "versions.v" + version + "." + name, Prom: "envoy_proxy_proto_" + name,
				Labels: []telemetry.Label{{Name: "envoy_proxy_protocol_version", Value: version}}, Value: v})
		}
	}
}
