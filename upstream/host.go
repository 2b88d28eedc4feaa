package upstream

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"sluice/internal/config"
	"sluice/internal/worker"
	"sluice/upstream/balance"
	"sluice/upstream/pool"
)

// hostState is one endpoint, shared by the workers.
type hostState struct {
	key      string // address and transport choice
	endpoint *config.Endpoint
	addr     netip.AddrPort
	pipe     string
	name     string // as logs show it
	hostname string
	locality int
	priority int
	since    time.Time
	health   *hostHealth
}

// hostHealth outlives changes of an endpoint's other properties.
type hostHealth struct {
	ejected    atomic.Bool
	failed     atomic.Bool // active health check
	fiveXX     atomic.Uint32
	gateway    atomic.Uint32
	local      atomic.Uint32
	out        ejection // under outlier.mu
	success    atomic.Uint32
	total      atomic.Uint32
	firstSince time.Time
}

// expand turns an endpoint of the configuration into hosts: one, or for DNS
// names as many as were resolved.
func (sh *shared) expand(e *config.Endpoint, l *config.Locality, ordinal int, now time.Time) []*hostState {
	base := hostState{endpoint: e, locality: ordinal, priority: int(l.Priority), hostname: e.Hostname, pipe: e.Address.Pipe}
	switch {
	case e.Address.Pipe != "":
		base.name = e.Address.Pipe
	case e.Address.IP.IsValid():
		base.addr, base.name = e.Address.IP, e.Address.IP.String()
		if t := sh.config.Type; base.hostname == "" && (t == config.StrictDNS || t == config.LogicalDNS) {
			base.hostname = e.Address.IP.Addr().String()
		}
	case e.Address.Hostname != "":
		return sh.expandName(base, now)
	default:
		base.name = e.Address.String()
	}
	return []*hostState{base.ready(now)}
}

func (sh *shared) expandName(base hostState, now time.Time) (out []*hostState) {
	e := base.endpoint
	if base.hostname == "" {
		base.hostname = e.Address.Hostname
	}
	if sh.inUse == nil {
		return nil // nothing looks its names up
	}
	r := sh.resolved[e.Address.Hostname]
	if r == nil {
		return nil
	}
	for _, a := range r.addrs {
		h := base
		h.addr = netip.AddrPortFrom(a, e.Address.Port)
		h.name = h.addr.String()
		out = append(out, h.ready(now))
		if sh.config.Type == config.LogicalDNS {
			break
		}
	}
	return out
}

func (h hostState) ready(now time.Time) *hostState {
	h.key = h.name + "|" + tlsMode(h.endpoint.Metadata)
	h.since = now
	h.health = &hostHealth{firstSince: now}
	return &h
}

// inherit keeps what happened to the host so far.
func (h *hostState) inherit(o *hostState) {
	h.health, h.since = o.health, o.since
}

// Host is an endpoint on one worker: its place in balancing and its pools.
type Host struct {
	balance.Host
	Endpoint *config.Endpoint
	Metadata *Metadata // of the endpoint; never nil
	Name     string    // address, as logs show it
	Hostname string    // "" when it has none
	Addr     netip.AddrPort
	state    *hostState
	cluster  *Cluster
	pools    []*pool.Pool
	used     int64 // of ORIGINAL_DST hosts: when it was last chosen
	removed  bool
}

func (c *Cluster) newHost(s *hostState) *Host {
	h := &Host{state: s, cluster: c}
	h.refresh(s)
	return h
}

// refresh takes over a new version of the endpoint.
func (h *Host) refresh(s *hostState) {
	h.state, h.Endpoint, h.Name, h.Hostname, h.Addr = s, s.endpoint, s.name, s.hostname, s.addr
	h.Metadata = h.cluster.local.Metadata(s.endpoint)
	h.Weight, h.Priority, h.Locality = max(1, s.endpoint.Weight), s.priority, s.locality
	h.HashKey = s.name
	if c := h.cluster.Config; s.hostname != "" && (c.RingHash.UseHostname || c.LBCommon.HostnameForHash) {
		h.HashKey = s.hostname
	}
	if k, ok := h.Metadata.LB["hash_key"].(string); ok {
		h.HashKey = k
	}
	h.rate()
	if w := h.cluster.Config.SlowStart; w != nil {
		h.Since = h.cluster.local.worker.Now() - int64(time.Since(s.since))
	}
}

// rate computes the health that balancing sees.
func (h *Host) rate() {
	h.Excluded = h.state.endpoint.Health == config.HealthDraining
	switch s := h.state; {
	case s.health.ejected.Load() || s.health.failed.Load() || !s.endpoint.Health.Usable():
		h.Health = balance.Unhealthy
	case s.endpoint.Health == config.HealthDegraded:
		h.Health = balance.Degraded
	default:
		h.Health = balance.Healthy
	}
}

// TLS is the endpoint's transport: the first match of transport_socket_matches,
// else the cluster's own; nil is plaintext.
func (h *Host) TLS() *config.UpstreamTLS {
	t, _ := h.transport()
	return t
}

// transport is TLS, and the PROXY header that goes ahead of it (nil: none).
func (h *Host) transport() (*config.UpstreamTLS, *config.ProxyHeader) {
	c := h.cluster.Config
	if i := h.match(); i >= 0 {
		return c.SocketMatches[i].TLS, c.SocketMatches[i].ProxyProtocol
	}
	return c.TLS, c.ProxyProtocol
}

// match is the first of transport_socket_matches that fits the endpoint, -1
// without one.
func (h *Host) match() int {
	list := h.cluster.Config.SocketMatches
	for i := range list {
		if fits(list[i].Match, h.Metadata.sockets) {
			return i
		}
	}
	return -1
}

func fits(want map[string]string, have config.Struct) bool {
	for k, v := range want {
		if text, _ := have[k].(string); text != v {
			return false
		}
	}
	return true
}

// Conns counts the host's HTTP connections on this worker.
func (h *Host) Conns() (n int) {
	for _, p := range h.pools {
		n += p.Conns()
	}
	return n
}

func (h *Host) dialOptions() worker.DialOptions {
	c := h.cluster.Config
	o := worker.DialOptions{Freebind: c.BindFreebind, Keepalive: c.Keepalive.Enabled, KeepIdle: c.Keepalive.Time,
		KeepEvery: c.Keepalive.Interval, KeepProbes: c.Keepalive.Probes}
	if c.Bind.IsValid() && c.Bind.Is4() == h.Addr.Addr().Unmap().Is4() {
		o.Bind = netip.AddrPortFrom(c.Bind, c.BindPort)
	}
	return o
}

// drain lets the pools go.
func (h *Host) drain() {
	h.removed = true
	for _, p := range h.pools {
		p.LeavePlace()
		p.Drain()
	}
}

// forget gives up at most n of the pools that fit.
func (h *Host) forget(fits func(*pool.Pool) bool, n int) {
	h.pools = slices.DeleteFunc(h.pools, func(p *pool.Pool) bool {
		if n == 0 || !fits(p) {
			return false
		}
		n--
		p.LeavePlace()
		p.Drain()
		return true
	})
}
