// Package httpproxy is the terminal of filter chains that speak HTTP: a
// connection manager. It reads requests off a downstream connection, has them
// filtered and routed, sends them to a cluster, and answers with what comes
// back. serve.go shows a request's life on one page.
//
// It owns no socket (the listener does), no upstream connection (upstream does)
// and no protocol (the engines do).
package httpproxy

import (
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"

	"sluice/internal/config"
	"sluice/internal/h1"
	"sluice/internal/h2"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/filter"
	"sluice/listener/route"
	"sluice/upstream"
)

// Options of New. Workers, Sets and the clusters' workers go together by index.
type Options struct {
	Workers  []*worker.Worker
	Sets     []*telemetry.Set
	Clusters *upstream.Clusters
	Files    *telemetry.Files
	// Filters builds the runtime of one HTTP filter; nil means the filter does
	// nothing on the data path.
	Filters func(f *config.HTTPFilter, hcm *config.HTTPConnectionManager, l *config.Listener) (filter.HTTP, error)
	// Tracer makes what a tracing section reports its spans to; nil result: nothing.
	Tracer func(*config.Tracing) *telemetry.Tracer
	// LocalAddress is this machine's address, which x-forwarded-for names when
	// the client is on a loopback address.
	LocalAddress netip.Addr
	// Draining says that the process is told to fail its health checks: answers
	// then end their connections. It is asked per answer; nil: never.
	Draining func() bool
	Env      func(string) string // for %ENVIRONMENT()%; nil: empty
	// StripFragments takes #fragments off paths instead of refusing them: Envoy's
	// http_reject_path_with_fragment, off.
	StripFragments bool
}

// Server is what the connection managers of a process share.
type Server struct {
	opts   Options
	locals []*local

	mu     sync.Mutex
	tables map[string]*holder
	built  map[*config.HTTPConnectionManager]*Proxy
	places map[place]*discovered
}

// holder is the current table of one route configuration name.
type holder struct{ table atomic.Pointer[table] }

// New makes a Server. It starts nothing.
func New(o Options) *Server {
	s := &Server{opts: o, tables: make(map[string]*holder), built: make(map[*config.HTTPConnectionManager]*Proxy), places: make(map[place]*discovered)}
	for i := range o.Workers {
		s.locals = append(s.locals, newLocal(&o, i))
	}
	return s
}

// Apply makes the route configurations of a snapshot the current ones. Requests
// that have begun keep theirs.
func (s *Server) Apply(routes map[string]*config.RouteConfiguration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range routes {
		h := s.holder(name)
		if t := h.table.Load(); t != nil && t.routes.Config == c { // link keeps the pointers of what is unchanged
			continue
		}
		h.table.Store(s.table(c))
	}
	for name, h := range s.tables {
		if routes[name] == nil {
			h.table.Store(nil)
		}
	}
}

func (s *Server) holder(name string) *holder {
	h := s.tables[name]
	if h == nil {
		h = &holder{}
		s.tables[name] = h
	}
	return h
}

// Proxy is one connection manager; it is the downstream.Terminal of its chains
// and serves all workers.
type Proxy struct {
	server   *Server
	config   *config.HTTPConnectionManager
	listener *config.Listener
	place    place // zero: built outside a chain
	routes   *holder
	chain    *chain
	found    *discovered // nil: no filter is discovered
	logs     *telemetry.Log
	tracer   *telemetry.Tracer // nil: no spans
	h1       []*h1.Options
	h2       []*h2.Options
	groups   []*telemetry.Group
	name     []byte // server header
	via      []byte
	early    route.Sequence
	replies  []localReply
}

// Build compiles a connection manager. An access log that can't be opened is
// reported with a Proxy that works without it.
func (s *Server) Build(m *config.HTTPConnectionManager, l *config.Listener) (*Proxy, error) {
	return s.buildAt(m, l, nil)
}

// BuildIn is Build for a manager of chain c, whose discovered filters follow
// Rediscover.
func (s *Server) BuildIn(m *config.HTTPConnectionManager, l *config.Listener, c *config.FilterChain) (*Proxy, error) {
	at := place{l.Name, c.Hash, m.StatPrefix}
	var found *discovered
	if discovers(m) {
		found = s.found(at)
	}
	p, err := s.buildAt(m, l, found)
	if p != nil {
		p.place = at
	}
	return p, err
}

func (s *Server) buildAt(m *config.HTTPConnectionManager, l *config.Listener, found *discovered) (*Proxy, error) {
	p := &Proxy{found: found, server: s, config: m, listener: l, name: []byte(m.ServerName), via: []byte(m.Via),
		early: route.CompileSequence(m.EarlyHeaderMutation)}
	if len(p.name) == 0 {
		p.name = []byte("envoy")
	}
	logs, logErr := s.opts.Files.Compile(m.AccessLogs)
	p.logs = logs
	if m.Tracing != nil && s.opts.Tracer != nil {
		p.tracer = s.opts.Tracer(m.Tracing)
	}
	var err error
	if p.chain, err = p.build(m.Filters, nil); err != nil {
		return nil, err
	}
	switch {
	case p.found != nil && m.Routes != nil:
		p.routes = &p.found.routes
	case m.Routes != nil:
		p.routes = &holder{}
		p.routes.table.Store(s.table(m.Routes))
	default:
		s.mu.Lock()
		p.routes = s.holder(m.RouteName)
		s.mu.Unlock()
	}
	p.replies = compileReplies(m.LocalReplies)
	for _, lo := range s.locals {
		p.h1 = append(p.h1, h1Options(m, lo))
		p.h2 = append(p.h2, h2Options(m, lo))
	}
	p.groups = make([]*telemetry.Group, len(s.locals))
	return p, logErr
}

// Terminal gives the terminal of an HTTP chain. A connection manager is built
// at its first connection, once for all workers: most of a mesh's listeners are
// never used.
func (s *Server) Terminal(m *config.HTTPConnectionManager, l *config.Listener, c *config.FilterChain) (downstream.Terminal, error) {
	s.mu.Lock()
	p := s.built[m]
	s.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := s.BuildIn(m, l, c)
	if p == nil {
		return refusing{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.built[m]; first != nil { // another worker was quicker
		return first, nil
	}
	s.built[m] = p
	return p, err
}

// refusing ends the connections of a chain whose filters couldn't be built: a
// required filter must not be passed by.
type refusing struct{}

func (refusing) Serve(c *downstream.Connection) {
	c.Conn.SetHandler(&ending{c})
	c.Conn.Close()
}

type ending struct{ c *downstream.Connection }

func (e *ending) OnData(_ *worker.Conn, b []byte) int { return len(b) }
func (e *ending) OnDrain(*worker.Conn)                {}
func (e *ending) OnEOF(*worker.Conn)                  {}
func (e *ending) OnClose(*worker.Conn, error)         { e.c.Gone() }
func (e *ending) OnConnect(*worker.Conn, error)       {}

func h1Options(m *config.HTTPConnectionManager, l *local) *h1.Options {
	o := m.HTTP1
	out := &h1.Options{MaxHeaders: m.MaxHeaders, MaxHeaderBytes: m.MaxHeadersKB << 10, AcceptHTTP10: o.AcceptHTTP10,
		DefaultHost: o.DefaultHost, AllowAbsoluteURL: o.AllowAbsoluteURL, AllowCustomMethods: o.AllowCustomMethods,
		EnableTrailers: o.EnableTrailers, AllowChunkedLength: o.AllowChunkedLength, ProperCase: o.ProperCase,
		PreserveCase: o.PreserveCase, PreserveElseProper: o.PreserveElseProper, ForwardReason: o.ForwardReason, Underscores: httpmsg.Underscores(m.Underscores), AutoContinue: !m.Proxy100Continue,
		Pool: l.heads, Counters: &l.codec1}
	if len(o.IgnoreHTTP11Upgrade) > 0 {
		out.IgnoreUpgrade = func(v []byte) bool {
			for i := range o.IgnoreHTTP11Upgrade {
				if route.StringMatches(&o.IgnoreHTTP11Upgrade[i], v) {
					return true
				}
			}
			return false
		}
	}
	return out
}

func h2Options(m *config.HTTPConnectionManager, l *local) *h2.Options {
	o := m.HTTP2
	return (&h2.Options{HeaderTableSize: o.HeaderTableSize, MaxConcurrentStreams: o.MaxConcurrentStreams,
		InitialStreamWindow: o.InitialStreamWindow, InitialConnWindow: o.InitialConnWindow, MaxHeaders: m.MaxHeaders,
		MaxHeaderBytes: m.MaxHeadersKB << 10, MaxOutboundFrames: o.MaxOutboundFrames, MaxOutboundControl: o.MaxOutboundControl,
		MaxConsecutiveEmpty: o.MaxConsecutiveEmpty, MaxPriorityPerStream: o.MaxPriorityPerStream,
		MaxWindowUpdatePerData: o.MaxWindowUpdatePerData, AllowConnect: o.AllowConnect, StreamErrorOnInvalid: o.StreamErrorOnInvalid,
		Underscores: httpmsg.Underscores(m.Underscores), Pool: l.streams, Counters: &l.codec2}).WithDefaults(false)
}

// chain is a list of filters, built once.
type chain struct {
	filters []filter.HTTP
	bodies  bool // some look at content
	list    []config.HTTPFilter
	built   []filter.HTTP // by place in list; nil: off, or nothing to do
}

// add puts h at the end, unless it is nil: a filter with nothing to do.
func (c *chain) add(h filter.HTTP) {
	c.built = append(c.built, h)
	if h == nil {
		return
	}
	if _, ok := h.(filter.Body); ok {
		c.bodies = true
	}
	c.filters = append(c.filters, h)
}

// build makes a chain. Filters that before (nil: none) has with the same policy
// in the same place are taken over with what they hold.
func (p *Proxy) build(list []config.HTTPFilter, before *chain) (*chain, error) {
	c := &chain{list: list}
	for i := range list {
		f := &list[i]
		switch {
		case f.Disabled:
			c.add(nil)
			continue
		case before != nil && i < len(before.list) && reflect.DeepEqual(&before.list[i], f):
			c.add(before.built[i])
			continue
		}
		h, err := p.make(f)
		if err != nil {
			return nil, err
		}
		c.add(h)
	}
	return c, nil
}

// make builds one filter; nil when it does nothing.
func (p *Proxy) make(f *config.HTTPFilter) (filter.HTTP, error) {
	if _, off := f.Policy.(*config.DisabledFilter); off || p.server.opts.Filters == nil {
		return nil, nil
	}
	if f.Discovery != nil && f.Policy == nil {
		return missing{}, nil
	}
	return p.server.opts.Filters(f, p.config, p.listener)
}

func (p *Proxy) group(l *local) *telemetry.Group {
	g := p.groups[l.index]
	if g == nil {
		g = l.group(p.config.StatPrefix)
		p.groups[l.index] = g
	}
	return g
}

// Refused counts a connection whose handshake failed: Envoy's connection manager
// is there before it. It is called on the worker.
func (s *Server) Refused(worker int, m *config.HTTPConnectionManager) {
	v := s.locals[worker].group(m.StatPrefix).Values
	v[cxTotal]++
	v[cxSSLTotal]++
	v[cxDestroy]++
}

// Serve implements downstream.Terminal.
func (p *Proxy) Serve(c *downstream.Connection) {
	l := p.server.locals[c.Conn.Worker().Index()]
	newConn(p, l, c)
}
