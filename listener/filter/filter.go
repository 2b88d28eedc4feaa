// Package filter is what HTTP filters and the terminal that runs them agree on:
// the exchange a filter sees and the few things it may do. The filters
// themselves are one package each below this one; listener/httpproxy builds the
// chains and runs them.
//
// A filter is built once from its policy and used by every worker, so it holds
// no state of a request: that is in the Exchange and in the filter's slot of it.
package filter

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/route"
	"sluice/upstream/call"
)

// Verdict is what happens after a filter looked at a request.
type Verdict uint8

// The verdicts. Stop means that the filter answered by Exchange.Reply; Park
// means that it will call Exchange.Resume, on the worker, when it knows more.
// Gather means that it wants the content first: the request waits until it is
// whole, and Decode is called again. More than Exchange.Limit bytes are answered
// with 413.
const (
	Continue Verdict = iota
	Stop
	Park
	Gather
)

// HTTP is an HTTP filter.
type HTTP interface {
	// Decode looks at a request's head, in the order of the chain.
	Decode(x *Exchange, s *Slot) Verdict
	// Encode looks at a response's head, in reverse order. A local reply passes all
	// filters, those that its request didn't reach too.
	Encode(x *Exchange, s *Slot)
}

// Body is a filter that also looks at content. What it returns is passed on in
// the place of p; it may be p, changed in place.
type Body interface {
	DecodeData(x *Exchange, s *Slot, p []byte, end bool) []byte
	EncodeData(x *Exchange, s *Slot, p []byte, end bool) []byte
}

// Trailers is a filter that looks at the trailers of the response.
type Trailers interface {
	EncodeTrailers(x *Exchange, s *Slot, t *httpmsg.Head)
}

// TrailersAsData is a filter that gives the trailers of some responses as their
// last content; ok then replaces them.
type TrailersAsData interface {
	TrailersAsData(x *Exchange, s *Slot, t *httpmsg.Head) (p []byte, ok bool)
}

// Absorber is a filter that puts the content of some responses into their heads:
// Encode finds it, up to AbsorbLimit, in Record.LocalBody, and no content
// follows.
type Absorber interface {
	Absorbs(x *Exchange, s *Slot, h *httpmsg.Head) bool
}

// AbsorbLimit bounds absorbed content, in bytes; the rest is dropped.
const AbsorbLimit = 16 << 10

// Logger is a filter that is told of the finished record, once a request, after
// its last byte.
type Logger interface {
	Log(x *Exchange, s *Slot)
}

// Destroyer is a filter that must give something back when a request is over,
// however it ended.
type Destroyer interface {
	Done(x *Exchange, s *Slot)
}

// Routed is a filter that routes don't replace: what a route says of it is a word
// to the chain's own, which gives its variant for that route.
type Routed interface {
	ForRoute(p config.HTTPPolicy) HTTP
}

// Slot is a filter's memory of one request. Timer is stopped for it at the end.
type Slot struct {
	N     [3]uint64
	B     []byte // reused: empty at the start, its capacity kept
	Timer worker.Timer
	Any   any // of filters that park: their call under way
}

// Clear makes the slot ready for another request, keeping its memory.
func (s *Slot) Clear(w *worker.Worker) {
	w.Stop(&s.Timer)
	s.N, s.B, s.Any = [3]uint64{}, s.B[:0], nil
}

// Exchange is a request and its response as filters see them. It belongs to its
// worker.
type Exchange struct {
	Worker   *worker.Worker
	Conn     *downstream.Connection
	Record   *telemetry.Record
	Request  *httpmsg.Head
	Response *httpmsg.Head       // nil until there is one
	Route    *config.Route       // nil: none matched
	Host     *config.VirtualHost // that of Route
	End      bool                // the request has no content
	Whole    bool                // Content is all there is, after Gather
	Content  []byte              // of the request, as the filters before left it
	Limit    int                 // of Content with Gather, bytes
	Partial  bool                // Gather ends with Limit bytes: longer content isn't refused
	Local    bool                // the response is our own
	Random   uint64              // stable over the request
	Set      *telemetry.Set
	Stats    *telemetry.Group // of the connection manager, for counters by name
	draws    uint64           // of Chance, so far
	Scratch  []byte           // for joined header values
	Eval     route.Eval       // of header values
	Edits    route.Scratch    // for header edits

	// ALPN is what the upstream handshake offers instead of the cluster's own;
	// Key is the same, joined.
	ALPN    []string
	ALPNKey string

	ops Ops
}

// Ops are the terminal's side of an Exchange.
type Ops interface {
	Reply(r Reply)
	Resume()
	ClearRoute()
	Cluster(name string) *config.Cluster
	Members(cluster string) (available, total int, ok bool)
	Call(r *call.Request, done func(*call.Answer)) (cancel func())
}

// Bind sets the terminal's side; filters don't call it.
func (x *Exchange) Bind(o Ops) { x.ops = o }

// Reply answers the request in the upstream's place; the filter then returns
// Stop, or has parked before.
func (x *Exchange) Reply(r Reply) { x.ops.Reply(r) }

// Resume goes on after Park.
func (x *Exchange) Resume() { x.ops.Resume() }

// ClearRoute has the route chosen again, by what the request is now.
func (x *Exchange) ClearRoute() { x.ops.ClearRoute() }

// Cluster gives the configuration of the cluster the route names, nil without.
func (x *Exchange) Cluster() *config.Cluster {
	if x.Route == nil || x.Route.Action == nil || x.Route.Action.Cluster == "" {
		return nil
	}
	return x.ops.Cluster(x.Route.Action.Cluster)
}

// Members counts the hosts of a cluster, and those of them that may be picked; ok
// is false when there is no such cluster.
func (x *Exchange) Members(cluster string) (available, total int, ok bool) {
	return x.ops.Members(cluster)
}

// Call asks something of a cluster for the filter, which parks meanwhile, and
// then calls done on the worker. It may do so before it returns. A request that
// ends first must cancel it.
func (x *Exchange) Call(r *call.Request, done func(*call.Answer)) (cancel func()) {
	return x.ops.Call(r, done)
}

// Chance draws lots: it is true for a share p of the requests. The draws of a
// request are independent of one another and of what Random decides.
func (x *Exchange) Chance(p config.Percent) bool {
	if p.PerMillion == 0 || p.PerMillion >= 1_000_000 {
		return p.PerMillion > 0
	}
	x.draws++
	z := x.Random + x.draws*0x9e3779b97f4a7c15 // splitmix64
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z^z>>31)%1_000_000 < uint64(p.PerMillion)
}

// Reply is a local reply.
type Reply struct {
	Status  int
	Body    string
	Details string
	Flag    telemetry.Flag
	GRPC    int                     // gRPC status of the reply to a gRPC request, -1: by Status
	Headers func(h *httpmsg.Head)   // adds headers; may be nil
	Extra   []config.HeaderMutation // literal headers; may be nil
}
