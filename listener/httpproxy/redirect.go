package httpproxy

import (
	"slices"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/route"
	"sluice/upstream/pool"
)

// hop is an internal redirect from one route to another.
type hop struct{ from, to string }

// follow follows an internal redirect of the upstream, where the route wants
// it: the client doesn't see it.
func (r *request) follow(h *httpmsg.Head) bool {
	p := r.route.Config.Action.InternalRedirect
	if p == nil || !slices.Contains(p.Codes, h.Status) {
		return false
	}
	ok := r.downEnd && r.lost == 0 && h.Has(httpmsg.Location) && r.redirectTo(p, h)
	if ok {
		r.again(h)
	} else {
		r.cluster.Stats[pool.InternalRedirectFailed]++
	}
	return ok
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

// redirectTo makes the head ask for what the upstream pointed to, unless the
// policy is against it.
func (r *request) redirectTo(p *config.InternalRedirect, h *httpmsg.Head) bool {
	v := r.group.Values
	scheme, host, path, ok := splitURL(string(h.Get(httpmsg.Location)))
	switch {
	case !ok:
		v[redirectBadLocation]++
		return false
	case scheme != string(r.head.Scheme()) && !p.AllowCross:
		v[redirectScheme]++
		return false
	case r.follows >= p.Max:
		v[redirectTooMany]++
		return false
	}
	var saved httpmsg.Head
	saved.CopyFrom(&r.head)
	before := string(r.head.Scheme()) + "://" + string(r.head.Authority()) + string(r.head.Path())
	r.head.SetAuthority([]byte(host))
	r.head.SetPath([]byte(path))
	r.head.SetScheme([]byte(scheme))
	old, chain, name := r.route, r.chain, r.rec.Route
	r.findRoute()
	if why := r.refusedHop(p, old, name, saved.Scheme(), scheme); why != 0 {
		v[why]++
		r.head.CopyFrom(&saved)
		r.route, r.x.Route, r.x.Host, r.chain = old, old.Config, old.Host.Config, chain
		return false
	}
	for _, name := range p.CopyHeaders {
		r.head.DelName(name)
		if v, ok := h.Value(name); ok {
			r.head.AddName(name, v)
		}
	}
	if m := string(r.head.Method()); h.Status == 303 && m != "GET" && m != "HEAD" {
		r.head.SetMethod([]byte("GET"))
		r.head.Del(httpmsg.ContentLength)
		r.body, r.hasTail = r.body[:0], false
	}
	r.head.Del(httpmsg.XEnvoyOriginalPath)
	r.head.Del(httpmsg.XEnvoyOriginalHost)
	r.head.DelName("x-envoy-original-url")
	r.head.AddName("x-envoy-original-url", []byte(before))
	return true
}

// refusedHop asks the policy's predicates about the route that was found, and
// gives the counter of what is against it; 0: nothing.
func (r *request) refusedHop(p *config.InternalRedirect, old *route.Route, from string, was []byte, scheme string) int {
	if r.route == nil {
		return redirectNoRoute
	}
	h := hop{from, r.rec.Route}
	switch {
	case p.PreviousOnce && slices.Contains(r.hops, h),
		p.SafeCross && scheme == "https" && string(was) != "https",
		p.AllowedRoutes != nil && !slices.Contains(p.AllowedRoutes, h.to):
		return redirectPredicate
	}
	r.hops = append(r.hops, h)
	return 0
}

// again ends the request as an exchange of its own, with its log, and begins it
// anew: all filters look at what is asked for now.
func (r *request) again(h *httpmsg.Head) {
	r.cluster.Stats[pool.InternalRedirectSucceeded]++
	r.resp.CopyFrom(h)
	r.up.cancelQuietly()
	r.stopTimers()
	r.plan.settled()
	r.rec.Response, r.rec.Code, r.rec.Details = &r.resp, r.resp.Status, "internal_redirect"
	r.rec.End = r.local.worker.Now()
	r.emit()
	r.follows++
	r.restart()
	if !r.canonical() {
		return
	}
	r.findRoute()
	r.startTimers()
	r.decode()
	if !r.over {
		r.requestComplete()
	}
}

// restart forgets what is of the exchange that ended. Head and content stay.
func (r *request) restart() {
	for i := range r.slots {
		r.slots[i].Clear(r.local.worker)
	}
	old := &r.rec
	fresh := telemetry.Record{Conn: old.Conn, StreamID: old.StreamID, Protocol: old.Protocol, Remote: old.Remote, GRPC: old.GRPC,
		FilterState: old.FilterState, TraceID: old.TraceID, SpanID: old.SpanID, Sampled: old.Sampled, Request: &r.head,
		Start: r.local.worker.Now(), Wall: r.local.worker.Wall(), RequestEnd: r.local.worker.Now(), BytesIn: uint64(len(r.body))}
	r.rec = fresh
	r.resp.Reset()
	r.tail.Reset()
	x := &r.x
	x.Route, x.Host, x.Response, x.ALPN, x.ALPNKey = nil, nil, nil, nil, ""
	x.Whole, x.Content, x.Limit, x.Partial = false, nil, 0, false
	r.at, r.weighted, r.cluster, r.route = 0, -1, nil, nil
	r.answered, r.routed, r.waiting, r.altTimeout, r.overridden = false, false, false, false, false
	r.hashed, r.hasHash, r.newCookies = 0, false, r.newCookies[:0]
	r.plan.clear()
	r.limits = limits{}
	r.up.clear()
	r.counted()
}
