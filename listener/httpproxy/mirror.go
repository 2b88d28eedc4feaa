package httpproxy

import (
	"bytes"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/worker"
	"sluice/listener/route"
	"sluice/upstream"
	"sluice/upstream/pool"
)

// shadow is a copy of a request on its way to a mirror cluster. Nobody waits
// for its answer. It is made once the request is whole.
type shadow struct {
	local   *local
	cluster *upstream.Cluster
	host    *upstream.Host
	conn    *pool.Conn
	stream  httpmsg.Stream
	wait    pool.Request
	head    httpmsg.Head
	tail    httpmsg.Head
	hasTail bool
	body    []byte
	timer   worker.Timer
}

// mirror arms the route's shadow policies for this request: the ones that its
// share of requests selects.
func (r *request) mirror() {
	r.mirrors = r.mirrors[:0]
	for i := range r.route.Mirrors {
		m := &r.route.Mirrors[i]
		if f := m.Fraction; f != nil && r.local.rnd.Uint64()%1_000_000 >= uint64(f.PerMillion) {
			continue
		}
		r.mirrors = append(r.mirrors, m)
	}
	if len(r.mirrors) > 0 && r.downEnd {
		r.sendMirrors()
	}
}

// sendMirrors sends the copies of a whole request.
func (r *request) sendMirrors() {
	for _, m := range r.mirrors {
		name := m.Cluster
		if name == "" && m.ClusterHeader != "" {
			v, _ := r.head.Value(m.ClusterHeader)
			name = string(v)
		}
		if c := r.local.clusters.Get(name); c != nil {
			r.shadowTo(c, m)
		}
	}
	r.mirrors = r.mirrors[:0]
}

func (r *request) shadowTo(c *upstream.Cluster, m *config.Mirror) {
	s := &shadow{local: r.local, cluster: c}
	s.wait.User = s
	s.head.CopyFrom(&r.head)
	s.head.Del(httpmsg.XEnvoyExpectedRqTimeoutMs)
	if m.HostRewrite != "" {
		s.head.SetAuthority([]byte(m.HostRewrite))
	} else if !m.NoShadowSuffix {
		a := s.head.Authority()
		bare := route.StripPort(a)
		s.head.SetAuthority([]byte(string(bare) + "-shadow" + string(a[len(bare):])))
	}
	if !s.head.Has(httpmsg.XEnvoyInternal) {
		s.head.SetString(httpmsg.XEnvoyInternal, "true")
	}
	own := r.local.bufA[:0]
	if r.local.own.IsValid() {
		own = r.local.own.AppendTo(own)
		s.head.AppendComma(httpmsg.XForwardedFor, own)
		r.local.bufA = own
	}
	route.CompileMutations(m.HeaderMutations).Apply(&s.head, r.eval, &r.edits)
	s.body = bytes.Clone(r.body)
	if r.hasTail {
		s.hasTail = true
		s.tail.CopyFrom(&r.last)
	}
	var q upstream.Query
	if r.conn.down.Restored {
		q.OriginalDst = r.conn.down.Dst
	}
	q.Hash, q.HasHash = r.hashed, r.hasHash
	s.host = c.Pick(&q)
	if s.host == nil {
		c.Count(503)
		return
	}
	s.timer.Fire = s.late
	if r.limits.global > 0 {
		r.local.worker.Start(&s.timer, r.limits.global)
	}
	s.host.Active++
	o := upstream.StreamOptions{Downstream: r.rec.Protocol, ALPN: r.x.ALPN, ALPNKey: r.x.ALPNKey, Connection: r.conn.facts.ID,
		Host: string(s.head.Authority())}
	c.Acquire(s.host, &s.wait, &o)
}

// OnStream implements pool.User.
func (s *shadow) OnStream(st httpmsg.Stream, c *pool.Conn) {
	s.stream, s.conn = st, c
	end := len(s.body) == 0 && !s.hasTail
	st.SendHead(&s.head, end)
	if s.stream != nil && !end {
		if len(s.body) > 0 {
			s.stream.SendData(s.body, !s.hasTail)
		}
		if s.hasTail && s.stream != nil {
			s.stream.SendTrailers(&s.tail)
		}
	}
	s.body = nil
}

// OnNoStream implements pool.User.
func (s *shadow) OnNoStream(pool.Failure) {
	s.cluster.Count(503)
	s.done()
}

// OnHead implements httpmsg.Receiver; the answer is dropped as it is read.
func (s *shadow) OnHead(h *httpmsg.Head, end bool) {
	if h.Status >= 200 {
		s.cluster.Count(h.Status)
		s.host.ReportCode(h.Status)
	}
	if end {
		s.done()
	}
}

// OnData implements httpmsg.Receiver.
func (s *shadow) OnData(_ []byte, end bool) {
	if end {
		s.done()
	}
}

// OnTrailers implements httpmsg.Receiver.
func (s *shadow) OnTrailers(*httpmsg.Head) { s.done() }

// OnReset implements httpmsg.Receiver.
func (s *shadow) OnReset(httpmsg.ResetReason) { s.done() }

// OnDrain implements httpmsg.Receiver.
func (s *shadow) OnDrain() {}

func (s *shadow) late() {
	if s.wait.Waiting() {
		s.wait.Cancel()
	}
	s.cluster.Stats[pool.RqTimeout]++
	if st := s.stream; st != nil {
		st.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetLocal})
	}
	s.done()
}

func (s *shadow) done() {
	s.local.worker.Stop(&s.timer)
	if s.host != nil {
		s.host.Active--
		s.host = nil
	}
	if s.stream != nil {
		s.stream = nil
		s.conn.Release(s.wait.Priority)
	}
}

// follow follows an internal redirect of the upstream, where the route wants
// it: the client doesn't see it.
func (r *request) follow(h *httpmsg.Head) bool {
	p := r.route.Config.Action.InternalRedirect
	if p == nil || !redirects(p, h.Status) {
		return false
	}
	v := r.group.Values
	target := string(h.Get(httpmsg.Location))
	scheme, host, path, ok := splitURL(target)
	switch {
	case r.follows >= max(1, p.Max):
		v[redirectTooMany]++
	case target == "" || !ok:
		v[redirectBadLocation]++
	case scheme != string(r.head.Scheme()) && !p.AllowCross:
		v[redirectScheme]++
	case !r.downEnd || r.lost > 0:
	default:
		if r.redirectTo(p, h, scheme, host, path) {
			r.cluster.Stats[pool.InternalRedirectSucceeded]++
			return true
		}
	}
	r.cluster.Stats[pool.InternalRedirectFailed]++
	return false
}

func redirects(p *config.InternalRedirect, status int) bool {
	if len(p.Codes) == 0 {
		return status == 302
	}
	for _, c := range p.Codes {
		if c == status {
			return true
		}
	}
	return false
}

func splitURL(s string) (scheme, host, path string, ok bool) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return "", "", "", false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host, path = rest[:i], rest[i:]
	} else {
		host = rest
	}
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	path, _, _ = strings.Cut(path, "#")
	return scheme, host, path, host != ""
}

// redirectTo sends the request to where the upstream pointed.
func (r *request) redirectTo(p *config.InternalRedirect, h *httpmsg.Head, scheme, host, path string) bool {
	var saved httpmsg.Head
	saved.CopyFrom(&r.head)
	status := h.Status
	before := string(r.head.Scheme()) + "://" + string(r.head.Authority()) + string(r.head.Path())
	r.head.SetAuthority([]byte(host))
	r.head.SetPath([]byte(path))
	r.head.SetScheme([]byte(scheme))
	old, oldCluster := r.route, r.cluster
	r.findRoute()
	if r.route == nil || r.route.Config.Action == nil {
		r.head.CopyFrom(&saved)
		r.route, r.cluster, r.x.Route = old, oldCluster, old.Config
		r.group.Values[redirectNoRoute]++
		return false
	}
	r.up.cancelQuietly()
	r.follows++
	for _, name := range p.CopyHeaders {
		r.head.DelName(name)
		if v, ok := h.Value(name); ok {
			r.head.AddName(name, v)
		}
	}
	if status == 303 && string(r.head.Method()) != "GET" && string(r.head.Method()) != "HEAD" {
		r.head.SetMethod([]byte("GET"))
		r.head.Del(httpmsg.ContentLength)
		r.body = r.body[:0]
	}
	r.head.Del(httpmsg.XEnvoyOriginalPath)
	r.head.Del(httpmsg.XEnvoyOriginalHost)
	r.head.DelName("x-envoy-original-url")
	r.head.AddName("x-envoy-original-url", []byte(before))
	r.plan.settled()
	r.rec.Attempts = 0
	r.local.worker.Stop(&r.timeout)
	r.dispatch()
	if !r.over {
		r.requestComplete()
	}
	return true
}
