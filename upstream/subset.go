package upstream

import (
	"math"
	"slices"
	"strconv"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/upstream/balance"
)

// subsets are the balancing sets of a cluster with lb_subset_config on one
// worker: one for each combination of values that a selector's keys have.
type subsets struct {
	config   *config.SubsetLB
	sets     map[string]*balance.Set
	fallback *balance.Set // of the default subset
	key      []byte
	created  uint64
	selected uint64
	fellBack uint64
}

// fallbackList is the member of wanted metadata with what to want else.
const fallbackList = "fallback_list"

// divide builds the sets anew from the cluster's hosts.
func (c *Cluster) divide() {
	o := c.Config.Subset
	if o == nil {
		c.sub = nil
		return
	}
	if c.sub == nil {
		c.sub = &subsets{}
	}
	s := c.sub
	old := s.sets
	s.config, s.sets = o, make(map[string]*balance.Set)
	members := make(map[string][]*balance.Host)
	var standard []*balance.Host
	for _, h := range c.hosts {
		for i := range o.Selectors {
			s.place(h, i, nil, 0, members)
		}
		if contains(h.Metadata.LB, o.Default) {
			standard = append(standard, &h.Host)
		}
	}
	for key, hosts := range members {
		s.sets[key] = balance.New(c.Config, hosts, c.weights, c.local.seed)
		if old[key] == nil {
			s.created++
		}
	}
	s.fallback = balance.New(c.Config, standard, c.weights, c.local.seed)
}

// place enters a host under each combination of its values for a selector's
// keys from at on.
func (s *subsets) place(h *Host, selector int, key []byte, at int, members map[string][]*balance.Host) {
	keys := s.config.Selectors[selector].Keys
	if at == len(keys) {
		if list := members[string(key)]; !slices.Contains(list, &h.Host) {
			members[string(key)] = append(list, &h.Host)
		}
		return
	}
	v, ok := h.Metadata.LB[keys[at]]
	if !ok {
		return
	}
	values := config.List{v}
	if l, isList := v.(config.List); isList && s.config.ListAsAny {
		values = l
	}
	for _, v := range values {
		s.place(h, selector, appendPair(slices.Clip(key), keys[at], v), at+1, members)
	}
}

func contains(have, want config.Struct) bool {
	for k, v := range want {
		h, ok := have[k]
		if !ok || string(appendValue(nil, h)) != string(appendValue(nil, v)) {
			return false
		}
	}
	return true
}

func appendPair(key []byte, name string, v config.Value) []byte {
	key = append(append(key, name...), '=')
	return append(appendValue(key, v), 0)
}

// appendValue writes a value so that different ones differ.
func appendValue(b []byte, v config.Value) []byte {
	switch v := v.(type) {
	case string:
		return strconv.AppendQuote(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case float64:
		return strconv.AppendUint(append(b, 'n'), math.Float64bits(v), 16)
	case config.List:
		for _, e := range v {
			b = append(appendValue(b, e), ',')
		}
		return append(b, ']')
	case config.Struct:
		names := make([]string, 0, len(v))
		for n := range v {
			names = append(names, n)
		}
		slices.Sort(names)
		for _, n := range names {
			b = append(appendValue(append(append(b, n...), ':'), v[n]), ',')
		}
		return append(b, '}')
	}
	return append(b, '-')
}

// pick chooses among the hosts that have the wanted metadata.
func (s *subsets) pick(all *balance.Set, q *Query) *balance.Host {
	want := q.Match
	list, _ := want[fallbackList].(config.List)
	if !s.config.FallbackList || len(list) == 0 {
		return s.pickBy(all, q, want)
	}
	for _, e := range list {
		other, _ := e.(config.Struct)
		if set := s.find(merged(want, other)); set != nil {
			s.selected++
			return set.Pick(&q.Query)
		}
	}
	return s.pickBy(all, q, merged(want, nil))
}

// merged is base without its fallback_list, changed by other.
func merged(base, other config.Struct) config.Struct {
	out := make(config.Struct, len(base)+len(other))
	for k, v := range base {
		if k != fallbackList {
			out[k] = v
		}
	}
	for k, v := range other {
		out[k] = v
	}
	return out
}

func (s *subsets) pickBy(all *balance.Set, q *Query, want config.Struct) *balance.Host {
	if set := s.find(want); set != nil {
		s.selected++
		return set.Pick(&q.Query)
	}
	policy := s.config.Fallback + 1
	if x := s.selector(want); x != nil && x.Fallback != 0 {
		policy = x.Fallback
		if policy == 4 {
			return s.pickFewer(q, want, x.FallbackKeys)
		}
	}
	switch policy {
	case 2:
		s.fellBack++
		return all.Pick(&q.Query)
	case 3:
		s.fellBack++
		return s.fallback.Pick(&q.Query)
	}
	return nil
}

// pickFewer wants only some of the keys.
func (s *subsets) pickFewer(q *Query, want config.Struct, keys []string) *balance.Host {
	fewer := make(config.Struct, len(keys))
	for _, k := range keys {
		fewer[k] = want[k]
	}
	if set := s.find(fewer); set != nil {
		s.selected++
		return set.Pick(&q.Query)
	}
	return nil
}

// selector is the one whose keys are those of want.
func (s *subsets) selector(want config.Struct) *config.SubsetSelector {
	for i := range s.config.Selectors {
		x := &s.config.Selectors[i]
		if len(x.Keys) == len(want) && !slices.ContainsFunc(x.Keys, func(k string) bool { _, ok := want[k]; return !ok }) {
			return x
		}
	}
	return nil
}

func (s *subsets) find(want config.Struct) *balance.Set {
	x := s.selector(want)
	if x == nil || len(want) == 0 {
		return nil
	}
	key := s.key[:0]
	for _, k := range x.Keys {
		key = appendPair(key, k, want[k])
	}
	s.key = key
	return s.sets[string(key)]
}

// count reports the statistics of one worker. Envoy's main thread has subsets
// of its own, which the first worker counts.
func (s *subsets) count(first bool, emit func(string, uint64, telemetry.Kind)) {
	threads := uint64(1)
	if first {
		threads = 2
	}
	emit("lb_subsets_active", threads*uint64(len(s.sets)), telemetry.Gauge)
	emit("lb_subsets_created", threads*s.created, telemetry.Counter)
	emit("lb_subsets_selected", s.selected, telemetry.Counter)
	emit("lb_subsets_fallback", s.fellBack, telemetry.Counter)
}
