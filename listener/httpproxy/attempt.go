package httpproxy

import (
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
	"sluice/upstream"
	"sluice/upstream/pool"
)

// attempt is one try of a request at one host: the pool's user and the receiver
// of the response.
type attempt struct {
	r       *request
	wait    pool.Request
	host    *upstream.Host
	conn    *pool.Conn
	stream  httpmsg.Stream // nil before there is one and after its end
	opts    upstream.StreamOptions
	spliced func(n int) // onSpliced, bound once
	undial  func()      // gives up the dial of a CONNECT tunnel

	rx, tx uint64 // bytes of an HTTP/1 connection before the exchange

	sent   bool // the head went out
	begun  bool // an interim or final head came
	active bool // counted in host.Active

	absorbing bool // the content goes into the head
}

func (t *attempt) clear() {
	t.host, t.conn, t.stream = nil, nil, nil
	t.sent, t.begun, t.active, t.absorbing = false, false, false, false
	t.opts, t.undial = upstream.StreamOptions{}, nil
}

// sending reports whether the request's content goes straight out.
func (t *attempt) sending() bool { return t.stream != nil && t.sent }

// start asks for a stream to h.
func (t *attempt) start(h *upstream.Host) {
	r := t.r
	t.host, t.conn, t.stream, t.sent, t.begun, t.absorbing = h, nil, nil, false, false, false
	h.Active++
	t.active = true
	r.rec.HostMetadata, r.rec.HostLB, r.rec.Workload = h.Metadata.All, h.Metadata.LB, h.Metadata.Workload
	t.wait.Priority = r.route.Config.Action.Priority
	t.opts = upstream.StreamOptions{Downstream: r.rec.Protocol, ALPN: r.x.ALPN, ALPNKey: r.x.ALPNKey, Connection: r.facts.ID}
	if r.cluster.Config.AutoSNI {
		t.opts.Host = string(r.head.Authority())
	}
	r.cluster.Acquire(h, &t.wait, &t.opts)
}

// OnStream implements pool.User.
func (t *attempt) OnStream(s httpmsg.Stream, c *pool.Conn) {
	r := t.r
	t.stream, t.conn = s, c
	t.host.Report(upstream.Connected)
	r.rec.UpstreamHost, r.rec.UpstreamHostname, r.rec.UpstreamRemote = t.host.Name, t.host.Hostname, t.host.Name
	r.rec.UpstreamLocal, r.rec.UpstreamConn, r.rec.UpstreamTLS = c.Local, c.ID, c.TLS
	r.rec.UpstreamProtocol = c.Protocol()
	r.upstreamHead()
	r.count("total")
	now := r.local.worker.Now()
	if r.rec.UpstreamSend == 0 {
		r.rec.UpstreamSend = now
	}
	t.markWire()
	end := r.downEnd && len(r.body) == 0 && !r.hasTail
	t.sent = true
	if d := r.limits.upstream; d > 0 {
		r.local.worker.Start(&r.total, d)
	}
	r.head.SetWireSize(0)
	s.SendHead(&r.head, end)
	r.rec.UpHeadOut += uint64(headBytes(&r.head))
	if end {
		r.rec.UpstreamSent = now
		return
	}
	t.sendKept()
}

// markWire remembers where an HTTP/1 connection stands, for countWire.
func (t *attempt) markWire() {
	w := t.conn.Wire()
	t.rx, t.tx = w.BytesRead(), w.BytesWritten()+uint64(w.Pending())
}

// countWire notes what the exchange took on the wire, in all tries together. On
// HTTP/2, whose requests share the wire, it is nothing.
func (t *attempt) countWire() {
	if t.conn == nil || t.stream.HTTP2() {
		return
	}
	w := t.conn.Wire()
	t.r.rec.UpWireIn += w.BytesRead() - t.rx
	t.r.rec.UpWireOut += w.BytesWritten() + uint64(w.Pending()) - t.tx
}

// upstreamHead settles what depends on the host and its connection.
func (r *request) upstreamHead() {
	a := r.route.Config.Action
	if a.AutoHostRewrite && r.up.host.Hostname != "" && r.rec.Attempts == 1 {
		r.local.bufC = append(r.local.bufC[:0], r.up.host.Hostname...)
		route.SetHost(&r.head, r.local.bufC, a.AppendXFH, !r.proxy.config.Router.SuppressEnvoyHeaders)
	}
}

// sendKept sends the content that came so far.
func (t *attempt) sendKept() {
	r := t.r
	end := r.downEnd && !r.hasTail
	if len(r.body) > 0 || end {
		t.stream.SendData(r.body, end)
	}
	if r.hasTail && t.stream != nil {
		t.stream.SendTrailers(&r.last)
	}
	if r.downEnd {
		r.rec.UpstreamSent = r.local.worker.Now()
	}
	if !r.repeats() {
		r.body = r.body[:0]
	}
	if r.heldDown && !r.parked {
		r.heldDown = false
		r.down.Resume()
	}
}

// OnNoStream implements pool.User.
func (t *attempt) OnNoStream(f pool.Failure) {
	r := t.r
	t.idleHost()
	if f.Kind == pool.PoolOverflow { // for Envoy the host is none then
		r.noHost()
		return
	}
	cause := failureCause(f.Kind)
	if f.Kind != pool.Overflow {
		r.rec.UpstreamHost, r.rec.UpstreamHostname = t.host.Name, t.host.Hostname
		r.rec.UpstreamFailure = f.Reason
		if f.Kind == pool.ConnectTimeout {
			t.host.Report(upstream.LocalTimeout)
		} else {
			t.host.Report(upstream.LocalFailure)
		}
	}
	r.failed(cause, f.Reason)
}

// OnHead implements httpmsg.Receiver.
func (t *attempt) OnHead(h *httpmsg.Head, end bool) {
	r := t.r
	if r.over {
		return
	}
	t.begun = true
	r.touch()
	r.rec.UpHeadIn += uint64(headBytes(h))
	if h.Status < 200 && h.Status != 101 {
		r.onInterim(h)
		return
	}
	r.local.worker.Stop(&r.perTry)
	if t.conn != nil && t.conn.Protocol() != telemetry.HTTP2 && closes(h) {
		r.cluster.Stats[pool.CxCloseNotify]++
	}
	t.report(h)
	if end {
		t.done()
	}
	if r.retryHead(h) || r.follow(h) {
		return
	}
	r.rec.UpstreamFailure = ""
	if r.upgrade && r.upgrading && h.Status < 400 && h.Status != 101 {
		r.handshakeFailed(h)
		return
	}
	if !end && r.absorbs(h) {
		t.absorb(h)
		return
	}
	r.tunnel = !end && !r.down.HTTP2() && (h.Status == 101 && r.upgrade || r.connect && h.Status/100 == 2)
	r.respond(h, end)
	r.awaitTry()
}

// closes says that an HTTP/1 response ends its connection.
func closes(h *httpmsg.Head) bool {
	v := h.Get(httpmsg.Connection)
	return hasToken(v, "close") || h.Major == 1 && h.Minor == 0 && !hasToken(v, "keep-alive")
}

// report tells outlier detection the outcome, gRPC statuses in the head by what
// they mean.
func (t *attempt) report(h *httpmsg.Head) {
	code := h.Status
	if t.r.grpc && h.Has(httpmsg.GRPCStatus) {
		code = grpcToHTTP(string(h.Get(httpmsg.GRPCStatus)))
	}
	t.host.ReportCode(code)
}

// onInterim passes the first informational response on where that is asked for.
func (r *request) onInterim(h *httpmsg.Head) {
	r.plan.spent() // once anything came, nothing is retried
	if r.interim || !r.proxy.config.Proxy100Continue || r.headOut {
		return
	}
	switch h.Status {
	case 100, 102, 103:
		r.interim = true
		r.resp.CopyFrom(h)
		r.down.SendHead(&r.resp, false)
		r.resp.Reset()
	}
}

// OnData implements httpmsg.Receiver.
func (t *attempt) OnData(p []byte, end bool) {
	r := t.r
	if end {
		if r.tunnel && !r.over && t.conn != nil && !t.stream.HTTP2() { // for Envoy the end of an HTTP/1 tunnel is a reset
			r.blame(causeTerminated, "")
		}
		t.done()
	}
	if t.absorbing && !r.over {
		t.absorbed(p, end)
		return
	}
	if r.over || !r.headOut {
		return
	}
	r.touch()
	if r.chain.bodies {
		p = r.filterResponse(p, end)
	}
	r.rec.BytesOut += uint64(len(p))
	if end {
		r.rec.ResponseEnd = r.local.worker.Now()
	}
	r.down.SendData(p, end)
	if end {
		r.finish()
		return
	}
	if !r.over && r.down.Buffered() > httpmsg.HighWater && t.stream != nil {
		t.stream.Pause()
	}
	if len(p) >= bulkRead {
		t.bulk()
	}
	if r.plan.tryIdle() > 0 && !r.over {
		r.awaitTry()
	}
}

func (r *request) filterResponse(p []byte, end bool) []byte {
	for i := len(r.chain.filters) - 1; i >= 0; i-- {
		if b, ok := r.chain.filters[i].(filter.Body); ok {
			p = b.EncodeData(&r.x, r.slot(i), p, end)
		}
	}
	return p
}

// OnTrailers implements httpmsg.Receiver.
func (t *attempt) OnTrailers(h *httpmsg.Head) {
	r := t.r
	t.done()
	if t.absorbing && !r.over {
		t.absorbed(nil, true)
		return
	}
	if r.over || !r.headOut {
		return
	}
	r.tail.CopyFrom(h)
	r.rec.Trailers = &r.tail
	for i := len(r.chain.filters) - 1; i >= 0; i-- {
		if f, ok := r.chain.filters[i].(filter.Trailers); ok {
			f.EncodeTrailers(&r.x, r.slot(i), &r.tail)
		}
	}
	if r.chain.bodies && r.trailersAsData() {
		return
	}
	r.rec.ResponseEnd = r.local.worker.Now()
	r.down.SendTrailers(&r.tail)
	r.finish()
}

// OnReset implements httpmsg.Receiver.
func (t *attempt) OnReset(reason httpmsg.ResetReason) {
	r := t.r
	http2 := t.stream != nil && t.stream.HTTP2()
	t.release()
	if r.over {
		return
	}
	switch { // as Envoy's pools count: refused streams in neither
	case reason.Kind == httpmsg.ResetRemote:
		r.cluster.Stats[pool.RqRxReset]++
	case reason.Kind == httpmsg.ResetProtocolError && http2:
		r.cluster.Stats[pool.RqTxReset]++
	}
	t.host.Report(upstream.LocalFailure)
	c := resetCause(reason)
	if c == causeTerminated && r.headOut && !http2 && !r.tunnel {
		c = causeProtocol // the response was cut
	}
	r.failed(c, "")
}

// OnDrain implements httpmsg.Receiver: the upstream takes more.
func (t *attempt) OnDrain() { t.r.down.Resume() }

// done ends the exchange: the response is whole. An HTTP/2 request that is not
// is given up, since nobody reads it any more.
func (t *attempt) done() {
	if t.stream == nil {
		return
	}
	if t.stream.HTTP2() && !t.r.downEnd {
		t.stream.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetLocal})
	}
	t.release()
}

// release gives stream and host back.
func (t *attempt) release() {
	t.idleHost()
	if t.stream != nil {
		t.countWire()
		t.stream = nil
		if t.conn != nil {
			t.conn.Release(t.wait.Priority)
		}
	}
}

func (t *attempt) idleHost() {
	if t.active {
		t.active = false
		t.host.Active--
	}
}

// cancel gives the try up; the pool and the engine will not call any more.
func (t *attempt) cancel(kind httpmsg.ResetKind) {
	if t.wait.Waiting() {
		t.wait.Cancel()
	}
	if t.undial != nil {
		t.undial()
		t.undial = nil
	}
	if t.stream != nil {
		if t.stream.HTTP2() {
			t.r.cluster.Stats[pool.RqTxReset]++
		}
		t.conn.Drop()
		t.stream.Reset(httpmsg.ResetReason{Kind: kindOr(kind, httpmsg.ResetLocal)})
	}
	t.release()
}

func kindOr(k, d httpmsg.ResetKind) httpmsg.ResetKind {
	if k == httpmsg.ResetNone {
		return d
	}
	return k
}

// grpcToHTTP is what a gRPC status means as an HTTP one.
func grpcToHTTP(s string) int {
	switch s {
	case "0":
		return 200
	case "1":
		return 499
	case "3", "9", "11":
		return 400
	case "4":
		return 504
	case "5":
		return 404
	case "6", "10":
		return 409
	case "7":
		return 403
	case "8":
		return 429
	case "12":
		return 501
	case "14":
		return 503
	case "16":
		return 401
	}
	return 500
}

func addFlag(r *request, f telemetry.Flag) { r.rec.Flags.Set(f) }
