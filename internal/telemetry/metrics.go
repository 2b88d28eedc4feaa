package telemetry

import (
	"slices"
	"strconv"
	"strings"
)

// Label is one label of a metric.
type Label struct{ Name, Value string }

// Kind is the type of a metric.
type Kind uint8

// The kinds.
const (
	Counter Kind = iota
	Gauge
	Histogram
)

// Metric is one value at a scrape. Name is Envoy's dotted name; Prom and Labels
// are what Prometheus sees.
type Metric struct {
	Name   string
	Prom   string
	Labels []Label
	Kind   Kind
	Value  uint64
	// Used says that it was counted or set once; a gauge that fell back to zero is
	// still used.
	Used bool
	// Of a histogram: cumulative counts by upper bound, and the sum.
	Buckets []uint64
	Sum     float64
}

// Stat names one slot of a Group: its suffix below the group's name, and its
// kind.
type Stat struct {
	Name  string
	Gauge bool
}

// Group is a block of counters of one thing (a cluster, a connection manager,
// a listener) on one worker. Only that worker changes Values; a scrape runs on
// the worker too, so plain additions are enough.
type Group struct {
	Scope  string // "cluster", "http", "listener"
	Name   string
	Stats  []Stat
	Values []uint64
	codes  []codeCount
	named  []namedCount
	More   func(emit func(name string, value uint64, kind Kind)) // computed at scrape; may be nil
}

type codeCount struct {
	prefix string
	code   int
	n      uint64
}

type namedCount struct {
	name  string
	n     uint64
	gauge bool
}

// Inc counts a statistic that few groups have, by its full name below the
// group.
func (g *Group) Inc(name string) { g.slot(name, false).n++ }

// Add counts n of a statistic that few groups have; of none it stays hidden.
func (g *Group) Add(name string, n uint64) {
	if n > 0 {
		g.slot(name, false).n += n
	}
}

// Count is Add for a name that its caller puts together in a buffer.
func (g *Group) Count(name []byte, n uint64) {
	for i := range g.named {
		if s := &g.named[i]; s.name == string(name) {
			s.n += n
			return
		}
	}
	g.Add(string(name), n)
}

// Touch makes a counter show with zero.
func (g *Group) Touch(name string) { g.slot(name, false) }

// Adjust moves a gauge that few groups have, and gives its new value.
func (g *Group) Adjust(name string, by int) uint64 {
	s := g.slot(name, true)
	s.n += uint64(by)
	return s.n
}

func (g *Group) slot(name string, gauge bool) *namedCount {
	for i := range g.named {
		if g.named[i].name == name {
			return &g.named[i]
		}
	}
	g.named = append(g.named, namedCount{name: name, gauge: gauge})
	return &g.named[len(g.named)-1]
}

// Code counts a response code below prefix ("upstream_rq_"), and its class.
func (g *Group) Code(prefix string, code int) {
	for i := range g.codes {
		if c := &g.codes[i]; c.code == code && c.prefix == prefix {
			c.n++
			return
		}
	}
	g.codes = append(g.codes, codeCount{prefix, code, 1})
}

// Set is one worker's metrics.
type Set struct {
	groups []*Group
	before []func()
	asked  map[groupName]*Group // of Named
	Istio  *IstioMetrics
}

type groupName struct{ scope, name string }

// NewSet makes an empty Set.
func NewSet() *Set { return &Set{asked: make(map[groupName]*Group), Istio: newIstioMetrics()} }

// Add registers a group; the caller keeps it and counts in Values.
func (s *Set) Add(scope, name string, stats []Stat) *Group {
	g := &Group{Scope: scope, Name: name, Stats: stats, Values: make([]uint64, len(stats))}
	s.groups = append(s.groups, g)
	return g
}

// Before has f run on the worker before each collection: it brings counters up to
// date that nothing else does in time.
func (s *Set) Before(f func()) { s.before = append(s.before, f) }

// Remove takes a group out; its counts are gone.
func (s *Set) Remove(g *Group) {
	if at := (groupName{g.Scope, g.Name}); s.asked[at] == g {
		delete(s.asked, at)
	}
	for i, h := range s.groups {
		if h == g {
			s.groups = append(s.groups[:i], s.groups[i+1:]...)
			return
		}
	}
}

// tagOf is the label under which Prometheus shows a scope's name.
func tagOf(scope string) string {
	switch scope {
	case "cluster":
		return "envoy_cluster_name"
	case "http":
		return "envoy_http_conn_manager_prefix"
	case "tcp":
		return "envoy_tcp_prefix"
	case "listener":
		return "envoy_listener_address"
	case HTTPLocalRateLimit:
		return "envoy_local_http_ratelimit_prefix"
	}
	return "name"
}

// HTTPLocalRateLimit is the scope of local rate limits. Their dotted names begin
// with the group's name.
const HTTPLocalRateLimit = "http_local_rate_limit"

// base begins the dotted names of the group.
func (g *Group) base() string {
	switch {
	case g.Name == "": // the codecs of all listeners are one thing: http1, http2
		return g.Scope + "."
	case g.Scope == HTTPLocalRateLimit:
		return g.Name + "." + g.Scope + "."
	}
	return g.Scope + "." + g.Name + "."
}

// collect appends the group's metrics. What is more special than the group comes
// first among the labels, as in Envoy. Its gauges count as used once anything was
// counted.
func (g *Group) collect(out []Metric) []Metric {
	var labels []Label
	base := g.base()
	if g.Name != "" {
		labels = []Label{{tagOf(g.Scope), g.Name}}
	}
	active := slices.ContainsFunc(g.Values, func(v uint64) bool { return v != 0 })
	add := func(name string, v uint64, kind Kind) {
		m := Metric{Name: base + name, Prom: "envoy_" + g.Scope + "_" + promName(name), Labels: labels, Kind: kind, Value: v, Used: active && kind == Gauge}
		if n := len(m.Prom); strings.HasSuffix(name, "xx") && strings.HasSuffix(name[:len(name)-3], "_rq_") {
			m.Prom, m.Labels = m.Prom[:n-3]+"xx", tagged(labels, "envoy_response_code_class", m.Prom[n-3:n-2])
		}
		out = append(out, m)
	}
	for i, s := range g.Stats {
		kind := Counter
		if s.Gauge {
			kind = Gauge
		}
		add(s.Name, g.Values[i], kind)
	}
	if g.More != nil {
		g.More(add)
	}
	for _, s := range g.named {
		kind := Counter
		if s.gauge {
			kind = Gauge
		}
		add(s.name, s.n, kind)
	}
	return g.collectCodes(out, base, labels)
}

// collectCodes appends the response codes, their classes, and how many there were
// below each prefix unless the group counts that itself.
func (g *Group) collectCodes(out []Metric, base string, labels []Label) []Metric {
	sums := make(map[string]*Metric)
	sum := func(name string, n uint64, m Metric) {
		have := sums[name]
		if have == nil {
			have = &m
			have.Name = base + name
			sums[name] = have
		}
		have.Value += n
	}
	for _, c := range g.codes {
		n := strconv.Itoa(c.code)
		prom := "envoy_" + g.Scope + "_" + promName(c.prefix)
		out = append(out, Metric{Name: base + c.prefix + n, Prom: strings.TrimSuffix(prom, "_"), Labels: tagged(labels, "envoy_response_code", n), Value: c.n})
		sum(c.prefix+n[:1]+"xx", c.n, Metric{Prom: prom + "xx", Labels: tagged(labels, "envoy_response_code_class", n[:1])})
		if completed := c.prefix + "completed"; !slices.ContainsFunc(g.Stats, func(s Stat) bool { return s.Name == completed }) {
			sum(completed, c.n, Metric{Prom: prom + "completed", Labels: labels})
		}
	}
	for _, m := range sums {
		out = append(out, *m)
	}
	return out
}

func tagged(labels []Label, name, value string) []Label {
	return append([]Label{{name, value}}, labels...)
}

func promName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

// Named gives the group of a scope and name, made when there is none.
func (s *Set) Named(scope, name string) *Group {
	at := groupName{scope, name}
	g := s.asked[at]
	if g == nil {
		g = s.find(at)
		s.asked[at] = g
	}
	return g
}

func (s *Set) find(at groupName) *Group {
	for _, g := range s.groups {
		if g.Scope == at.scope && g.Name == at.name {
			return g
		}
	}
	return s.Add(at.scope, at.name, nil)
}
