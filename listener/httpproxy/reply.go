package httpproxy

import (
	"bytes"
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Reply implements filter.Ops.
func (r *request) Reply(a filter.Reply) {
	r.parked = false
	r.reply(a)
}

// reply answers the request itself. After a response has begun it can only be
// cut.
func (r *request) reply(a filter.Reply) {
	if r.over {
		return
	}
	if a.Flag != telemetry.FlagNone {
		r.rec.Flags.Set(a.Flag)
	}
	r.rec.Details = a.Details
	if r.headOut {
		r.cut(httpmsg.ResetLocal)
		return
	}
	r.answered = true
	r.up.cancel(httpmsg.ResetLocal)
	r.local500(a)
}

// cut ends a response that can't be completed.
func (r *request) cut(kind httpmsg.ResetKind) {
	r.group.Values[rqTxReset]++
	r.up.cancel(httpmsg.ResetLocal)
	r.down.Reset(httpmsg.ResetReason{Kind: kind})
	r.finish()
}

// local500 builds and sends a local reply.
func (r *request) local500(a filter.Reply) {
	h := &r.resp
	h.Reset()
	h.Status = a.Status
	r.x.Local = true
	r.stopTimers()
	body := append(r.local.bufB[:0], a.Body...)
	r.local.bufB = body
	kind := "text/plain"
	r.rec.Response, r.rec.Code, r.rec.LocalBody = h, a.Status, body
	if m := r.proxy.mapper(r, &a); m != nil {
		body, kind = m.apply(r, &a, body)
	}
	h.Status = a.Status
	if r.grpc {
		r.grpcReply(&a, body)
		return
	}
	r.decorate(&a)
	if len(body) > 0 {
		r.setNumber(h, httpmsg.ContentLength, int64(len(body)))
		if !h.Has(httpmsg.ContentType) {
			h.AddString(httpmsg.ContentType, kind)
		}
	} else {
		h.Del(httpmsg.ContentType) // an edit of the route may have added one
	}
	if h.Status == 400 && r.conn.h1 != nil && !r.proxy.config.HTTP1.StreamErrorOnInvalid {
		r.conn.h1.Drain() // what follows may not be what it seems
	}
	none := len(body) == 0 || string(r.head.Method()) == "HEAD" || a.Status == 204 || a.Status == 304
	r.rec.SendHead = r.local.worker.Now()
	r.sendLocal(body, none)
}

// decorate adds the headers that a reply brings and the route's edits.
func (r *request) decorate(a *filter.Reply) {
	if a.Headers != nil {
		a.Headers(&r.resp)
	}
	if r.routed {
		r.editResponse()
	}
}

// sendLocal sends the head and the text of a local reply.
func (r *request) sendLocal(body []byte, none bool) {
	if !none && r.absorbs(&r.resp) {
		r.rec.LocalBody, none = body, true
	} else {
		r.rec.LocalBody = nil
	}
	if none {
		r.send(true)
		return
	}
	r.rec.BytesOut += uint64(len(body))
	r.send(false)
	if r.over {
		return
	}
	r.down.SendData(body, true)
	r.finish()
}

// grpcReply answers a gRPC request: 200, and the status as a gRPC one.
func (r *request) grpcReply(a *filter.Reply, body []byte) {
	h := &r.resp
	status := a.GRPC
	if status < 0 {
		status = telemetry.HTTPToGRPC(a.Status)
	}
	h.Status = 200
	h.AddString(httpmsg.ContentType, "application/grpc")
	r.setNumber(h, httpmsg.GRPCStatus, int64(status))
	if len(body) > 0 {
		r.local.bufA = appendPercent(r.local.bufA[:0], body)
		h.AddID(httpmsg.GRPCMessage, r.local.bufA)
	}
	r.decorate(a)
	r.sendLocal(nil, true)
}

// appendPercent writes a gRPC status message: bytes outside printable ASCII, and
// the percent sign, are escaped.
func appendPercent(dst, s []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range s {
		if c < 0x20 || c > 0x7e || c == '%' {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

// localReply is a compiled mapper of local_reply_config.
type localReply struct {
	config *config.LocalReply
	edits  *route.Mutations
}

func compileReplies(list []config.LocalReply) (out []localReply) {
	for i := range list {
		out = append(out, localReply{config: &list[i], edits: route.CompileMutations(list[i].Headers)})
	}
	return out
}

// mapper finds the mapper of a reply, nil when nothing maps it.
func (p *Proxy) mapper(r *request, a *filter.Reply) *localReply {
	for i := range p.replies {
		m := &p.replies[i]
		if m.config.Filter == nil || r.local.log.Passes(m.config.Filter, &r.rec) {
			return m
		}
	}
	if p.config.LocalReplyFormat != nil {
		return &localReply{config: &config.LocalReply{}}
	}
	return nil
}

func (m *localReply) apply(r *request, a *filter.Reply, body []byte) (out []byte, kind string) {
	c := m.config
	if c.Status != 0 {
		a.Status = c.Status
		r.resp.Status, r.rec.Code = c.Status, c.Status
	}
	m.edits.Apply(&r.resp, r.eval, &r.edits)
	if c.Body != nil {
		body = r.evalText(nil, c.Body)
		r.rec.LocalBody = body
	}
	f := c.Format
	if f == nil {
		f = r.proxy.config.LocalReplyFormat
	}
	if f == nil {
		return body, "text/plain"
	}
	return r.formatBody(f)
}

// formatBody writes a body by a format.
func (r *request) formatBody(f *config.BodyFormat) (body []byte, kind string) {
	w := r.local.log.Format
	kind = "text/plain"
	if f.JSON != nil {
		kind = "application/json"
		body = append(w.JSON(nil, f.JSON, &r.rec), '\n')
	} else {
		body = w.Text(nil, f.Text, &r.rec)
	}
	if f.ContentType != "" {
		kind = f.ContentType
	}
	return body, kind
}

// redirect answers with the route's redirect.
func (r *request) redirect(d *config.Redirect) {
	r.routed = true
	r.group.Values[rqRedirect]++
	r.location(r.route.Location(r.local.bufC[:0], &r.head, r.match.HTTPS), max(d.Status, 301))
}

func (r *request) location(target []byte, status int) {
	r.local.bufC = target
	r.reply(filter.Reply{Status: status, Details: "direct_response", GRPC: -1, Headers: func(h *httpmsg.Head) {
		h.Set(httpmsg.Location, target)
	}})
}

// redirectToTLS answers a plain request where the virtual host wants TLS.
func (r *request) redirectToTLS() {
	b := append(r.local.bufC[:0], "https://"...)
	b = append(append(b, r.head.Authority()...), r.head.Path()...)
	r.location(b, 301)
}

// direct answers with the route's direct response.
func (r *request) direct(d *config.Direct) {
	if d.BodyFormat != nil {
		r.rec.Code = d.Status
		body, kind := r.formatBody(d.BodyFormat)
		r.reply(filter.Reply{Status: d.Status, Body: string(body), Details: "direct_response", GRPC: -1,
			Headers: func(h *httpmsg.Head) { h.SetString(httpmsg.ContentType, kind) }})
		return
	}
	r.reply(filter.Reply{Status: d.Status, Body: string(d.Body), Details: "direct_response", GRPC: -1})
}

// strictHeaders refuses a request whose x-envoy header has a bad value, where
// the router is told to look.
func (r *request) strictHeaders() bool {
	for _, name := range r.proxy.config.Router.StrictHeaders {
		v, ok := r.head.Value(name)
		if !ok {
			continue
		}
		if strictlyValid(name, v) {
			continue
		}
		r.rec.Flags.Set(telemetry.IH)
		r.reply(filter.Reply{Status: 400, Body: "invalid header '" + name + "' with value '" + string(v) + "'",
			Details: "request_headers_failed_strict_check{" + name + "}", GRPC: -1})
		return false
	}
	return true
}

// strictlyValid checks the value of a header that strict_check_headers may name:
// retry conditions must all be known, the others are numbers.
func strictlyValid(name string, v []byte) bool {
	if name != "x-envoy-retry-on" && name != "x-envoy-retry-grpc-on" {
		_, err := strconv.ParseUint(string(v), 10, 32)
		return err == nil
	}
	for w := range bytes.SplitSeq(v, []byte{','}) {
		if retryOn(w) == 0 {
			return false
		}
	}
	return true
}
