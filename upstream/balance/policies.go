package balance

import (
	"math"

	"sluice/internal/config"
)

type random struct{ hosts []*Host }

func (p *random) pick(q *Query, _ int) *Host { return p.hosts[(q.Random>>7)%uint64(len(p.hosts))] }

type roundRobin struct {
	hosts []*Host
	at    int
}

func (p *roundRobin) pick(*Query, int) *Host {
	if p.at >= len(p.hosts) {
		p.at = 0
	}
	h := p.hosts[p.at]
	p.at++
	return h
}

// leastRequest samples a few hosts and takes the one with the fewest requests
// under way, or looks at all.
type leastRequest struct {
	hosts   []*Host
	set     *Set
	choices int
	full    bool
}

func (p *leastRequest) pick(*Query, int) *Host {
	if p.full {
		return p.scan()
	}
	n := uint64(len(p.hosts))
	if n == 1 {
		return p.hosts[0]
	}
	best := p.hosts[p.set.next()%n]
	for range p.choices - 1 {
		if h := p.hosts[p.set.next()%n]; h.Active < best.Active {
			best = h
		}
	}
	return best
}

// scan takes the least busy host, ties broken at random.
func (p *leastRequest) scan() *Host {
	best, ties := p.hosts[0], uint64(1)
	for _, h := range p.hosts[1:] {
		switch {
		case h.Active < best.Active:
			best, ties = h, 1
		case h.Active == best.Active:
			if ties++; p.set.next()%ties == 0 {
				best = h
			}
		}
	}
	return best
}

// weighted is the earliest-deadline-first schedule: a host of weight w comes
// around every 1/w. Weights fall with requests under way for least request, and
// are scaled while a host is new.
type weighted struct {
	hosts []*Host
	edf   edf
	bias  float64
	slow  *config.SlowStart
	now   int64
}

func newWeighted(s *Set, hosts []*Host, bias float64, slow *config.SlowStart) *weighted {
	p := &weighted{hosts: hosts, bias: bias, slow: slow}
	for i, h := range hosts {
		p.edf.add(i, float64(h.Weight), 0)
	}
	// A random start keeps proxies from hitting the heaviest host together.
	sum := 0.0
	for _, h := range hosts {
		sum += float64(h.Weight)
	}
	for range s.next() % uint64(math.Min(sum, 1000)+1) {
		p.edf.next(func(i int, _ float64) float64 { return float64(hosts[i].Weight) })
	}
	return p
}

func (p *weighted) pick(q *Query, _ int) *Host {
	p.now = q.Now
	return p.hosts[p.edf.next(p.weight)]
}

func (p *weighted) weight(i int, _ float64) float64 {
	h := p.hosts[i]
	w := float64(h.Weight)
	if p.bias > 0 {
		if p.bias == 1 {
			w /= float64(h.Active + 1)
		} else {
			w /= math.Pow(float64(h.Active+1), p.bias)
		}
	}
	if s := p.slow; s != nil && h.Since != 0 {
		if age := float64(p.now - h.Since); age < float64(s.Window) {
			f := math.Pow(math.Max(age, 1e6)/float64(s.Window), 1/s.Aggression)
			w *= math.Max(f, s.MinPercent/100)
		}
	}
	return w
}

// edf is a binary heap of deadlines.
type edf struct {
	items []edfItem
	time  float64
	seq   uint64
}

type edfItem struct {
	deadline float64
	seq      uint64
	id       int
	weight   float64
}

func (e *edf) add(id int, weight, shift float64) {
	e.seq++
	e.items = append(e.items, edfItem{deadline: e.time + (1-shift)/weight, seq: e.seq, id: id, weight: weight})
	for i := len(e.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !e.items[i].less(&e.items[up]) {
			break
		}
		e.items[i], e.items[up] = e.items[up], e.items[i]
		i = up
	}
}

func (a *edfItem) less(b *edfItem) bool {
	return a.deadline < b.deadline || a.deadline == b.deadline && a.seq < b.seq
}

// next takes the earliest entry and schedules it again with its new weight.
func (e *edf) next(weight func(id int, w float64) float64) int {
	top := &e.items[0]
	id := top.id
	e.time = top.deadline
	w := math.Max(weight(id, top.weight), 1e-9)
	e.seq++
	top.deadline, top.seq = e.time+1/w, e.seq
	for i := 0; ; {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(e.items); k++ {
			if e.items[k].less(&e.items[least]) {
				least = k
			}
		}
		if least == i {
			return id
		}
		e.items[i], e.items[least] = e.items[least], e.items[i]
		i = least
	}
}
