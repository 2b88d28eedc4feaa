package telemetry

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// Registry gathers the metrics of all workers.
type Registry struct {
	Tags    *Tags // nil: Envoy's own; set before the first use
	mu      sync.Mutex
	workers []registered
	globals []func(emit func(Metric))
	// base is what counters stood at when they were reset, by key: what counts
	// them knows nothing of a reset.
	base map[string]uint64
}

type registered struct {
	post func(func())
	set  *Set
}

// Register adds a worker: post runs a function on it.
func (r *Registry) Register(post func(func()), set *Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers = append(r.workers, registered{post, set})
}

// Global adds a source that is read on the scraping goroutine, for counters of
// the control path.
func (r *Registry) Global(f func(emit func(Metric))) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.globals = append(r.globals, f)
}

// Reset makes all counters begin at zero again; gauges and histograms stay.
func (r *Registry) Reset(ctx context.Context) {
	base := make(map[string]uint64)
	for k, m := range r.merged(ctx) {
		if m.Kind == Counter {
			base[k] = m.Value
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base = base
}

// Gather merges the metrics of all workers, sorted by name and labels. A worker
// that doesn't answer before ctx ends is left out.
func (r *Registry) Gather(ctx context.Context) []Metric {
	sum := r.merged(ctx)
	r.mu.Lock()
	base := r.base
	r.mu.Unlock()
	list := make([]keyed, 0, len(sum))
	for k, m := range sum {
		if b := base[k]; b <= m.Value { // else what counts it was made anew
			m.Value -= b
		}
		if r.Tags.apply(m) {
			k = m.key()
		}
		list = append(list, keyed{k, m})
	}
	slices.SortFunc(list, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	out := make([]Metric, len(list))
	for i := range list {
		out[i] = *list[i].m
	}
	return out
}

// keyed is a metric and its key, which is made once: a sort asks for it often.
type keyed struct {
	key string
	m   *Metric
}

// merged sums the metrics of all workers by key.
func (r *Registry) merged(ctx context.Context) map[string]*Metric {
	r.mu.Lock()
	workers, globals := r.workers, r.globals
	r.mu.Unlock()
	sum := make(map[string]*Metric)
	for _, w := range workers {
		w.each(ctx, func(m *Metric) { merge(sum, m) })
	}
	for _, g := range globals {
		g(func(m Metric) { merge(sum, &m) })
	}
	return sum
}

func (m *Metric) key() string {
	if len(m.Labels) == 0 {
		return m.Name
	}
	var b strings.Builder
	b.WriteString(m.Name)
	for _, l := range m.Labels {
		b.WriteByte(0)
		b.WriteString(l.Name)
		b.WriteByte(1)
		b.WriteString(l.Value)
	}
	return b.String()
}

func merge(sum map[string]*Metric, m *Metric) {
	k := m.key()
	have := sum[k]
	if have == nil {
		c := *m
		c.Used = m.Used || m.Value != 0
		sum[k] = &c
		return
	}
	have.Value += m.Value
	have.Used = have.Used || m.Used || m.Value != 0
	have.Sum += m.Sum
	for i := range m.Buckets {
		have.Buckets[i] += m.Buckets[i]
	}
}

// perPiece is how many metrics a worker makes at a time: that takes it about a
// millisecond, and a mesh may have hundreds of thousands.
const perPiece = 1000

// each gives f all metrics of a worker, a piece at a time, or those that come before ctx ends.
func (w registered) each(ctx context.Context, f func(*Metric)) {
	for c := (&collection{}); !c.over; {
		piece := make(chan []Metric, 1)
		w.post(func() { piece <- c.next(w.set) })
		select {
		case list := <-piece:
			for i := range list {
				f(&list[i])
			}
		case <-ctx.Done():
			return
		}
	}
}

// collection is a walk through a worker's metrics: what is still to be seen of
// what was there when it began.
type collection struct {
	begun    bool
	over     bool
	groups   []*Group
	requests []*istioSeries
	tcp      []*istioTCP
}

func (c *collection) begin(s *Set) {
	for _, f := range s.before {
		f()
	}
	c.begun, c.groups, c.requests, c.tcp = true, slices.Clone(s.groups), s.Istio.order, s.Istio.orderTCP
}

// next gives some metrics. It runs on the worker.
func (c *collection) next(s *Set) (out []Metric) {
	if !c.begun {
		c.begin(s)
	}
	for len(out) < perPiece {
		switch {
		case len(c.groups) > 0:
			out, c.groups = c.groups[0].collect(out), c.groups[1:]
		case len(c.requests) > 0:
			out, c.requests = c.requests[0].collect(out), c.requests[1:]
		case len(c.tcp) > 0:
			out, c.tcp = c.tcp[0].collect(out), c.tcp[1:]
		default:
			c.over = true
			return out
		}
	}
	return out
}
