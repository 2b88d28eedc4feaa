package balance

// Table tells the size and the fairness of the consistent hashing table of the
// first priority, under Envoy's names; nothing for other policies.
func (s *Set) Table(tell func(name string, v int)) {
	if len(s.levels) == 0 {
		return
	}
	src := s.levels[0].good.policy
	if s.levels[0].panic {
		src = s.levels[0].all.policy
	}
	switch p := src.(type) {
	case *ring:
		low, high := fairness(len(p.entries), func(i int) *Host { return p.entries[i].host })
		tell("ring_hash_lb.size", len(p.entries))
		tell("ring_hash_lb.min_hashes_per_host", low)
		tell("ring_hash_lb.max_hashes_per_host", high)
	case *maglev:
		low, high := fairness(len(p.table), func(i int) *Host { return p.table[i] })
		tell("maglev_lb.min_entries_per_host", low)
		tell("maglev_lb.max_entries_per_host", high)
	}
}

// fairness counts the entries of each host and gives the fewest and the most.
func fairness(n int, at func(i int) *Host) (low, high int) {
	counts := map[*Host]int{}
	for i := range n {
		counts[at(i)]++
	}
	low = n
	for _, c := range counts {
		low, high = min(low, c), max(high, c)
	}
	return low, high
}
