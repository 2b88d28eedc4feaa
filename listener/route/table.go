// Package route compiles a config.RouteConfiguration into a Table and finds the
// route of a request in it. It is pure: no I/O, no clock, no shared state. It
// does not send anything; listener/httpproxy asks it for a Route and for the
// edits, rewrites and redirects that the Route means.
//
// A Table is immutable after Compile and safe for any number of goroutines; the
// Request handed to Match is its caller's.
package route

import (
	"maps"
	"sort"
	"strconv"
	"strings"

	"sluice/internal/config"
)

// Table is a compiled route configuration.
type Table struct {
	Config *config.RouteConfiguration
	// Routes lists every route; Route.Index is the position here.
	Routes []*Route

	exact    map[string]*VirtualHost
	suffixes []wildcards // longest first
	prefixes []wildcards // longest first
	fallback *VirtualHost
}

// wildcards are the wildcard domains whose fixed part has n bytes.
type wildcards struct {
	n     int
	hosts map[string]*VirtualHost
}

// VirtualHost is a compiled virtual host.
type VirtualHost struct {
	Config *config.VirtualHost
	routes []*Route
	index  *pathIndex // nil for short lists
}

// Route is a compiled route: the configuration and what follows from its place
// in the table, resolved once.
type Route struct {
	Config *config.Route
	Host   *VirtualHost
	Table  *Table
	Index  int
	// Retry, Mirrors and the buffer limit are the most specific ones.
	Retry       *config.RetryPolicy
	Mirrors     []config.Mirror
	BufferLimit int // -1: the connection's
	// Request and Response hold the header edits in the order they apply.
	Request, Response []*Mutations
	subsets           []config.Struct // by weighted cluster
	clusterEdits      []clusterEdits  // by weighted cluster
	template          []byte          // the path template in regexp's syntax

	order int // position in its virtual host
}

type clusterEdits struct{ request, response *Mutations }

// Compile builds the Table of c.
func Compile(c *config.RouteConfiguration) *Table {
	t := &Table{Config: c, exact: make(map[string]*VirtualHost)}
	suffix, prefix := map[int]map[string]*VirtualHost{}, map[int]map[string]*VirtualHost{}
	for _, v := range c.VirtualHosts {
		h := t.compileHost(v)
		for _, d := range v.Domains {
			t.addDomain(strings.ToLower(d), h, suffix, prefix)
		}
	}
	t.suffixes, t.prefixes = byLength(suffix), byLength(prefix)
	return t
}

func (t *Table) addDomain(d string, h *VirtualHost, suffix, prefix map[int]map[string]*VirtualHost) {
	switch {
	case d == "*":
		if t.fallback == nil {
			t.fallback = h
		}
	case strings.HasPrefix(d, "*"):
		put(suffix, d[1:], h)
	case strings.HasSuffix(d, "*"):
		put(prefix, d[:len(d)-1], h)
	default:
		if t.exact[d] == nil {
			t.exact[d] = h
		}
	}
}

func put(m map[int]map[string]*VirtualHost, fixed string, h *VirtualHost) {
	if m[len(fixed)] == nil {
		m[len(fixed)] = make(map[string]*VirtualHost)
	}
	if m[len(fixed)][fixed] == nil {
		m[len(fixed)][fixed] = h
	}
}

func byLength(m map[int]map[string]*VirtualHost) []wildcards {
	var w []wildcards
	for n, hosts := range m {
		w = append(w, wildcards{n, hosts})
	}
	sort.Slice(w, func(i, j int) bool { return w[i].n > w[j].n })
	return w
}

func (t *Table) compileHost(v *config.VirtualHost) *VirtualHost {
	h := &VirtualHost{Config: v}
	for i, c := range v.Routes {
		r := t.compileRoute(c, h)
		r.order = i
		h.routes = append(h.routes, r)
	}
	if len(h.routes) > indexFrom {
		h.index = newPathIndex(h.routes)
	}
	return h
}

func (t *Table) compileRoute(c *config.Route, h *VirtualHost) *Route {
	r := &Route{Config: c, Host: h, Table: t, Index: len(t.Routes), Retry: h.Config.Retry,
		Mirrors: t.Config.MirrorPolicies, BufferLimit: c.RetryBufferLimit}
	t.Routes = append(t.Routes, r)
	if r.BufferLimit < 0 {
		r.BufferLimit = h.Config.RetryBufferLimit
	}
	if len(h.Config.MirrorPolicies) > 0 {
		r.Mirrors = h.Config.MirrorPolicies
	}
	if a := c.Action; a != nil {
		if a.Retry != nil {
			r.Retry = a.Retry
		}
		if len(a.Mirrors) > 0 {
			r.Mirrors = a.Mirrors
		}
		r.template = []byte(strings.ReplaceAll(a.PathTemplate, "{", "${"))
		for i := range a.Weighted {
			w := &a.Weighted[i]
			r.subsets = append(r.subsets, mergedStruct(a.MetadataMatch, w.MetadataMatch))
			r.clusterEdits = append(r.clusterEdits, clusterEdits{compileMutations(w.RequestHeaders), compileMutations(w.ResponseHeaders)})
		}
	}
	levels := []level{{c.RequestHeaders, c.ResponseHeaders}, {h.Config.RequestHeaders, h.Config.ResponseHeaders},
		{t.Config.RequestHeaders, t.Config.ResponseHeaders}}
	if t.Config.MostSpecificFirst { // most_specific_header_mutations_wins: the most specific acts last
		levels[0], levels[2] = levels[2], levels[0]
	}
	for _, l := range levels {
		r.Request = appendMutations(r.Request, l.request)
		r.Response = appendMutations(r.Response, l.response)
	}
	return r
}

type level struct{ request, response []config.HeaderMutation }

func appendMutations(to []*Mutations, m []config.HeaderMutation) []*Mutations {
	if c := compileMutations(m); c != nil {
		return append(to, c)
	}
	return to
}

// Subset is the metadata that the request's host must have, with what weighted
// cluster i (-1: none) adds to the route's.
func (r *Route) Subset(i int) config.Struct {
	if i < 0 || i >= len(r.subsets) {
		return r.Config.Action.MetadataMatch
	}
	return r.subsets[i]
}

func mergedStruct(a, b config.Struct) config.Struct {
	if len(b) == 0 {
		return a
	}
	out := make(config.Struct, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// ClusterEdits gives the header edits of weighted cluster i (-1: none), which
// act before all others.
func (r *Route) ClusterEdits(i int) (request, response *Mutations) {
	if i < 0 || i >= len(r.clusterEdits) {
		return nil, nil
	}
	return r.clusterEdits[i].request, r.clusterEdits[i].response
}

// Cluster says which cluster gets the request, and which of the weighted ones
// it was (-1: none). "" means there is none.
func (r *Route) Cluster(q *Request) (name string, weighted int) {
	a := r.Config.Action
	switch {
	case a.Cluster != "":
		return a.Cluster, -1
	case a.ClusterHeader != "":
		return string(q.headerFirst(a.ClusterHeader)), -1
	case len(a.Weighted) == 0 || a.TotalWeight == 0:
		return "", -1
	}
	at := uint32(q.Random % uint64(a.TotalWeight))
	if a.WeightHeader != "" {
		if n, err := strconv.ParseUint(string(q.headerFirst(a.WeightHeader)), 10, 64); err == nil {
			at = uint32(n % uint64(a.TotalWeight))
		}
	}
	for i := range a.Weighted {
		w := &a.Weighted[i]
		if at < w.Weight {
			if w.Name == "" && w.ClusterHeader != "" {
				return string(q.headerFirst(w.ClusterHeader)), i
			}
			return w.Name, i
		}
		at -= w.Weight
	}
	return "", -1
}
