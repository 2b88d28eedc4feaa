package relay

import (
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/downstream"
	"sluice/listener/filter/istiostats"
	"sluice/listener/tcpproxy"
)

// Interval implements tcpproxy.Options.Interval: chains with istio.stats are
// reported.
func (p *Reports) Interval(d *downstream.Connection) time.Duration {
	if s := statsOf(d); s != nil {
		return s.ReportingInterval
	}
	return 0
}

// Report implements tcpproxy.Options.Report. It counts nothing before the peer
// has told who it is: the labels would be another connection's.
func (p *Reports) Report(t *tcpproxy.Record) bool {
	if !t.Reported.Opened && !known(t) {
		return false
	}
	on := &p.workers[t.Downstream.Conn.Worker().Index()]
	p.countIstio(on, t, p.record(t), false)
	return true
}

// known says that no metadata is on its way from the peer that labels name: the
// client of an inbound connection, the server of an outbound one.
func known(t *tcpproxy.Record) bool {
	d := t.Downstream
	if l := d.Listener; l == nil || l.Direction != config.Inbound {
		return t.UpstreamPeer == nil || t.UpstreamPeer.Metadata != nil
	}
	if d.Notes().PeerMetadata != nil || d.TLS == nil || d.Chain == nil {
		return true
	}
	for _, f := range d.Chain.Filters {
		if x, ok := f.(*config.MetadataExchange); ok && d.TLS.ALPN == x.Protocol {
			return false
		}
	}
	return true
}

func statsOf(d *downstream.Connection) *config.IstioStats {
	if d.Chain == nil {
		return nil
	}
	for _, f := range d.Chain.Filters {
		if n, ok := f.(*config.NetworkStats); ok && n.Stats != nil {
			return n.Stats
		}
	}
	return nil
}

// countIstio counts what is new of a connection, where its chain has istio.stats.
func (p *Reports) countIstio(w *onWorker, t *tcpproxy.Record, r *telemetry.Record, end bool) {
	s := statsOf(t.Downstream)
	if s == nil {
		return
	}
	x, ok := p.stats.Load(s)
	if !ok {
		x, _ = p.stats.LoadOrStore(s, istiostats.New(s, p.Node, r.Conn.Direction))
	}
	n, opened, closed := t.Reported, uint64(0), uint64(0)
	if !n.Opened {
		opened = 1
	}
	if end {
		closed = 1
	}
	x.(*istiostats.Filter).Connection(w.set, r, opened, closed, t.Sent-n.Sent, t.Received-n.Received)
	n.Opened, n.Sent, n.Received = true, t.Sent, t.Received
}
