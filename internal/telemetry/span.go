package telemetry

import (
	"cmp"
	"net/netip"
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// Span is a request's part of a trace.
type Span struct {
	High, Low  uint64 // of the trace; High is 0 where identifiers have 64 bits
	ID, Parent uint64 // Parent is 0 at the root
	Sampled    bool   // it is reported
	Shared     bool   // ID is the caller's too, if there is one
	Server     bool   // traffic arrives here
	Name       string // that a peer gave it; "" when none did
	Decorated  string // by the route
}

// Tracer is where spans of a connection manager go. It is immutable.
type Tracer struct {
	Config     *config.Tracing
	Service    string     // this proxy's cluster
	Node, Zone string     // its identifier and place
	Address    netip.Addr // of this machine
	Send       Send
}

// Span reports s, the span of r; byRoute are tags of the request's route.
func (w *Writer) Span(t *Tracer, s *Span, r *Record, byRoute []config.CustomTag) {
	g := &w.tags
	g.reset()
	g.downstream(t, r)
	g.common(r)
	for _, list := range [...][]config.CustomTag{t.Config.CustomTags, byRoute} {
		for i := range list {
			g.custom(w.Format, &list[i], r)
		}
	}
	if _, ok := t.Config.Provider.(*config.OTelTracer); ok {
		w.line = w.otelSpan(w.line[:0], t, s, r)
	} else {
		w.line = w.zipkin(w.line[:0], t, s, r)
	}
	t.Send(w.Worker, w.line)
}

// nameSpan puts the name that a span was given into scratch: by the tracing
// section, by a peer or by its route. It is false where nobody did.
func (w *Writer) nameSpan(t *Tracer, s *Span, r *Record) bool {
	if f := t.Config.OperationName; f != nil {
		w.scratch = w.Format.Text(w.scratch[:0], f, r)
		return true
	}
	name := cmp.Or(s.Name, s.Decorated)
	w.scratch = append(w.scratch[:0], name...)
	return name != ""
}

// spanTags are the tags of one span, in one piece of memory: the value of key i
// ends at ends[i].
type spanTags struct {
	keys []string
	ends []int
	text []byte
}

func (g *spanTags) reset() { g.keys, g.ends, g.text = g.keys[:0], g.ends[:0], g.text[:0] }

// end names what was appended to text since the tag before.
func (g *spanTags) end(key string) {
	g.keys, g.ends = append(g.keys, key), append(g.ends, len(g.text))
}

func (g *spanTags) string(key, value string) {
	g.text = append(g.text, value...)
	g.end(key)
}

func (g *spanTags) number(key string, n uint64) {
	g.text = strconv.AppendUint(g.text, n, 10)
	g.end(key)
}

// header adds a header's value, or other where there is none; "": no tag.
func (g *spanTags) header(key string, h *httpmsg.Head, id httpmsg.ID, other string) {
	if v := h.Get(id); len(v) > 0 {
		g.text = append(g.text, v...)
	} else if other == "" {
		return
	} else {
		g.text = append(g.text, other...)
	}
	g.end(key)
}

// replaced says that a later tag has the key of tag i.
func (g *spanTags) replaced(i int) bool {
	return contains(g.keys[i+1:], g.keys[i])
}

// downstream adds what Envoy's HttpTracerUtility sets from the request.
func (g *spanTags) downstream(t *Tracer, r *Record) {
	h := r.Request
	g.string("node_id", t.Node)
	g.string("zone", t.Zone)
	g.header("guid:x-request-id", h, httpmsg.XRequestID, "")
	g.header("guid:x-client-trace-id", h, httpmsg.XClientTraceID, "")
	g.url(h, t.Config.MaxPathLen)
	g.text = append(g.text, h.Method()...)
	g.end("http.method")
	g.header("downstream_cluster", h, httpmsg.XEnvoyDownstreamServiceCluster, "-")
	g.header("user_agent", h, httpmsg.UserAgent, "-")
	g.string("http.protocol", r.Protocol.String())
	if a := r.Conn.Direct.Addr(); a.IsValid() {
		g.text = a.Unmap().AppendTo(g.text)
		g.end("peer.address")
	}
	if r.GRPC {
		g.text = append(g.text, h.Path()...)
		g.end("grpc.path")
		g.text = append(g.text, h.Authority()...)
		g.end("grpc.authority")
		g.header("grpc.content_type", h, httpmsg.ContentType, "")
		g.header("grpc.timeout", h, httpmsg.GRPCTimeout, "")
	}
	g.number("request_size", r.BytesIn)
	g.number("response_size", r.BytesOut)
}

// url is what the client asked for; its path has at most limit bytes.
func (g *spanTags) url(h *httpmsg.Head, limit int) {
	path := h.Get(httpmsg.XEnvoyOriginalPath)
	if len(path) == 0 {
		path = h.Path()
	}
	g.text = append(g.text, h.Get(httpmsg.XForwardedProto)...)
	g.text = append(append(g.text, "://"...), h.Authority()...)
	g.text = append(g.text, path[:min(len(path), limit)]...)
	g.end("http.url")
}

// common adds what Envoy sets on every kind of span.
func (g *spanTags) common(r *Record) {
	g.string("component", "proxy")
	if r.ClusterRaw != "" {
		g.string("upstream_cluster", r.ClusterRaw)
		g.string("upstream_cluster.name", r.Cluster)
	}
	g.number("http.status_code", uint64(r.Code))
	if r.Flags.Empty() {
		g.string("response_flags", "-")
	} else {
		g.text = r.Flags.Append(g.text, false)
		g.end("response_flags")
	}
	failed := r.Code == 0 || r.Code >= 500
	if r.GRPC {
		failed = g.grpc(r) || failed
	}
	if failed {
		g.string("error", "true")
	}
}

// grpc adds a call's end and reports whether it is the server's failure.
func (g *spanTags) grpc(r *Record) (failed bool) {
	h := r.Trailers
	if h == nil || !h.Has(httpmsg.GRPCStatus) {
		h = r.Response
	}
	if h == nil || !h.Has(httpmsg.GRPCStatus) {
		return false
	}
	g.header("grpc.status_code", h, httpmsg.GRPCStatus, "")
	g.header("grpc.message", h, httpmsg.GRPCMessage, "")
	switch n, _ := r.GRPCStatus(); n {
	case 2, 4, 12, 13, 14, 15: // unknown, late, unimplemented, internal, unavailable, data loss
		return true
	}
	return false
}

// custom adds a configured tag; without a value and a default it leaves none.
func (g *spanTags) custom(w *Formatter, c *config.CustomTag, r *Record) {
	var it config.FormatItem
	switch {
	case c.Value != nil:
		g.text = w.Text(g.text, c.Value, r)
		g.end(c.Tag)
		return
	case c.Env != "":
		if v := cmp.Or(w.environment(c.Env), c.Default); v != "" {
			g.string(c.Tag, v)
		}
		return
	case c.Header != "":
		it = config.FormatItem{Op: "REQ", Arg: c.Header}
	case c.MetadataKind != "":
		it = config.FormatItem{Op: "METADATA", Alt: metadataOf(c.MetadataKind), Arg: c.MetadataKey[0], Path: c.MetadataKey[1:]}
	default:
		g.string(c.Tag, c.Literal)
		return
	}
	start := len(g.text)
	out, k := w.op(g.text, &it, r)
	if g.text = out; k != missing && len(out) > start {
		g.end(c.Tag)
		return
	}
	if g.text = g.text[:start]; c.Default != "" {
		g.string(c.Tag, c.Default)
	}
}

// metadataOf names a kind of metadata as %METADATA()% does.
func metadataOf(kind string) string {
	switch kind {
	case "route":
		return "ROUTE"
	case "cluster":
		return "CLUSTER"
	case "host":
		return "UPSTREAM_HOST"
	}
	return "DYNAMIC"
}
