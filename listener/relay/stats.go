package relay

import (
	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/tcpproxy"
	"sluice/upstream/pool"
)

// The counters of a TCP chain, as indexes into its group's values.
const (
	cxTotal = iota
	cxNoRoute
	cxIdle
	cxMaxDuration
	cxRx
	cxTx
	cxPaused
	cxResumed
	numStats
)

func tcpStats() []telemetry.Stat {
	s := make([]telemetry.Stat, numStats, numStats+8)
	for i, name := range [numStats]string{"downstream_cx_total", "downstream_cx_no_route", "idle_timeout", "max_downstream_connection_duration",
		"downstream_cx_rx_bytes_total", "downstream_cx_tx_bytes_total", "downstream_flow_control_paused_reading_total",
		"downstream_flow_control_resumed_reading_total"} {
		s[i].Name = name
	}
	// Envoy has these too; nothing of ours moves them.
	for _, name := range [...]string{"downstream_cx_drain_close", "downstream_cx_overload_close", "early_data_received_count_total", "route_delayed_total",
		"upstream_flush_total"} {
		s = append(s, telemetry.Stat{Name: name})
	}
	for _, name := range [...]string{"downstream_cx_rx_bytes_buffered", "downstream_cx_tx_bytes_buffered", "upstream_flush_active"} {
		s = append(s, telemetry.Stat{Name: name, Gauge: true})
	}
	return s
}

// group gives a filter's counters on a worker.
func (w *onWorker) group(f *config.TCPProxy) *telemetry.Group {
	g := w.groups[f.StatPrefix]
	if g == nil {
		g = w.set.Add("tcp", f.StatPrefix, tcpStats())
		w.groups[f.StatPrefix] = g
	}
	return g
}

// Began implements tcpproxy.Options.Began.
func (p *Reports) Began(w *worker.Worker, f *config.TCPProxy) {
	p.workers[w.Index()].group(f).Values[cxTotal]++
}

// Live implements tcpproxy.Options.Live.
func (p *Reports) Live(w *worker.Worker) *tcpproxy.Live { return &p.workers[w.Index()].live }

// moved counts what moved since the last call.
func (p *Reports) moved(worker int, t *tcpproxy.Record) {
	v, was := p.workers[worker].group(t.Filter).Values, t.Counted
	v[cxRx] += t.Received - was.Received
	v[cxTx] += t.Sent - was.Sent
	v[cxPaused] += uint64(t.Paused - was.Paused)
	v[cxResumed] += uint64(t.Resumed - was.Resumed)
	// Of a tunnel the pool counts what goes over the wire.
	if c := p.clusters.Local(worker).Get(t.Cluster); c != nil && t.Filter.TunnelHost == nil {
		s := c.Stats
		s[pool.CxRxBytes] += t.UpstreamReceived - was.UpstreamReceived
		s[pool.CxTxBytes] += t.UpstreamSent - was.UpstreamSent
		s[pool.FlowPaused] += uint64(t.UpstreamPaused - was.UpstreamPaused)
		s[pool.FlowResumed] += uint64(t.UpstreamResumed - was.UpstreamResumed)
		// The downstream is paused when the upstream's output is full.
		s[pool.FlowBackedUp] += uint64(t.Paused - was.Paused)
		s[pool.FlowDrained] += uint64(t.Resumed - was.Resumed)
	}
	*t.Counted = t.Traffic
}

// count counts a connection that is over.
func (p *Reports) count(worker int, t *tcpproxy.Record) {
	p.moved(worker, t)
	v := p.workers[worker].group(t.Filter).Values
	if t.IdleTimeout {
		v[cxIdle]++
	}
	if t.MaxDuration {
		v[cxMaxDuration]++
	}
	for _, f := range t.Flags {
		if f == "NC" {
			v[cxNoRoute]++
		}
	}
}
