// Package istiostats is istio.stats: it reports every request and connection in
// the istio_* metrics, with the labels of Istio's standard metrics.
package istiostats

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct {
	policy  *config.IstioStats
	node    *telemetry.Node
	inbound bool
	scope   *telemetry.IstioScope

	mu        sync.Mutex
	workloads map[string]*telemetry.Peer
}

// New makes the filter for a listener of a direction; node is who we are.
func New(p *config.IstioStats, node *telemetry.Node, d config.Direction) *Filter {
	f := &Filter{policy: p, node: node, inbound: d == config.Inbound, workloads: make(map[string]*telemetry.Peer)}
	f.scope = &telemetry.IstioScope{Labels: f.labels}
	if len(p.Metrics) > 0 {
		f.scope.Override = f.override
	}
	return f
}

// Decode implements filter.HTTP.
func (f *Filter) Decode(*filter.Exchange, *filter.Slot) filter.Verdict { return filter.Continue }

// Encode implements filter.HTTP.
func (f *Filter) Encode(*filter.Exchange, *filter.Slot) {}

// Log implements filter.Logger.
func (f *Filter) Log(x *filter.Exchange, _ *filter.Slot) {
	r := x.Record
	k := f.key(r)
	k.Code, k.GRPC = uint16(r.Code), -2
	if r.GRPC {
		k.Protocol = 1
		if n, ok := r.GRPCStatus(); ok {
			k.GRPC = int16(n)
		}
	}
	if r.ClusterService == nil && !f.inbound && !f.policy.DisableHostFallback && builtIn(r) == "" {
		k.Host = string(x.Request.Authority())
	}
	x.Set.Istio.Request(k, r)
}

// Connection counts what a TCP connection did since the last call.
func (f *Filter) Connection(set *telemetry.Set, r *telemetry.Record, opened, closed, sent, received uint64) {
	k := f.key(r)
	k.Protocol, k.GRPC = 2, -2
	set.Istio.TCP(k, r, opened, closed, sent, received)
}

func (f *Filter) key(r *telemetry.Record) telemetry.IstioKey {
	k := telemetry.IstioKey{Scope: f.scope, Service: r.ClusterService, Host: builtIn(r)}
	if f.inbound {
		k.Peer = r.Peer
		if t := r.Conn.TLS; t != nil {
			if len(t.PeerURI) > 0 {
				k.URI = t.PeerURI[0]
			}
			k.MTLS = len(t.PeerURI) > 0 && len(t.LocalURI) > 0
			if len(t.LocalURI) > 0 {
				k.Local = t.LocalURI[0]
			}
		}
	} else {
		k.Peer, k.Workload = r.UpstreamPeer, r.Workload
		if t := r.UpstreamTLS; t != nil {
			if len(t.PeerURI) > 0 {
				k.URI = t.PeerURI[0]
			}
			if len(t.LocalURI) > 0 {
				k.Local = t.LocalURI[0]
			}
		}
	}
	if k.Peer == nil {
		k.Peer = r.Conn.Peer
	}
	return k
}

// builtIn is the name that stands for requests to no service of the mesh.
func builtIn(r *telemetry.Record) string {
	switch {
	case r.Route == "block_all":
		return "BlackHoleCluster"
	case r.Route == "allow_any":
		return "PassthroughCluster"
	}
	switch r.ClusterRaw {
	case "BlackHoleCluster", "PassthroughCluster", "InboundPassthroughCluster":
		return r.ClusterRaw
	}
	return ""
}

// peer gives the other side: what it told, else what its endpoint says.
func (f *Filter) peer(k *telemetry.IstioKey) *telemetry.Peer {
	switch {
	case k.Peer != nil:
		return k.Peer
	case k.Workload != "":
		f.mu.Lock()
		defer f.mu.Unlock()
		p := f.workloads[k.Workload]
		if p == nil {
			p = telemetry.PeerOfWorkload(k.Workload)
			f.workloads[k.Workload] = p
		}
		return p
	}
	return &telemetry.Peer{}
}

// labels builds the labels of a series, in the order Istio emits them.
func (f *Filter) labels(k *telemetry.IstioKey, flags string) []telemetry.Label {
	self, peer := &telemetry.Peer{}, f.peer(k)
	if f.node != nil {
		self = f.node.Self
	}
	reporter, src, dst := "source", self, peer
	srcURI, dstURI, policy := k.Local, k.URI, "unknown"
	if f.inbound {
		reporter, src, dst = "destination", peer, self
		srcURI, dstURI = k.URI, k.Local
		policy = "none"
		if k.MTLS {
			policy = "mutual_tls"
		}
	}
	host, name, namespace := service(k)
	srcNamespace := src.Namespace
	if ns := spiffeNamespace(srcURI); ns != "" && f.inbound {
		srcNamespace = ns
	}
	l := []telemetry.Label{{Name: "reporter", Value: reporter}, {Name: "source_workload", Value: src.Workload},
		{Name: "source_canonical_service", Value: src.Canonical}, {Name: "source_canonical_revision", Value: latest(src)},
		{Name: "source_workload_namespace", Value: srcNamespace}, {Name: "source_principal", Value: srcURI},
		{Name: "source_app", Value: src.App}, {Name: "source_version", Value: src.Version}, {Name: "source_cluster", Value: src.Cluster},
		{Name: "destination_workload", Value: dst.Workload}, {Name: "destination_workload_namespace", Value: dst.Namespace},
		{Name: "destination_principal", Value: dstURI}, {Name: "destination_app", Value: dst.App},
		{Name: "destination_version", Value: dst.Version}, {Name: "destination_service", Value: host},
		{Name: "destination_canonical_service", Value: dst.Canonical}, {Name: "destination_canonical_revision", Value: latest(dst)},
		{Name: "destination_service_name", Value: name}, {Name: "destination_service_namespace", Value: or(namespace, dst.Namespace)},
		{Name: "destination_cluster", Value: dst.Cluster}, {Name: "request_protocol", Value: [...]string{"http", "grpc", "tcp"}[k.Protocol]}}
	for i := range l {
		l[i].Value = or(l[i].Value, "unknown")
	}
	if k.Protocol != 2 {
		grpc := ""
		if k.GRPC != -2 {
			grpc = strconv.Itoa(int(k.GRPC))
		}
		l = append(l, telemetry.Label{Name: "response_code", Value: strconv.Itoa(int(k.Code))},
			telemetry.Label{Name: "grpc_response_status", Value: grpc})
	}
	l = append(l, telemetry.Label{Name: "response_flags", Value: flags}, telemetry.Label{Name: "connection_security_policy", Value: policy})
	return l
}

// override applies the configured overrides of a metric: those that name it and
// those for all.
func (f *Filter) override(metric string, l []telemetry.Label) ([]telemetry.Label, bool) {
	for i := range f.policy.Metrics {
		m := &f.policy.Metrics[i]
		if m.Name != "" && m.Name != metric {
			continue
		}
		if m.Drop {
			return nil, true
		}
		if len(m.Remove) > 0 {
			l = slices.DeleteFunc(slices.Clone(l), func(x telemetry.Label) bool { return slices.Contains(m.Remove, x.Name) })
		}
	}
	return l, false
}

func service(k *telemetry.IstioKey) (host, name, namespace string) {
	if s := k.Service; s != nil {
		return s.Host, s.Name, s.Namespace
	}
	if k.Host == "" {
		return "", "", ""
	}
	if strings.HasSuffix(k.Host, "Cluster") {
		return k.Host, k.Host, ""
	}
	bare, _, _ := strings.Cut(k.Host, ":")
	first, _, _ := strings.Cut(bare, ".")
	return k.Host, first, ""
}

func latest(p *telemetry.Peer) string { return or(p.Revision, "latest") }

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// spiffeNamespace is x of spiffe://domain/ns/x/sa/y.
func spiffeNamespace(uri string) string {
	_, rest, ok := strings.Cut(uri, "/ns/")
	if !ok {
		return ""
	}
	ns, _, _ := strings.Cut(rest, "/")
	return ns
}
