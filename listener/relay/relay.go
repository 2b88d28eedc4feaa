// Package relay joins listener/tcpproxy to what it needs of the rest: a
// connection to a cluster, and the report of a connection that is over. It
// relays nothing itself.
package relay

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/downstream"
	"sluice/listener/filter/metadataexchange"
	"sluice/listener/tcpproxy"
	"sluice/upstream"
	"sluice/upstream/balance"
	"sluice/upstream/pool"
)

// Connect opens upstream connections for TCP chains; it is tcpproxy's Connect.
// frame (of metadataexchange.Frame) goes ahead to upstreams that take part in
// istio.metadata_exchange.
func Connect(clusters *upstream.Clusters, frame []byte) tcpproxy.Connect {
	return func(d *downstream.Connection, r *tcpproxy.Request, done func(tcpproxy.Upstream, error)) func() {
		w := d.Conn.Worker()
		c := clusters.Local(w.Index()).Get(r.Cluster)
		if c == nil {
			return clusters.Local(w.Index()).Refuse(func() { done(tcpproxy.Upstream{}, &tcpproxy.Failure{Flag: "NC"}) })
		}
		var q upstream.Query
		q.From = &upstream.From{Src: d.Src, Dst: d.Dst, TLVs: d.Notes().TLVs}
		if d.Restored {
			q.OriginalDst = d.Dst
		}
		q.Match = r.Metadata
		if r.Filter != nil && r.Filter.HashSourceIP && d.Src.IsValid() {
			q.Hash, q.HasHash = balance.Hash64([]byte(d.Src.Addr().Unmap().String()), 0), true
		}
		if r.Filter != nil && r.Filter.TunnelHost != nil {
			return connectTunnel(c, d, r.Filter, &q, done)
		}
		return c.Connect(&q, func(s *upstream.Stream, err error) {
			if err != nil {
				done(tcpproxy.Upstream{}, failure(c, err))
				return
			}
			done(tcpproxy.Upstream{Conn: s.Conn, Host: s.Host.Endpoint, Remote: &s.Host.Addr, Cluster: c.Config.Name, TLS: s.TLS(), Peer: exchange(c.Config, s, frame),
				Closed: s.Ended}, nil)
		})
	}
}

// exchange puts the metadata exchange around a connection that agreed on it. No
// byte of it was opened yet: the handshake ended in this very call.
func exchange(c *config.Cluster, s *upstream.Stream, frame []byte) *tcpproxy.Peer {
	x := c.TCPExchange
	if x == nil || s.Session == nil || s.Session.ALPN != x.Protocol || s.Conn.Layer() == nil {
		return nil
	}
	p := &tcpproxy.Peer{}
	s.Conn.SetLayer(metadataexchange.Wrap(s.Conn.Layer(), frame, func(msg []byte) { p.Metadata = slices.Clone(msg) }))
	return p
}

func failure(c *upstream.Cluster, err error) error {
	var r *upstream.Refusal
	if !errors.As(err, &r) {
		return err
	}
	f := &tcpproxy.Failure{Flag: r.Flag.String(), Reason: r.Reason, Cluster: c.Config.Name}
	if r.Host != nil {
		f.Host, f.Address = r.Host.Endpoint, r.Host.Addr
	}
	return f
}

// Reports writes what tcpproxy tells of its connections: access logs and
// counters. One Reports serves all workers.
type Reports struct {
	files    *telemetry.Files
	clusters *upstream.Clusters
	workers  []onWorker
	logs     sync.Map // *config.TCPProxy → *telemetry.Log
	// Node is who we are, for the istio_tcp_* metrics of chains that have them.
	Node  *telemetry.Node
	stats sync.Map // *config.IstioStats → *istiostats.Filter
}

// onWorker is what one worker writes with.
type onWorker struct {
	set    *telemetry.Set
	writer telemetry.Writer
	groups map[string]*telemetry.Group // by stat_prefix
	live   tcpproxy.Live
}

// NewReports makes a Reports; sets are the workers', env answers
// %ENVIRONMENT()%.
func NewReports(files *telemetry.Files, clusters *upstream.Clusters, sets []*telemetry.Set, env func(string) string) *Reports {
	p := &Reports{files: files, clusters: clusters}
	for i, s := range sets {
		p.workers = append(p.workers, onWorker{set: s, groups: make(map[string]*telemetry.Group),
			writer: telemetry.Writer{Worker: i, Format: telemetry.NewFormatter(env)}})
	}
	for i := range p.workers {
		on := &p.workers[i]
		on.set.Before(func() { on.live.Each(func(t *tcpproxy.Record) { p.moved(i, t) }) })
	}
	return p
}

// log gives the compiled access logs of a filter. One that can't be opened is
// left out; Build of the chain has reported it.
func (p *Reports) log(f *config.TCPProxy) *telemetry.Log {
	if len(f.AccessLogs) == 0 {
		return nil
	}
	if l, ok := p.logs.Load(f); ok {
		return l.(*telemetry.Log)
	}
	l, err := p.files.Compile(f.AccessLogs)
	if err != nil && l == nil {
		l = &telemetry.Log{}
	}
	p.logs.Store(f, l)
	return l
}

// Log implements tcpproxy.Options.Log.
func (p *Reports) Log(t *tcpproxy.Record) {
	d := t.Downstream
	r := p.record(t)
	w := d.Conn.Worker().Index()
	on := &p.workers[w]
	if r.LogType = string(t.Log); t.Log == tcpproxy.AtEnd {
		if c := p.clusters.Local(w).Get(t.Cluster); c != nil && r.Flags.Has(telemetry.URX) {
			c.Stats[pool.CxConnectAttemptsExceeded]++
		}
		p.count(w, t)
		p.countIstio(on, t, r, true)
	}
	on.writer.Emit(p.log(t.Filter), r)
}

// record is what telemetry knows of a connection by now.
func (p *Reports) record(t *tcpproxy.Record) *telemetry.Record {
	d := t.Downstream
	facts := Facts(d)
	facts.Remote = d.Src
	r := &telemetry.Record{Conn: &facts, TCP: true, Wall: d.BeganAt(), Start: t.Start, End: t.End,
		Remote: d.Src, BytesIn: t.Received, BytesOut: t.Sent, DownWireIn: t.Received, DownWireOut: t.Sent,
		UpWireOut: t.UpstreamSent, UpWireIn: t.UpstreamReceived, ClusterRaw: t.Cluster, Cluster: t.Cluster,
		UpstreamLocal: t.UpstreamLocal, UpstreamTLS: t.UpstreamTLS, UpstreamFailure: t.TransportFailure, CloseDown: t.DownstreamClose, CloseUp: t.UpstreamEnds, Attempts: t.Attempts, Dynamic: d.Notes().Dynamic}
	if t.UpstreamRemote.IsValid() {
		r.UpstreamHost = netip.AddrPortFrom(t.UpstreamRemote.Addr().Unmap(), t.UpstreamRemote.Port()).String()
	}
	if t.Connected != 0 {
		r.UpstreamRemote = r.UpstreamHost
	}
	if t.Host != nil {
		r.HostMetadata, r.Workload = t.Host.Metadata, t.Host.Workload
		if r.UpstreamHost == "" {
			r.UpstreamHost = t.Host.Address.String()
		}
	}
	if t.UpstreamPeer != nil {
		r.UpstreamPeer = telemetry.ParsePeerAny(t.UpstreamPeer.Metadata)
	}
	for _, f := range t.Flags {
		r.Flags.Set(telemetry.FlagOf(f))
	}
	if c := p.clusters.Local(d.Conn.Worker().Index()).Get(t.Cluster); c != nil {
		r.Cluster, r.ClusterMetadata, r.ClusterService = c.Stat, c.Config.Metadata, c.Service
	}
	return r
}

// Plain are the Facts that cost nothing to make: all but TLS and Peer.
func Plain(d *downstream.Connection) telemetry.Conn {
	n := d.Notes()
	f := telemetry.Conn{ID: d.ID, Start: d.Start, Local: d.Dst, Remote: d.Src, Direct: d.Direct(), SNI: d.SNI, Failure: n.TransportFailure,
		Termination: n.Termination}
	if d.Listener != nil {
		f.Listener, f.StatPrefix, f.Direction = d.Listener.Name, d.Listener.StatPrefix, d.Listener.Direction
	}
	if d.Chain != nil {
		f.Chain = d.Chain.Name
	}
	if d.TLS != nil {
		f.ALPN = d.TLS.ALPN
	}
	return f
}

// Facts are what telemetry wants to know of a downstream connection.
func Facts(d *downstream.Connection) telemetry.Conn {
	f := Plain(d)
	if m := d.Notes().PeerMetadata; m != nil {
		f.Peer = telemetry.ParsePeerAny(m)
	}
	t := d.TLS
	if t == nil {
		return f
	}
	f.TLS = &telemetry.TLS{Version: telemetry.VersionName(t.Version), Cipher: telemetry.CipherName(t.Cipher),
		SessionID: t.Session, PeerURI: t.PeerURIs, PeerDNS: t.PeerDNS, LocalURI: t.LocalURIs, LocalDNS: t.LocalDNS,
		PeerSubject: t.PeerSubject, PeerIssuer: t.PeerIssuer, LocalSubject: t.LocalSubject, PeerSum: t.PeerHash,
		PeerSerial: t.PeerSerial, Presented: len(t.Peer) > 0, Validated: t.Verified}
	if len(t.Peer) > 0 {
		f.TLS.Peer = t.Peer[0]
	}
	return f
}
