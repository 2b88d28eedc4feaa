package extauthz

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/route"
	"sluice/upstream/call"
)

// networkName is of the network filter's dynamic metadata.
const networkName = "envoy.filters.network.ext_authz"

// Network is envoy.filters.network.ext_authz on one worker: a service says whether
// a connection may go on. It is asked once, before anything goes upstream.
type Network struct {
	policy *config.NetworkExtAuthz
	caller *call.Caller
	add    *route.Mutations
	count  func(stat string, by uint64)
	prefix string
}

// NewNetwork makes the filter; count is given the full names of statistics.
func NewNetwork(p *config.NetworkExtAuthz, c *call.Caller, count func(stat string, by uint64)) *Network {
	f := &Network{policy: p, caller: c, add: route.CompileMutations(p.GRPC.Metadata), count: count, prefix: "ext_authz." + p.StatPrefix + "."}
	for _, name := range []string{"total", "ok", "denied", "error", "disabled", "failure_mode_allowed", "cx_closed"} {
		f.note(name, 0)
	}
	return f
}

func (f *Network) note(name string, by uint64) { f.count(f.prefix+name, by) }

// Admit implements downstream.Filter.
func (f *Network) Admit(c *downstream.Connection, next func()) downstream.Admission {
	if m := f.policy.EnabledMetadata; m != nil && !m.Match(c.Notes().Dynamic) {
		f.note("disabled", 1)
		return downstream.Pass
	}
	f.note("total", 1)
	w := &waiting{f: f, c: c, next: next}
	c.Conn.SetHandler(w)
	cancel := f.caller.Do(f.ask(c), w.answered)
	switch {
	case !w.over:
		w.cancel = cancel
		return downstream.Parked
	case w.pass:
		return downstream.Pass
	}
	return downstream.Refuse
}

func (f *Network) ask(c *downstream.Connection) *call.Request {
	var context, m message
	context.ends(c, c.Src, "", f.policy.PeerCertificate)
	context.bytes(11, nil) // no metadata: always there, as Envoy's
	if f.policy.TLSSession {
		context.session(c)
	}
	m.bytes(1, context)
	return unary(f.policy.GRPC, m, func(h *httpmsg.Head) { f.add.Apply(h, literal, &route.Scratch{}) })
}

// literal is the value of a format that stands outside any request.
func literal(dst []byte, f *config.Format) []byte {
	for i := range f.Items {
		dst = append(dst, f.Items[i].Text...)
	}
	return dst
}

// waiting is a connection whose service was asked. What the client sends meanwhile
// stays where it is.
type waiting struct {
	f      *Network
	c      *downstream.Connection
	next   func()
	cancel func()
	over   bool
	pass   bool
	parted bool // the client is gone
}

func (w *waiting) answered(a *call.Answer) {
	parked := w.cancel != nil
	w.over, w.cancel = true, nil
	w.pass = w.judge(readGRPC(a))
	switch {
	case !parked || w.parted:
	case w.pass:
		w.c.Conn.ResumeRead()
		w.next()
	default:
		w.c.Conn.Close()
	}
}

func (w *waiting) judge(o outcome) bool {
	for key, v := range o.metadata {
		w.c.Note().Dynamic.Set(networkName, key, v)
	}
	switch {
	case o.kind == allowed:
		w.f.note("ok", 1)
		return true
	case o.kind == failed:
		w.f.note("error", 1)
		if w.f.policy.FailOpen {
			w.f.note("failure_mode_allowed", 1)
			return true
		}
		w.refuse("ext_authz_error")
	default:
		w.f.note("denied", 1)
		w.refuse("ext_authz_denied")
	}
	return false
}

func (w *waiting) refuse(why string) {
	w.f.note("cx_closed", 1)
	n := w.c.Note()
	n.Flag, n.Details, n.Termination = "UAEX", why, why
}

// OnData implements worker.Handler.
func (w *waiting) OnData(c *worker.Conn, _ []byte) int {
	c.PauseRead()
	return 0
}

// OnEOF implements worker.Handler: a client that sends no more still waits.
func (w *waiting) OnEOF(*worker.Conn) {}

// OnDrain implements worker.Handler.
func (w *waiting) OnDrain(*worker.Conn) {}

// OnConnect implements worker.Handler; the connection was accepted.
func (w *waiting) OnConnect(*worker.Conn, error) {}

// OnClose implements worker.Handler.
func (w *waiting) OnClose(*worker.Conn, error) {
	w.parted = true
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
	w.c.Gone()
}
