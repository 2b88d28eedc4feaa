package balance

import (
	"fmt"
	"testing"

	"sluice/internal/config"
)

func hosts(weights ...uint32) []*Host {
	var out []*Host
	for i, w := range weights {
		out = append(out, &Host{Index: i, Weight: w, HashKey: fmt.Sprintf("127.0.0.1:%d", 1000+i)})
	}
	return out
}

func cluster(lb config.LBPolicy, panicAt float64) *config.Cluster {
	return &config.Cluster{ClusterOptions: &config.ClusterOptions{LB: lb, LBCommon: config.LBCommon{PanicThreshold: panicAt}, LeastRequest: config.LeastRequestOptions{Choices: 2, Bias: 1}}}
}

func spread(s *Set, n int, hash bool) map[int]int {
	got := map[int]int{}
	for i := range n {
		q := Query{HasHash: hash, Hash: Hash64([]byte(fmt.Sprint(i)), 0)}
		if h := s.Pick(&q); h != nil {
			got[h.Index]++
		} else {
			got[-1]++
		}
	}
	return got
}

func TestHash64KnownValues(t *testing.T) {
	for _, c := range []struct {
		in   string
		want uint64
	}{{"", 0xef46db3751d8e999}, {"a", 0xd24ec4f1a98c6e5b}, {"abc", 0x44bc2cf5ad770999},
		{"Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1}} {
		if got := Hash64([]byte(c.in), 0); got != c.want {
			t.Errorf("%q: %x, want %x", c.in, got, c.want)
		}
	}
}

func TestRoundRobinVisitsEachInTurn(t *testing.T) {
	s := New(cluster(config.RoundRobin, 50), hosts(1, 1, 1), nil, 7)
	for i, n := range spread(s, 300, false) {
		if n != 100 {
			t.Errorf("host %d: %d picks, want 100", i, n)
		}
	}
}

func TestWeightsAreExactOverARound(t *testing.T) {
	for _, lb := range []config.LBPolicy{config.RoundRobin, config.LeastRequest} {
		got := spread(New(cluster(lb, 50), hosts(1, 3), nil, 7), 400, false)
		if got[0] < 99 || got[0] > 101 {
			t.Errorf("policy %d: %v, want 100 and 300", lb, got)
		}
	}
}

func TestLeastRequestFullScanAvoidsTheBusy(t *testing.T) {
	c := cluster(config.LeastRequest, 50)
	c.LeastRequest.Full = true
	h := hosts(1, 1, 1)
	h[0].Active, h[2].Active = 1, 2
	if got := spread(New(c, h, nil, 3), 50, false); got[1] != 50 {
		t.Error(got)
	}
}

func TestPriorities(t *testing.T) {
	for _, c := range []struct {
		name       string
		sick       int // of four in priority 0
		p1sick     bool
		panicAt    float64
		wantP0     [2]int // range of percent
		wantNobody bool
	}{
		{"three of four suffice by 140 percent", 1, false, 50, [2]int{100, 100}, false},
		{"half healthy carries 70", 2, false, 50, [2]int{60, 80}, false},
		{"none healthy", 4, false, 50, [2]int{0, 0}, false},
		{"all sick, panic", 4, true, 50, [2]int{70, 90}, false},
		{"all sick, panic off", 4, true, 0, [2]int{0, 0}, true},
	} {
		h := hosts(1, 1, 1, 1, 1)
		for i := range c.sick {
			h[i].Health = Unhealthy
		}
		h[4].Priority = 1
		if c.p1sick {
			h[4].Health = Unhealthy
		}
		got := spread(New(cluster(config.RoundRobin, c.panicAt), h, nil, 5), 1000, false)
		if c.wantNobody {
			if got[-1] != 1000 {
				t.Errorf("%s: %v", c.name, got)
			}
			continue
		}
		p0 := (1000 - got[4]) / 10
		if p0 < c.wantP0[0] || p0 > c.wantP0[1] || got[-1] != 0 {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestLocalityWeights(t *testing.T) {
	c := cluster(config.RoundRobin, 50)
	c.LBCommon.LocalityWeighted = true
	h := hosts(1, 1, 1)
	h[2].Locality = 1
	got := spread(New(c, h, []uint32{1, 3}, 3), 400, false)
	if got[2] < 295 || got[2] > 305 {
		t.Errorf("%v, want 300 for the locality of weight 3", got)
	}
}

func TestHashedPicksAreStableAndFewMove(t *testing.T) {
	for _, lb := range []config.LBPolicy{config.RingHash, config.Maglev} {
		h := hosts(1, 1, 1, 1, 1)
		before, after := New(cluster(lb, 50), h, nil, 1), New(cluster(lb, 50), h[:4], nil, 99)
		moved := 0
		for i := range 1000 {
			hash := Hash64([]byte(fmt.Sprint(i)), 0)
			a, b := before.Pick(&Query{HasHash: true, Hash: hash}), after.Pick(&Query{HasHash: true, Hash: hash})
			if a.Index != 4 && a != b {
				moved++
			}
		}
		if moved > 120 {
			t.Errorf("policy %d: %d of 1000 keys moved among the hosts that stayed", lb, moved)
		}
	}
}

func TestSkipGivesAnotherHostWhileThereIsOne(t *testing.T) {
	h := hosts(1, 1)
	s := New(cluster(config.RoundRobin, 50), h, nil, 3)
	for range 10 {
		q := Query{Skip: func(x *Host) bool { return x == h[0] }, Tries: 5}
		if s.Pick(&q) != h[1] {
			t.Fatal("the skipped host came")
		}
	}
	q := Query{Skip: func(*Host) bool { return true }, Tries: 5}
	if s.Pick(&q) == nil {
		t.Fatal("with every host skipped one must still come")
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	for _, lb := range []config.LBPolicy{config.RoundRobin, config.LeastRequest, config.Random, config.RingHash, config.Maglev} {
		for _, w := range [][]uint32{{1, 1, 1}, {1, 2, 3}} {
			s := New(cluster(lb, 50), hosts(w...), nil, 3)
			var q Query
			if n := testing.AllocsPerRun(100, func() { q = Query{}; s.Pick(&q) }); n != 0 {
				t.Errorf("policy %d weights %v: %v allocations", lb, w, n)
			}
		}
	}
}
