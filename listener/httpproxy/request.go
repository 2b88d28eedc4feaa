package httpproxy

import (
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/filter"
	"sluice/listener/relay"
	"sluice/listener/route"
	"sluice/upstream"
	"sluice/upstream/call"
)

// request is one request and its response. It is reused by its worker; the
// funcs bound at its making live as long as it does.
type request struct {
	local *local
	proxy *Proxy
	conn  *conn
	group *telemetry.Group
	table *table
	down  httpmsg.Stream

	head  httpmsg.Head // the request, as it goes upstream
	resp  httpmsg.Head
	tail  httpmsg.Head // the response's trailers
	last  httpmsg.Head // the request's trailers, kept for a retry
	rec   telemetry.Record
	facts telemetry.Conn // rec.Conn: made for each request, so that an idle connection needn't hold it

	x     filter.Exchange
	slots []filter.Slot
	chain *chain
	at    int

	match    route.Request
	route    *route.Route
	weighted int
	cluster  *upstream.Cluster
	edits    route.Scratch
	eval     route.Eval // of header values: what is missing is empty
	evalText route.Eval // of the rest: it is a dash
	plan     retryPlan
	query    upstream.Query
	up       attempt
	limits   limits
	hashed   uint64
	hasHash  bool
	body     []byte // content that came before there was a stream, or is kept for a retry
	absorbed []byte // content of the response that goes into its head
	lost     int    // bytes of body that are no longer kept

	idle, timeout, perTry, total, whole, backoff worker.Timer
	meanwhile                                    worker.Timer // to the next record of a request that goes on
	headTime                                     worker.Timer // of a head on HTTP/2

	headSeen, downEnd, hasTail bool
	internal, needTLS, routed  bool
	parked, heldDown           bool // waiting for a filter; reading paused meanwhile
	gathering                  bool // parked until the content is whole
	answered                   bool // a response was decided on
	headOut                    bool
	waiting                    bool // between tries
	upgrade, connect           bool
	upgrading                  bool // counted as an upgrade
	tunnel                     bool // both directions are raw bytes
	grpc                       bool
	over                       bool
	interim                    bool // an informational response went out
	follows                    int  // internal redirects so far
	hops                       []hop
	altTimeout                 bool
	overridden                 bool // the client named the operation
	span                       telemetry.Span
	newCookies                 []string  // for the response, by hash policies
	shadows                    []*shadow // while the request isn't whole
	numbers                    [20]byte
}

func newRequest(l *local) *request {
	r := &request{local: l}
	r.up.r = r
	r.up.wait.User = &r.up
	r.eval = func(dst []byte, f *config.Format) []byte { return l.log.Format.Header(dst, f, &r.rec) }
	r.evalText = func(dst []byte, f *config.Format) []byte { return l.log.Format.Text(dst, f, &r.rec) }
	r.idle.Fire, r.timeout.Fire, r.perTry.Fire, r.meanwhile.Fire = r.onIdle, r.onTimeout, r.up.onPerTry, r.onLogInterval
	r.total.Fire, r.whole.Fire, r.backoff.Fire = r.onMaxDuration, r.onRequestTimeout, r.onBackoff
	r.headTime.Fire = r.onSlowHead
	r.x.Bind(r)
	r.x.Eval = r.eval
	return r
}

// begin takes a new stream of a connection.
func (r *request) begin(c *conn, s httpmsg.Stream) {
	l := r.local
	r.proxy, r.conn, r.down, r.group = c.proxy, c, s, c.group
	r.table = c.proxy.routes.table.Load()
	r.chain, r.weighted = c.proxy.filters(), -1
	r.over = false
	r.facts = relay.Plain(c.down)
	r.facts.TLS, r.facts.Peer = c.tls, c.peer
	r.rec.Conn = &r.facts
	r.rec.Start, r.rec.Wall = l.worker.Now(), l.worker.Wall()
	r.rec.StreamID = l.uuid()
	r.rec.Protocol = telemetry.HTTP11
	if s.HTTP2() {
		r.rec.Protocol = telemetry.HTTP2
	}
	r.counted()
	x := &r.x
	x.Worker, x.Conn, x.Record, x.Request, x.Set, x.Stats = l.worker, c.down, &r.rec, &r.head, l.set, r.group
	x.Random = l.rnd.Uint64()
	if d := c.proxy.config.RequestTimeout; d > 0 {
		l.worker.Start(&r.whole, d)
	}
	if d := c.proxy.config.RequestHeadersTime; d > 0 && s.HTTP2() {
		l.worker.Start(&r.headTime, d)
	}
}

// counted counts a request that begins.
func (r *request) counted() {
	v := r.group.Values
	v[rqTotal]++
	v[rqActive]++
	if r.down.HTTP2() {
		v[rqHTTP2]++
	} else {
		v[rqHTTP1]++
	}
}

// clear makes the object ready for the next request, keeping its memory.
func (r *request) clear() {
	for i := range r.slots {
		r.slots[i].Clear(r.local.worker)
	}
	r.head.Reset()
	r.resp.Reset()
	r.tail.Reset()
	r.last.Reset()
	r.rec.Reset()
	r.facts = telemetry.Conn{}
	x := &r.x
	x.Conn, x.Route, x.Host, x.Response, x.ALPN, x.ALPNKey = nil, nil, nil, nil, nil, ""
	x.End, x.Local, x.Whole, x.Content, x.Limit, x.Partial = false, false, false, nil, 0, false
	r.proxy, r.conn, r.down, r.table, r.route, r.cluster, r.chain = nil, nil, nil, nil, nil, nil, nil
	r.at, r.lost, r.follows, r.hashed = 0, 0, 0, 0
	if cap(r.body) > 64<<10 {
		r.body = nil
	}
	r.body, r.absorbed = r.body[:0], r.absorbed[:0]
	r.headSeen, r.downEnd, r.hasTail, r.internal, r.needTLS, r.routed = false, false, false, false, false, false
	r.parked, r.gathering, r.heldDown, r.answered, r.headOut, r.waiting = false, false, false, false, false, false
	r.tunnel, r.upgrade, r.connect, r.grpc, r.over, r.interim, r.hasHash, r.altTimeout = false, false, false, false, false, false, false, false
	r.newCookies, r.hops = r.newCookies[:0], r.hops[:0]
	r.plan.clear()
	r.overridden, r.upgrading = false, false
	r.span = telemetry.Span{}
	r.limits = limits{}
	r.up.clear()
	r.over = true // until begin: an engine that calls late changes nothing
}

func (r *request) slot(i int) *filter.Slot {
	for len(r.slots) <= i {
		r.slots = append(r.slots, filter.Slot{})
	}
	return &r.slots[i]
}

func (r *request) noteProtocol(h *httpmsg.Head) {
	r.headSeen = true
	if !r.down.HTTP2() && (h.Major != 1 || h.Minor != 1) { // Envoy knows no other
		r.rec.Protocol = telemetry.HTTP10
	}
	r.grpc = route.IsGRPC(h.Get(httpmsg.ContentType))
	r.rec.GRPC = r.grpc
	r.connect = string(h.Method()) == "CONNECT"
	r.upgrade = h.Has(httpmsg.Upgrade) && hasToken(h.Get(httpmsg.Connection), "upgrade")
}

// headBytes is the size of a head as its engine counted it, else that of names and
// values.
func headBytes(h *httpmsg.Head) (n int) {
	if n = h.WireSize(); n > 0 {
		return n
	}
	n = len(h.Method()) + len(h.Path()) + len(h.Authority()) + len(h.Scheme())
	if len(h.Method()) > 0 {
		n += len(":method") + len(":path") + len(":authority")
	} else {
		n += len(":status") + 3
	}
	for i := range h.Len() {
		if _, k, v, ok := h.Field(i); ok {
			n += len(k) + len(v)
		}
	}
	return n
}

func (r *request) setNumber(h *httpmsg.Head, id httpmsg.ID, n int64) {
	h.Set(id, strconv.AppendInt(r.numbers[:0], n, 10))
}

// OnData implements httpmsg.Receiver: content of the request.
func (r *request) OnData(p []byte, end bool) {
	if r.over {
		return
	}
	r.rec.BytesIn += uint64(len(p))
	r.touch()
	if end {
		r.downEnd = true
		r.rec.RequestEnd = r.local.worker.Now()
	}
	if r.tunnel && end {
		r.clientLeft(p)
		return
	}
	if !r.headOut || r.up.stream != nil {
		p = r.filterRequest(p, end)
		r.forwardBody(p, end)
	}
	if r.gathering && r.enough() {
		r.goOn()
	}
	if end && !r.over {
		r.requestComplete()
	}
}

// clientLeft ends a tunnel whose client sends no more: an HTTP/1 client that
// half-closes is taken as gone.
func (r *request) clientLeft(p []byte) {
	if r.up.stream != nil {
		r.up.stream.SendData(p, true)
	}
	r.down.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetConnTerminated})
	r.OnReset(httpmsg.ResetReason{Kind: httpmsg.ResetConnTerminated})
}

func (r *request) filterRequest(p []byte, end bool) []byte {
	if !r.chain.bodies {
		return p
	}
	for i, f := range r.chain.filters {
		if b, ok := f.(filter.Body); ok && i < r.at {
			p = b.DecodeData(&r.x, r.slot(i), p, end)
		}
	}
	return p
}

// forwardBody sends content on, or keeps it.
func (r *request) forwardBody(p []byte, end bool) {
	if r.answered && r.up.stream == nil {
		return // a local reply, or the upstream's answer is whole
	}
	for _, s := range r.shadows {
		s.data(p, end && !r.hasTail)
	}
	up := r.up.sending()
	if r.keeps() {
		r.keep(p, up)
		if r.over {
			return
		}
	}
	if !up {
		return
	}
	r.up.stream.SendData(p, end && !r.hasTail)
	if end {
		r.rec.UpstreamSent = r.local.worker.Now()
	} else if r.up.stream != nil && r.up.stream.Buffered() > httpmsg.HighWater {
		r.down.Pause()
	}
}

// keeps reports whether content must be remembered: for a stream to come, or
// for a retry.
func (r *request) keeps() bool {
	return r.lost == 0 && (!r.up.sending() || r.repeats()) && !r.answered
}

// repeats reports whether the content may be needed a second time.
func (r *request) repeats() bool {
	if r.plan.armed() {
		return true
	}
	a := r.action()
	return a != nil && a.InternalRedirect != nil
}

// keep remembers content up to the buffer limit.
func (r *request) keep(p []byte, streaming bool) {
	if r.gathering {
		r.gather(p)
		return
	}
	limit := r.bufferLimit()
	if len(r.body)+len(p) <= limit {
		r.body = append(r.body, p...)
		if !streaming && len(r.body) > limit-limit/4 && !r.downEnd {
			r.heldDown = true
			r.down.Pause()
		}
		return
	}
	switch {
	case streaming: // the request goes on, but can't be repeated
		r.plan.abandon()
		r.lost, r.body = len(r.body)+len(p), r.body[:0]
	case r.waiting:
		r.plan.abandon()
		r.reply(filter.Reply{Status: 507, Body: "exceeded request buffer limit while retrying upstream",
			Details: "request_payload_exceeded_retry_buffer_limit", GRPC: -1})
	default:
		// Data under way when reading was paused.
		r.body = append(r.body, p...)
		r.plan.abandon()
		r.heldDown = true
		r.down.Pause()
	}
}

func (r *request) bufferLimit() int {
	if r.route != nil && r.route.BufferLimit >= 0 {
		return r.route.BufferLimit
	}
	if r.x.Limit > 0 {
		return r.x.Limit
	}
	if l := r.proxy.listener; l != nil && l.BufferLimit > 0 {
		return l.BufferLimit
	}
	return 1 << 20
}

// OnTrailers implements httpmsg.Receiver.
func (r *request) OnTrailers(t *httpmsg.Head) {
	if r.over {
		return
	}
	r.downEnd, r.hasTail = true, true
	r.rec.RequestEnd = r.local.worker.Now()
	for _, s := range r.shadows {
		s.trailers(t)
	}
	if r.keeps() || !r.up.sending() {
		r.last.CopyFrom(t)
	}
	if r.up.sending() && !(r.answered && r.up.stream == nil) {
		r.up.stream.SendTrailers(t)
		r.rec.UpstreamSent = r.local.worker.Now()
	}
	r.requestComplete()
}

// OnDrain implements httpmsg.Receiver: the client takes more of the response.
func (r *request) OnDrain() {
	if r.up.stream != nil {
		r.up.stream.Resume()
	}
}

// OnReset implements httpmsg.Receiver: the client is gone, or broke the rules.
func (r *request) OnReset(reason httpmsg.ResetReason) {
	if r.over {
		return
	}
	if reason.Status != 0 && !r.headOut {
		r.brokenRequest(reason)
		return
	}
	switch {
	case reason.Kind == httpmsg.ResetRemote || reason.Kind == httpmsg.ResetRefused:
		if reason.Code != 0 { // an answered NO_ERROR is the client's good right
			r.rec.Flags.Set(telemetry.DR)
			r.rec.Details = "http2.remote_reset"
		}
	case reason.Kind == httpmsg.ResetHeaderLimit:
		r.rec.Flags.Set(telemetry.DR)
		r.rec.Details = reason.Detail
	case reason.Kind == httpmsg.ResetProtocolError:
		r.rec.Flags.Set(telemetry.DPE)
		r.rec.Details = reason.Detail
	default:
		r.rec.Flags.Set(telemetry.DC)
		r.rec.Details = "downstream_remote_disconnect"
	}
	r.group.Values[rqRxReset]++
	if !r.headOut {
		r.rec.Code = 0
	}
	r.down = gone{}
	r.up.cancel(httpmsg.ResetRemote)
	r.finish()
}

// brokenRequest answers a request that the engine refused.
func (r *request) brokenRequest(reason httpmsg.ResetReason) {
	r.answered = true
	r.up.cancel(httpmsg.ResetLocal)
	body := ""
	switch reason.Status {
	case 400:
		body = "Bad Request"
	case 408:
		body = "request header timeout"
	case 426:
		body = "Upgrade Required"
	case 431:
		body = "Request Header Fields Too Large"
	case 501:
		body = "Not Implemented"
	}
	if reason.Kind == httpmsg.ResetProtocolError || reason.Kind == httpmsg.ResetHeaderLimit {
		r.rec.Flags.Set(telemetry.DPE)
	}
	r.rec.Details = reason.Detail
	r.local500(filter.Reply{Status: reason.Status, Body: body, Details: reason.Detail, GRPC: -1})
}

// gone is the stream of a client that left.
type gone struct{}

func (gone) SendHead(*httpmsg.Head, bool) {}
func (gone) SendData([]byte, bool)        {}
func (gone) SendTrailers(*httpmsg.Head)   {}
func (gone) Reset(httpmsg.ResetReason)    {}
func (gone) Pause()                       {}
func (gone) Resume()                      {}
func (gone) Buffered() int                { return 0 }
func (gone) Detach()                      {}
func (gone) HTTP2() bool                  { return false }
func (gone) ID() uint64                   { return 0 }

// ClearRoute implements filter.Ops.
func (r *request) ClearRoute() {
	at := r.chain
	r.findRoute()
	r.chain = at // filters that ran keep their places
}

// Cluster implements filter.Ops.
func (r *request) Cluster(name string) *config.Cluster {
	if c := r.local.clusters.Get(name); c != nil {
		return c.Config
	}
	return nil
}

// Call implements filter.Ops.
func (r *request) Call(ask *call.Request, done func(*call.Answer)) (cancel func()) {
	return r.local.calls.Do(ask, done)
}

// Members implements filter.Ops.
func (r *request) Members(cluster string) (available, total int, ok bool) {
	c := r.local.clusters.Get(cluster)
	if c == nil {
		return 0, 0, false
	}
	available, total = c.Members()
	return available, total, true
}

// hasToken reports whether a comma-separated list has a token, case ignored.
func hasToken(list []byte, token string) bool { return httpmsg.HasToken(list, token) }

func equalFold(a []byte, b string) bool { return httpmsg.EqualFold(a, b) }
