package upstream

import (
	"net/netip"
	"strings"

	"sluice/internal/config"
	"sluice/internal/h1"
	"sluice/internal/h2"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/upstream/balance"
	"sluice/upstream/pool"
)

// Local is one worker's clusters. It is used on that worker only.
type Local struct {
	all      *Clusters
	index    int
	worker   *worker.Worker
	clusters map[string]*Cluster
	hidden   []uint64 // counters of clusters without statistics
	heads    *httpmsg.Pool
	streams  *h2.Pool
	seed     uint64
	metadata map[config.Packed]*Metadata
}

func newLocal(c *Clusters, i int, w *worker.Worker) *Local {
	l := &Local{all: c, index: i, worker: w, clusters: make(map[string]*Cluster), hidden: make([]uint64, len(pool.Stats())),
		heads: &httpmsg.Pool{}, streams: &h2.Pool{}, seed: uint64(i+1) * 0x9E3779B97F4A7C15}
	w.OnTrim(func() { *l.heads, *l.streams = httpmsg.Pool{}, h2.Pool{} })
	return l
}

// Get gives a cluster, nil when there is none of that name. The result stays
// usable when the cluster is replaced meanwhile.
func (l *Local) Get(name string) *Cluster {
	if c := l.clusters[name]; c != nil {
		return c
	}
	return l.firstUse(name)
}

// Cluster is one cluster on one worker.
type Cluster struct {
	Config   *config.Cluster
	Stat     string // alt_stat_name, or the name
	Stats    []uint64
	Metadata config.Metadata
	Service  *telemetry.Service // istio.services[0] of the metadata, nil without
	local    *Local
	shared   *shared
	group    *telemetry.Group
	hosts    []*Host
	bal      []*balance.Host
	byKey    map[string]*Host
	set      *balance.Set
	sub      *subsets // nil: the cluster isn't divided
	weights  []uint32
	pools    pool.Cluster
	dst      *originalDst
	codecs   *codecs
}

// codecs are the statistics of a cluster's codecs; they outlive its changes.
type codecs struct {
	http1 h1.Counters
	http2 h2.Counters
}

func (c *codecs) each(emit func(string, uint64, telemetry.Kind)) {
	if c.http1.Used {
		c.http1.Each(func(name string, v uint64) { emit("http1."+name, v, telemetry.Counter) })
	}
	if c.http2.Used {
		c.http2.Each(func(name string, v uint64) { emit("http2."+name, v, telemetry.Counter) })
	}
}

func (l *Local) set(name string, sh *shared, cfg *config.Cluster, hosts []*hostState, weights []uint32) {
	c := l.clusters[name]
	if c == nil || c.shared != sh {
		old := c
		c = l.newCluster(name, sh, cfg, old)
		if old != nil {
			old.drain()
		}
		l.clusters[name] = c
	}
	c.Config, c.pools.Config = cfg, cfg
	c.update(hosts, weights)
}

func (l *Local) newCluster(name string, sh *shared, cfg *config.Cluster, old *Cluster) *Cluster {
	c := &Cluster{Config: cfg, Stat: cfg.AltStatName, Stats: l.hidden, local: l, shared: sh, byKey: make(map[string]*Host), Metadata: cfg.Metadata.Unpack()}
	if c.Stat == "" {
		c.Stat = name
	}
	c.Service = service(c.Metadata)
	if c.codecs = new(codecs); old != nil {
		c.codecs = old.codecs
	}
	set := l.all.opts.Sets
	switch {
	case old != nil && old.group != nil:
		c.group = old.group
	case l.index < len(set) && (l.all.opts.Keep == nil || l.all.opts.Keep(name)):
		c.group = set[l.index].Add("cluster", c.Stat, pool.Stats())
	}
	if c.group != nil {
		c.Stats = c.group.Values
		c.group.More = func(emit func(string, uint64, telemetry.Kind)) {
			if l.index == 0 {
				sh.gauges(c, emit)
			}
			if c.sub != nil {
				c.sub.count(l.index == 0, emit)
			}
			c.codecs.each(emit)
		}
	}
	c.pools = pool.Cluster{Worker: l.worker, Config: cfg, Breakers: &sh.breakers, Stats: c.Stats, Secure: l.secure(c.Stats),
		NextID: func() uint64 { return l.all.nextID.Add(1) }, H1: h1Options(cfg, l.heads), H2: h2Options(cfg, l.streams, &c.codecs.http2)}
	c.pools.H1.Counters = &c.codecs.http1
	if cfg.Type == config.OriginalDst {
		c.dst = newOriginalDst(c)
	}
	return c
}

func service(m config.Metadata) *telemetry.Service {
	v, _ := m.Lookup("istio", "services")
	list, _ := v.(config.List)
	if len(list) == 0 {
		return nil
	}
	s, _ := list[0].(config.Struct)
	text := func(k string) string { t, _ := s[k].(string); return t }
	return &telemetry.Service{Host: text("host"), Name: text("name"), Namespace: text("namespace")}
}

func h1Options(cfg *config.Cluster, heads *httpmsg.Pool) *h1.Options {
	o := cfg.HTTP.HTTP1
	return &h1.Options{MaxHeaders: cfg.MaxHeaders, MaxHeaderBytes: maxResponse(cfg), EnableTrailers: o.EnableTrailers,
		AllowChunkedLength: o.AllowChunkedLength, SendFullyQualified: o.SendFullyQualified, ProperCase: o.ProperCase,
		PreserveCase: o.PreserveCase, PreserveElseProper: o.PreserveElseProper, ForwardReason: o.ForwardReason, Pool: heads}
}

func h2Options(cfg *config.Cluster, p *h2.Pool, n *h2.Counters) *h2.Options {
	o := cfg.HTTP.HTTP2
	h := h2.Options{HeaderTableSize: o.HeaderTableSize, MaxConcurrentStreams: o.MaxConcurrentStreams, InitialStreamWindow: o.InitialStreamWindow,
		InitialConnWindow: o.InitialConnWindow, MaxHeaders: cfg.MaxHeaders, MaxHeaderBytes: maxResponse(cfg),
		MaxOutboundFrames: o.MaxOutboundFrames, MaxOutboundControl: o.MaxOutboundControl, MaxConsecutiveEmpty: o.MaxConsecutiveEmpty,
		MaxPriorityPerStream: o.MaxPriorityPerStream, MaxWindowUpdatePerData: o.MaxWindowUpdatePerData, AllowConnect: o.AllowConnect,
		StreamErrorOnInvalid: o.StreamErrorOnInvalid, Pool: p, Counters: n}
	return h.WithDefaults(true)
}

// maxResponse is the limit of a response head: 80 KiB unless configured.
func maxResponse(cfg *config.Cluster) int {
	if cfg.MaxHeadersKB > 0 && cfg.MaxHeadersKB != 60 {
		return cfg.MaxHeadersKB << 10
	}
	return 0
}

// update makes hosts the current ones; known hosts keep their pools.
func (c *Cluster) update(states []*hostState, weights []uint32) {
	next := make(map[string]*Host, len(states))
	c.hosts, c.weights = c.hosts[:0:0], weights
	for _, s := range states {
		if next[s.key] != nil {
			continue
		}
		h := c.byKey[s.key]
		if h == nil {
			h = c.newHost(s)
		} else {
			h.refresh(s)
		}
		next[s.key] = h
		c.hosts = append(c.hosts, h)
	}
	for k, h := range c.byKey {
		if next[k] == nil {
			h.drain()
		}
	}
	c.byKey = next
	c.rebalance()
}

// rebalance builds the balancing set from the hosts' health now.
func (c *Cluster) rebalance() {
	c.bal = c.bal[:0]
	for i, h := range c.hosts {
		h.rate()
		h.Index = i
		c.bal = append(c.bal, &h.Host)
	}
	c.local.seed = c.local.seed*6364136223846793005 + 1442695040888963407
	c.set = balance.New(c.Config, c.bal, c.weights, c.local.seed)
	c.divide()
}

// ejected follows a change of outlier or health check state: a host that is out
// loses its connections.
func (c *Cluster) ejected(s *hostState, out bool) {
	c.rebalance()
	if !out {
		return
	}
	for _, h := range c.hosts {
		if h.state.health == s.health {
			for _, p := range h.pools {
				p.CloseIdle()
			}
		}
	}
}

// matches tells how many hosts took each of transport_socket_matches.
func (c *Cluster) matches(tell func(name string, n int)) {
	list := c.Config.SocketMatches
	counts := make([]int, len(list))
	for _, h := range c.hosts {
		if i := h.match(); i >= 0 {
			counts[i]++
		}
	}
	for i := range list {
		tell(list[i].Name, counts[i])
	}
}

func (c *Cluster) drain() {
	for _, h := range c.hosts {
		h.drain()
	}
	if c.dst != nil {
		c.dst.drain()
	}
}

func (l *Local) remove(name string) {
	c := l.clusters[name]
	if c == nil {
		return
	}
	delete(l.clusters, name)
	c.drain()
	if c.group != nil && l.index < len(l.all.opts.Sets) {
		l.all.opts.Sets[l.index].Remove(c.group)
	}
}

// Query is what Pick needs to know of a request or connection.
type Query struct {
	balance.Query
	OriginalDst netip.AddrPort // where the client meant to go
	From        *From          // for PROXY headers; nil: none are sent
	Match       config.Struct  // metadata the host must have, for lb_subset_config
	DstHeader   string         // value of the ORIGINAL_DST cluster's header, "" when absent
}

// Pick chooses a host, nil when there is none.
func (c *Cluster) Pick(q *Query) *Host {
	if c.dst != nil {
		return c.dst.pick(q)
	}
	q.Now = c.local.worker.Now()
	if c.set.Panic() {
		c.Stats[pool.LBHealthyPanic]++
	}
	var b *balance.Host
	if c.sub != nil {
		b = c.sub.pick(c.set, q)
	} else {
		b = c.set.Pick(&q.Query)
	}
	if b == nil {
		c.Stats[pool.CxNoneHealthy]++
		return nil
	}
	return c.hosts[b.Index]
}

// Breakers are the cluster's limits at a priority.
func (c *Cluster) Breakers(p config.Priority) *pool.Breakers { return &c.shared.breakers[p] }

// Count counts a response, to a request of an internal client or of another.
func (c *Cluster) Count(code int, internal bool) {
	c.Stats[pool.RqCompleted]++
	if c.group == nil {
		return
	}
	c.group.Code("upstream_rq_", code)
	if internal {
		c.group.Code("internal.upstream_rq_", code)
	} else {
		c.group.Code("external.upstream_rq_", code)
	}
}

// CountAs counts a response below another prefix, such as "retry.upstream_rq_".
func (c *Cluster) CountAs(prefix string, code int) {
	if c.group != nil {
		c.group.Code(prefix, code)
	}
}

// StreamOptions choose the pool of a request.
type StreamOptions struct {
	Downstream telemetry.Protocol
	ALPN       []string // override of the cluster's, by istio.alpn; nil: none
	ALPNKey    string   // ALPN joined
	Connection uint64   // downstream connection id
	Host       string   // authority, for auto_sni
}

// Acquire asks for a stream to h; r's User is called now or later, once.
func (c *Cluster) Acquire(h *Host, r *pool.Request, o *StreamOptions) {
	p := c.pool(h, o, r.Priority)
	if p == nil {
		c.Stats[pool.CxPoolOverflow]++
		r.User.OnNoStream(pool.Failure{Kind: pool.PoolOverflow})
		return
	}
	p.Acquire(r)
}

// pool gives the pool for a request, nil when there is none and no more may be.
func (c *Cluster) pool(h *Host, o *StreamOptions, priority config.Priority) *pool.Pool {
	k := pool.Key{Protocol: c.protocol(o), TLS: h.TLS()}
	if k.TLS != nil {
		k.ALPN = o.ALPNKey
		switch {
		case k.TLS.AutoHostSNI && h.Hostname != "":
			k.SNI = h.Hostname
		case c.Config.AutoSNI:
			k.SNI = hostOnly(o.Host)
		}
	}
	if c.Config.ConnPoolPerDown {
		k.Downstream = o.Connection
	}
	for _, p := range h.pools {
		if p.Key == k {
			return p
		}
	}
	if k.Downstream != 0 {
		h.forget((*pool.Pool).Idle, len(h.pools)) // pools of clients that are gone
	}
	limit := &c.Breakers(priority).Pools
	if !limit.Allow() {
		h.forget(func(p *pool.Pool) bool { return !p.Busy() }, 1)
		if !limit.Allow() {
			return nil
		}
	}
	return c.newPool(h, k, o, limit)
}

func (c *Cluster) newPool(h *Host, k pool.Key, o *StreamOptions, limit *pool.Limit) *pool.Pool {
	t := pool.Target{Addr: h.Addr, Pipe: h.state.pipe, Name: h.Name, Dial: h.dialOptions(), TLS: k.TLS, SNI: k.SNI}
	var alpn []string
	if k.ALPN != "" {
		alpn = o.ALPN
	} else if k.TLS != nil && len(k.TLS.ALPN) == 0 {
		switch k.Protocol {
		case pool.HTTP2:
			alpn = []string{"h2"}
		case pool.Auto:
			alpn = []string{"h2", "http/1.1"}
		}
	}
	p := pool.New(&c.pools, k, t, alpn, h.Conns)
	h.pools = append(h.pools, p)
	if h.removed {
		p.Drain()
	} else {
		p.TakePlace(limit)
	}
	return p
}

func (c *Cluster) protocol(o *StreamOptions) pool.Protocol {
	switch c.Config.HTTP.Kind {
	case config.UpstreamHTTP2:
		return pool.HTTP2
	case config.UpstreamDownstream:
		if o.Downstream == telemetry.HTTP2 {
			return pool.HTTP2
		}
	case config.UpstreamAuto:
		return pool.Auto
	}
	return pool.HTTP1
}

func hostOnly(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > 0 && strings.IndexByte(host[i:], ']') < 0 {
		return host[:i]
	}
	return host
}
