package httpproxy

import (
	"bytes"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/worker"
	"sluice/listener/route"
	"sluice/upstream"
	"sluice/upstream/pool"
)

// maxShadow is what a mirror may lag behind its request before it is given up.
const maxShadow = 1 << 20

// shadow is a copy of a request on its way to a mirror cluster, sent as the
// request comes. Nobody waits for its answer, and it holds nobody up.
type shadow struct {
	local   *local
	cluster *upstream.Cluster
	host    *upstream.Host // nil: over
	conn    *pool.Conn
	stream  httpmsg.Stream
	wait    pool.Request
	head    httpmsg.Head
	tail    httpmsg.Head
	hasTail bool
	end     bool   // the request is whole
	body    []byte // what came before there was a stream
	timer   worker.Timer
}

// mirror starts the route's shadows of this request: those of the policies that
// its share of requests selects.
func (r *request) mirror() {
	for i := range r.route.Mirrors {
		m := &r.route.Mirrors[i]
		if f := m.Fraction; f != nil && r.local.rnd.Uint64()%1_000_000 >= uint64(f.PerMillion) {
			continue
		}
		name := m.Cluster
		if name == "" && m.ClusterHeader != "" {
			v, _ := r.head.Value(m.ClusterHeader)
			name = string(v)
		}
		if c := r.local.clusters.Get(name); c != nil {
			r.shadowTo(c, m)
		}
	}
	if r.downEnd {
		r.mirrored()
	}
}

// mirrored leaves the shadows of a whole request to themselves.
func (r *request) mirrored() {
	for i, s := range r.shadows {
		if s.host != nil && r.limits.global > 0 {
			r.local.worker.Start(&s.timer, r.limits.global)
		}
		r.shadows[i] = nil
	}
	r.shadows = r.shadows[:0]
}

// dropShadows gives up those of a request that will never be whole.
func (r *request) dropShadows() {
	for i, s := range r.shadows {
		s.abandon()
		r.shadows[i] = nil
	}
	r.shadows = r.shadows[:0]
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
	route.CompileSequence(m.HeaderMutations).Apply(&s.head, r.eval, &r.edits)
	s.body, s.end = bytes.Clone(r.body), r.downEnd
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
		c.Count(503, true)
		return
	}
	s.timer.Fire = s.late
	r.shadows = append(r.shadows, s)
	s.host.Active++
	o := upstream.StreamOptions{Downstream: r.rec.Protocol, ALPN: r.x.ALPN, ALPNKey: r.x.ALPNKey, Connection: r.facts.ID,
		Host: string(s.head.Authority())}
	c.Acquire(s.host, &s.wait, &o)
}

// OnStream implements pool.User.
func (s *shadow) OnStream(st httpmsg.Stream, c *pool.Conn) {
	s.stream, s.conn = st, c
	last := s.end && !s.hasTail
	st.SendHead(&s.head, last && len(s.body) == 0)
	if s.stream != nil && len(s.body) > 0 {
		s.stream.SendData(s.body, last)
	}
	if s.stream != nil && s.hasTail {
		s.stream.SendTrailers(&s.tail)
	}
	s.body = nil
}

// data is content of the request.
func (s *shadow) data(p []byte, end bool) {
	s.end = s.end || end
	switch {
	case s.host == nil:
	case s.stream != nil:
		s.stream.SendData(p, end)
		if s.stream != nil && s.stream.Buffered() > maxShadow {
			s.abandon()
		}
	case len(s.body)+len(p) > maxShadow:
		s.abandon()
	default:
		s.body = append(s.body, p...)
	}
}

// trailers are those of the request.
func (s *shadow) trailers(t *httpmsg.Head) {
	s.end, s.hasTail = true, true
	switch {
	case s.host == nil:
	case s.stream != nil:
		s.stream.SendTrailers(t)
	default:
		s.tail.CopyFrom(t)
	}
}

// OnNoStream implements pool.User.
func (s *shadow) OnNoStream(pool.Failure) {
	s.cluster.Count(503, true)
	s.done()
}

// OnHead implements httpmsg.Receiver; the answer is dropped as it is read.
func (s *shadow) OnHead(h *httpmsg.Head, end bool) {
	if h.Status >= 200 {
		s.cluster.Count(h.Status, true)
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
	s.cluster.Stats[pool.RqTimeout]++
	s.abandon()
}

// abandon gives the shadow up.
func (s *shadow) abandon() {
	if s.wait.Waiting() {
		s.wait.Cancel()
	}
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
