package httpproxy

import (
	"maps"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
	"sluice/upstream"
)

// A request's life, in traffic order:
//
//	OnHead     the client's head is copied; it is checked, its path made
//	           canonical, its headers cleaned of what a client may not say
//	findRoute  the route table is read once; it holds for the whole request
//	decode     filters, which may answer, park or gather the content
//	dispatch   redirect or direct response, else: cluster, timeouts, retry
//	           policy, header edits
//	try        a host is picked and a stream acquired; attempt.go goes on there
//	OnData     the body follows, kept for a retry while that is possible
//	respond    the response's head: edits, filters, and out
//	finish     the record is emitted, once, and everything given back

// OnHead implements httpmsg.Receiver.
func (r *request) OnHead(h *httpmsg.Head, end bool) {
	r.local.worker.Stop(&r.headTime)
	r.head.CopyFrom(h)
	r.rec.Request = &r.head
	r.rec.DownHeadIn = uint64(headBytes(h))
	r.downEnd = end
	r.x.End = end
	r.continueHTTP2()
	r.noteProtocol(h)
	if end {
		r.rec.RequestEnd = r.local.worker.Now()
	}
	if !r.valid() || !r.canonical() {
		return
	}
	r.sanitize()
	r.findRoute()
	r.trace()
	if !r.upgradable() {
		return
	}
	if r.proxy.config.AccessLogOnNew {
		r.log("DownstreamStart")
	}
	r.startTimers()
	r.decode()
	if end {
		r.requestComplete()
	}
}

// findRoute chooses the route by the request as it is now.
func (r *request) findRoute() {
	r.route, r.x.Route, r.x.Host = nil, nil, nil
	r.rec.Route, r.rec.VirtualCluster = "", ""
	r.chain = r.proxy.filters()
	t := r.table
	if t == nil {
		return
	}
	m := &r.match
	m.Head, m.Random = &r.head, r.x.Random
	m.HTTPS = string(r.head.Get(httpmsg.XForwardedProto)) == "https"
	if tls := r.conn.down.TLS; tls != nil {
		m.TLSPresent, m.TLSValid = len(tls.Peer) > 0, tls.Verified
	}
	m.Internal, m.Metadata = r.internal, r.rec.Dynamic
	found, outcome := t.routes.Match(m)
	r.needTLS = outcome == route.TLSRequired
	r.route = found
	if found == nil {
		return
	}
	r.x.Route, r.x.Host = found.Config, found.Host.Config
	if c := found.Config; c.Action != nil || c.Redirect != nil || c.Direct != nil {
		r.rec.Route, r.rec.RouteMetadata = c.Name, c.Metadata
	}
	r.rec.VirtualHost, r.rec.VirtualHostMetadata = found.Host.Config.Name, found.Host.Config.Metadata
	r.chain = r.chainOf()
	r.virtualCluster(found.Host.Config)
}

// virtualCluster names the request for statistics.
func (r *request) virtualCluster(h *config.VirtualHost) {
	for i := range h.VirtualClusters {
		c := &h.VirtualClusters[i]
		if allHeaders(c.Headers, r) {
			r.rec.VirtualCluster = c.Name
			return
		}
	}
}

func allHeaders(list []config.HeaderMatch, r *request) bool {
	for i := range list {
		if !r.match.HeaderMatches(&list[i]) {
			return false
		}
	}
	return true
}

// decode runs the filters from where it stopped.
func (r *request) decode() {
	for r.at < len(r.chain.filters) {
		i := r.at
		switch r.chain.filters[i].Decode(&r.x, r.slot(i)) {
		case filter.Stop:
			return
		case filter.Park:
			r.parked = true
			return
		case filter.Gather:
			if r.gathered() {
				continue
			}
			return
		}
		r.catchUp(i)
		r.at++
	}
	r.dispatch()
}

// Resume implements filter.Ops.
func (r *request) Resume() {
	if !r.parked || r.over {
		return
	}
	r.parked = false
	r.at++
	r.decode()
	r.afterResume()
}

// afterResume catches up with what came while the request was parked.
func (r *request) afterResume() {
	if r.over || r.answered {
		return
	}
	if r.heldDown {
		r.heldDown = false
		r.down.Resume()
	}
	if r.downEnd {
		r.requestComplete()
	}
}

// dispatch does what the route says.
func (r *request) dispatch() {
	v := r.group.Values
	v[routerRqTotal]++
	if r.route == nil {
		v[noRoute]++
		r.rec.Flags.Set(telemetry.NR)
		r.reply(filter.Reply{Status: 404, Details: "route_not_found", GRPC: -1})
		return
	}
	c := r.route.Config
	switch {
	case r.needTLS:
		r.redirectToTLS()
	case c.Redirect != nil:
		r.redirect(c.Redirect)
	case c.Direct != nil:
		v[rqDirect]++
		r.routed = true
		r.direct(c.Direct)
	case c.Action != nil:
		r.forward(c.Action)
	}
}

// forward prepares the request for its cluster and makes the first try.
func (r *request) forward(a *config.RouteAction) {
	name, weighted := r.route.Cluster(&r.match)
	r.weighted = weighted
	r.cluster = r.local.clusters.Get(name)
	r.routed = true
	if r.cluster == nil {
		r.group.Values[noCluster]++
		r.rec.Flags.Set(telemetry.NC)
		status := a.NotFoundStatus
		if status == 0 || a.ClusterHeader != "" {
			status = 503
		}
		r.reply(filter.Reply{Status: status, Details: "cluster_not_found", GRPC: -1})
		return
	}
	r.rec.Cluster, r.rec.ClusterRaw = r.cluster.Stat, name
	r.rec.ClusterMetadata, r.rec.ClusterService = r.cluster.Metadata, r.cluster.Service
	if !r.strictHeaders() {
		return
	}
	r.planTimeouts(a)
	r.plan = planRetries(r)
	if len(r.body) > r.bufferLimit() {
		r.plan.abandon()
	}
	r.edit(a)
	r.hash(a)
	r.mirror()
	r.try()
}

// edit applies the route's header edits and rewrites, in Envoy's order.
func (r *request) edit(a *config.RouteAction) {
	first, _ := r.route.ClusterEdits(r.weighted)
	keep := !r.proxy.config.Router.SuppressEnvoyHeaders
	if vh := r.route.Host.Config; vh.IncludeAttemptCount {
		r.head.SetString(httpmsg.XEnvoyAttemptCount, "1")
	}
	r.decorateRequest()
	first.Apply(&r.head, r.eval, &r.edits)
	for _, m := range r.route.Request {
		m.Apply(&r.head, r.eval, &r.edits)
	}
	r.local.bufA = r.route.Rewrite(&r.head, r.weighted, keep, r.evalText, r.local.bufA)
	r.propagate()
}

// try picks a host and asks for a stream; the answer comes to r.up.
func (r *request) try() {
	r.rec.Attempts++
	r.setAttemptHeaders()
	q := &r.query // it would escape as a local variable
	*q = upstream.Query{}
	if r.conn.down.Restored {
		q.OriginalDst = r.conn.down.Dst
	}
	q.Hash, q.HasHash = r.hashed, r.hasHash
	q.Match = r.subset()
	if o := &r.cluster.Config.OriginalDst; o.UseHeader {
		name := o.Header
		if name == "" {
			name = "x-envoy-original-dst-host"
		}
		v, _ := r.head.Value(name)
		q.DstHeader = string(v)
	}
	r.plan.steer(q)
	if r.connect && r.terminates() {
		r.dialTunnel(q)
		return
	}
	h := r.cluster.Pick(q)
	if h == nil {
		r.noHost()
		return
	}
	r.plan.used(h)
	r.up.start(h)
	if r.over {
		return
	}
	if r.downEnd {
		r.startTryTimer()
	}
}

// subset is the metadata that the host must have: the route's, and what filters
// wrote for load balancing.
func (r *request) subset() config.Struct {
	want := r.route.Subset(r.weighted)
	own := r.rec.Dynamic["envoy.lb"]
	if len(own) == 0 || r.cluster.Config.Subset == nil {
		return want
	}
	out := make(config.Struct, len(want)+len(own))
	maps.Copy(out, want)
	maps.Copy(out, own)
	return out
}

func (r *request) noHost() {
	r.rec.Flags.Set(telemetry.UH)
	r.charge(503)
	r.reply(filter.Reply{Status: 503, Body: "no healthy upstream", Details: "no_healthy_upstream", GRPC: -1})
}

// respond sends the head of the response that is final.
func (r *request) respond(h *httpmsg.Head, end bool) {
	r.resp.CopyFrom(h)
	r.answered = true
	r.rec.Details = "via_upstream"
	r.rec.ResponseHead = r.local.worker.Now()
	r.plan.settled()
	if r.rec.RequestEnd != 0 && !r.proxy.config.Router.SuppressEnvoyHeaders {
		r.resp.Del(httpmsg.XEnvoyUpstreamServiceTime)
		r.setNumber(&r.resp, httpmsg.XEnvoyUpstreamServiceTime, (r.rec.ResponseHead-r.rec.RequestEnd)/1e6)
	}
	r.charge(h.Status)
	r.editResponse()
	r.send(end)
}

// editResponse applies the route's response edits.
func (r *request) editResponse() {
	r.rec.Response = &r.resp
	if r.rec.Code = 0; !r.x.Local {
		r.rec.Code = r.resp.Status
	}
	if r.route == nil || !r.routed {
		return
	}
	if r.route.Host.Config.IncludeAttemptResponse && r.rec.Attempts > 0 {
		r.setNumber(&r.resp, httpmsg.XEnvoyAttemptCount, int64(r.rec.Attempts))
	}
	_, first := r.route.ClusterEdits(r.weighted)
	first.Apply(&r.resp, r.eval, &r.edits)
	for _, m := range r.route.Response {
		m.Apply(&r.resp, r.eval, &r.edits)
	}
}

// send runs the encode filters and puts the head out.
func (r *request) send(end bool) {
	r.rec.Response = &r.resp
	r.rec.Code = r.resp.Status
	r.x.Response = &r.resp
	for i := len(r.chain.filters) - 1; i >= 0; i-- {
		r.chain.filters[i].Encode(&r.x, r.slot(i))
	}
	r.finalHeaders()
	r.conn.drainClose()
	r.conn.leaveOnDrain()
	r.rec.Code = r.resp.Status
	r.rec.SendHead = r.local.worker.Now()
	r.headOut = true
	r.resp.SetWireSize(0)
	r.down.SendHead(&r.resp, end)
	r.rec.DownHeadOut = uint64(headBytes(&r.resp))
	if r.proxy.config.AccessLogOnTunnel && !end && !r.over && (r.upgrade && r.rec.Code == 101 || r.connect && r.rec.Code/100 == 2) {
		r.log("DownstreamTunnelSuccessfullyEstablished")
	}
	if end {
		r.finish()
	}
}

// finish ends the request: nothing more comes or goes.
func (r *request) finish() {
	if r.over {
		return
	}
	r.over = true
	r.stopTimers()
	r.dropShadows()
	r.up.cancel(httpmsg.ResetNone)
	r.plan.settled()
	now := r.local.worker.Now()
	r.rec.End = now
	r.conn.countWire(&r.rec)
	if r.headOut && r.rec.SendEnd == 0 {
		r.rec.SendEnd = now
	}
	if c := r.rec.Code / 100; c >= 1 && c <= 5 {
		r.group.Values[rq1xx+c-1]++
	}
	r.emit()
	c := r.conn
	if c.h2 != nil && r.headOut && r.down.Buffered() > 0 {
		c.watchFlush(r.limits.idle)
	}
	r.local.release(r)
	c.requestOver()
}

// emit writes the record: counters, logs and filters that report.
func (r *request) emit() {
	g := r.group
	g.Values[rqActive]--
	if r.upgrading {
		g.Values[cxUpgradesActive]--
	}
	g.Values[rqCompleted]++
	for i, f := range r.chain.filters {
		if l, ok := f.(filter.Logger); ok {
			l.Log(&r.x, r.slot(i))
		}
		if d, ok := f.(filter.Destroyer); ok {
			d.Done(&r.x, r.slot(i))
		}
	}
	r.log("DownstreamEnd")
	r.report()
}

// log writes the record as it is now, as a record of a kind.
func (r *request) log(kind string) {
	r.rec.LogType = kind
	r.local.log.Emit(r.proxy.logs, &r.rec)
}
