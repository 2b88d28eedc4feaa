// Package balance chooses a host of a cluster: priorities, localities, panic,
// and the load balancing policies, with Envoy's arithmetic. It is pure: no I/O,
// no clock, no shared state. upstream owns the hosts and tells a Set when their
// health changes by building a new one.
//
// A Set belongs to one worker: picking moves its cursors.
package balance

import (
	"sluice/internal/config"
)

// Health is what balancing takes an endpoint's health to be.
type Health uint8

// The states; a degraded host serves only as far as the healthy are too few.
const (
	Healthy Health = iota
	Degraded
	Unhealthy
)

// Host is an endpoint as balancing sees it. Active is kept by its owner on the
// same worker; the rest doesn't change while a Set uses it.
type Host struct {
	Index    int
	Weight   uint32
	Priority int
	Locality int // ordinal of its locality within the load assignment
	Health   Health
	Excluded bool   // being drained: not counted when health is weighed
	HashKey  string // ring and table position
	Active   int
	Since    int64 // monotonic ns of its appearance, for slow start; 0: long ago
}

// Query is one choice. Hash counts only with HasHash; Random is fresh for each
// attempt. Skip rejects a host (previous_hosts); after Tries rejections the
// last choice stands.
type Query struct {
	Hash       uint64
	HasHash    bool
	Random     uint64
	Now        int64
	Skip       func(*Host) bool
	Tries      int
	Priorities uint64 // bit set of priorities to avoid (previous_priorities)
}

// policy is a load balancing algorithm over one list of hosts.
type policy interface {
	pick(q *Query, attempt int) *Host
}

// Set chooses among the hosts of one cluster.
type Set struct {
	cluster *config.Cluster
	levels  []level
	total   int
	// Healthy and Degraded count hosts, for membership statistics.
	Healthy, Degraded, Excluded, All int
	rnd                              uint64
}

// level is one priority.
type level struct {
	hosts, healthy, degraded []*Host
	health, degradedHealth   int // percent, over-provisioned
	load, degradedLoad       int // percent of traffic
	panic                    bool
	excluded                 int
	all, good, poor          source
}

// New builds a Set. localityWeights gives each locality's weight (0: none) by
// ordinal; seed differs by worker, so that workers don't walk in step.
func New(c *config.Cluster, hosts []*Host, localityWeights []uint32, seed uint64) *Set {
	s := &Set{cluster: c, rnd: seed | 1}
	for _, h := range hosts {
		for len(s.levels) <= h.Priority {
			s.levels = append(s.levels, level{})
		}
		l := &s.levels[h.Priority]
		l.hosts = append(l.hosts, h)
		s.All++
		if h.Excluded {
			l.excluded++
			s.Excluded++
		}
		switch h.Health {
		case Healthy:
			l.healthy = append(l.healthy, h)
			s.Healthy++
		case Degraded:
			l.degraded = append(l.degraded, h)
			s.Degraded++
		}
	}
	s.loads()
	for i := range s.levels {
		l := &s.levels[i]
		switch {
		case l.panic:
			l.all = s.source(l.hosts, nil, nil)
		default:
			l.good = s.source(l.healthy, l.hosts, localityWeights)
			l.poor = s.source(l.degraded, l.hosts, localityWeights)
		}
	}
	return s
}

// loads computes the share of each priority, Envoy's "priority levels" and
// "panic threshold".
func (s *Set) loads() {
	over := 140
	if a := s.cluster.Load; a != nil && a.OverProvision > 0 {
		over = int(a.OverProvision)
	}
	sum := 0
	for i := range s.levels {
		l := &s.levels[i]
		if n := len(l.hosts) - l.excluded; n > 0 {
			l.health = min(100, over*len(l.healthy)/n)
			l.degradedHealth = min(100, over*len(l.degraded)/n)
		}
		sum += l.health + l.degradedHealth
	}
	s.total = min(100, sum)
	if s.total == 0 {
		s.noneAvailable()
		return
	}
	left := 100
	for i := range s.levels {
		l := &s.levels[i]
		l.load = min(left, l.health*100/s.total)
		left -= l.load
	}
	for i := range s.levels {
		l := &s.levels[i]
		l.degradedLoad = min(left, l.degradedHealth*100/s.total)
		left -= l.degradedLoad
	}
	s.giveRest(left)
	s.panics()
}

// giveRest gives what rounding left over to the first level with any load.
func (s *Set) giveRest(left int) {
	for i := range s.levels {
		l := &s.levels[i]
		switch {
		case l.load > 0:
			l.load += left
			return
		case l.degradedLoad > 0:
			l.degradedLoad += left
			return
		}
	}
}

func (s *Set) noneAvailable() {
	s.panics()
	all := true
	for i := range s.levels {
		all = all && (s.levels[i].panic || len(s.levels[i].hosts) == 0)
	}
	if !all || s.All == 0 {
		if len(s.levels) > 0 {
			s.levels[0].load = 100
		}
		return
	}
	left := 100
	for i := range s.levels {
		l := &s.levels[i]
		l.load = 100 * len(l.hosts) / s.All
		left -= l.load
	}
	s.giveRest(left)
}

// panics finds the levels whose health is ignored: too few healthy hosts, and
// all levels together can't carry the traffic.
func (s *Set) panics() {
	if s.total >= 100 {
		return
	}
	for i := range s.levels {
		l := &s.levels[i]
		if len(l.hosts) == 0 {
			continue
		}
		share := 0.0
		if n := len(l.hosts) - l.excluded; n > 0 {
			share = 100 * float64(len(l.healthy)+len(l.degraded)) / float64(n)
		}
		l.panic = share < s.cluster.LBCommon.PanicThreshold
	}
}

// Panic reports whether some priority with hosts ignores health.
func (s *Set) Panic() bool {
	for i := range s.levels {
		if s.levels[i].panic {
			return true
		}
	}
	return false
}

// Pick chooses a host, nil when there is none to choose.
func (s *Set) Pick(q *Query) *Host {
	if q.Random == 0 {
		q.Random = s.next()
	}
	hash := q.Random
	if q.HasHash {
		hash = q.Hash
	}
	src := s.choose(hash, q)
	if src == nil {
		return nil
	}
	var last *Host
	for attempt := 0; attempt <= q.Tries; attempt++ {
		h := src.pick(s, q, attempt)
		if h == nil {
			return last
		}
		last = h
		if q.Skip == nil || !q.Skip(h) {
			return h
		}
		q.Random = s.next()
	}
	return last
}

// next is a xorshift step: balancing needs no better randomness.
func (s *Set) next() uint64 {
	x := s.rnd
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	s.rnd = x
	return x * 0x2545F4914F6CDD1D
}

func (s *Set) choose(hash uint64, q *Query) *source {
	if q.Priorities != 0 {
		if src := s.avoid(q.Priorities); src != nil {
			return src
		}
	}
	at := int(hash%100) + 1
	sum := 0
	for i := range s.levels {
		l := &s.levels[i]
		if sum += l.load; l.load > 0 && at <= sum {
			if l.panic {
				return &l.all
			}
			return &l.good
		}
	}
	for i := range s.levels {
		l := &s.levels[i]
		if sum += l.degradedLoad; l.degradedLoad > 0 && at <= sum {
			if l.panic {
				return &l.all
			}
			return &l.poor
		}
	}
	return nil
}

// avoid finds the first priority with healthy hosts that isn't in the set.
func (s *Set) avoid(set uint64) *source {
	for i := range s.levels {
		l := &s.levels[i]
		if i < 64 && set&(1<<i) != 0 {
			continue
		}
		if l.panic {
			return &l.all
		}
		if len(l.healthy) > 0 {
			return &l.good
		}
	}
	return nil
}
