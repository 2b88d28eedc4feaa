package balance

import (
	"math"

	"sluice/internal/config"
)

// source is a list of hosts with its policy, split by locality when localities
// are weighted.
type source struct {
	policy     policy
	localities []policy // by entry of edf
	edf        *edf
}

func (s *Set) source(hosts, all []*Host, weights []uint32) source {
	if len(hosts) == 0 {
		return source{}
	}
	if s.cluster.LBCommon.LocalityWeighted && all != nil && !s.hashing() {
		if src, ok := s.byLocality(hosts, all, weights); ok {
			return src
		}
	}
	return source{policy: s.policy(hosts, all, weights)}
}

func (s *Set) hashing() bool {
	return s.cluster.LB == config.RingHash || s.cluster.LB == config.Maglev
}

func (s *Set) byLocality(hosts, all []*Host, weights []uint32) (source, bool) {
	eff := s.effective(hosts, all, weights)
	if len(eff) == 0 {
		return source{}, false
	}
	src := source{edf: &edf{}}
	for _, w := range eff {
		if w.weight <= 0 {
			continue
		}
		var list []*Host
		for _, h := range hosts {
			if h.Locality == w.locality {
				list = append(list, h)
			}
		}
		src.localities = append(src.localities, s.policy(list, nil, nil))
		src.edf.add(len(src.localities)-1, w.weight, float64(s.next()%1000)/1000)
	}
	return src, len(src.localities) > 0
}

type localityWeight struct {
	locality int
	weight   float64
}

// effective gives each locality's weight, scaled by its availability.
func (s *Set) effective(hosts, all []*Host, weights []uint32) []localityWeight {
	over := 1.4
	if a := s.cluster.Load; a != nil && a.OverProvision > 0 {
		over = float64(a.OverProvision) / 100
	}
	have, total := map[int]int{}, map[int]int{}
	for _, h := range hosts {
		have[h.Locality]++
	}
	var order []int
	for _, h := range all {
		if total[h.Locality]++; total[h.Locality] == 1 {
			order = append(order, h.Locality)
		}
	}
	var out []localityWeight
	for _, l := range order {
		if l < len(weights) && weights[l] > 0 && have[l] > 0 {
			share := math.Min(1, over*float64(have[l])/float64(total[l]))
			out = append(out, localityWeight{l, float64(weights[l]) * share})
		}
	}
	return out
}

func (s *Set) policy(hosts, all []*Host, weights []uint32) policy {
	c := s.cluster
	switch c.LB {
	case config.RingHash:
		return newRing(hosts, s.normalized(hosts, all, weights), c.RingHash)
	case config.Maglev:
		return newMaglev(hosts, s.normalized(hosts, all, weights), c.MaglevTableSize)
	case config.Random:
		return &random{hosts}
	case config.LeastRequest:
		if c.SlowStart == nil && sameWeights(hosts) {
			return &leastRequest{hosts: hosts, set: s, choices: max(2, int(c.LeastRequest.Choices)), full: c.LeastRequest.Full}
		}
		return newWeighted(s, hosts, c.LeastRequest.Bias, c.SlowStart)
	}
	if c.SlowStart == nil && sameWeights(hosts) {
		return &roundRobin{hosts: hosts, at: int(s.next() % uint64(len(hosts)))}
	}
	return newWeighted(s, hosts, 0, c.SlowStart)
}

// normalized gives each host's share of 1, locality weights included.
func (s *Set) normalized(hosts, all []*Host, weights []uint32) []float64 {
	out := make([]float64, len(hosts))
	local := map[int]float64{}
	if s.cluster.LBCommon.LocalityWeighted && all != nil {
		for _, w := range s.effective(hosts, all, weights) {
			local[w.locality] = w.weight
		}
	}
	sums, sum := map[int]float64{}, 0.0
	for _, h := range hosts {
		sums[h.Locality] += float64(h.Weight)
	}
	for i, h := range hosts {
		out[i] = float64(h.Weight)
		if len(local) > 0 {
			out[i] *= local[h.Locality] / sums[h.Locality]
		}
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func sameWeights(hosts []*Host) bool {
	for _, h := range hosts {
		if h.Weight != hosts[0].Weight {
			return false
		}
	}
	return true
}

func (s *source) pick(set *Set, q *Query, attempt int) *Host {
	if s.edf != nil {
		id := s.edf.next(func(_ int, w float64) float64 { return w })
		return s.localities[id].pick(q, attempt)
	}
	if s.policy == nil {
		return nil
	}
	return s.policy.pick(q, attempt)
}
