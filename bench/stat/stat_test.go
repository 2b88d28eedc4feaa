package stat

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestTwoRoundsAreABBA(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for round := 0; round < 8; round += 2 {
			a, b := Order(round, n, 7), Order(round+1, n, 7)
			slices.Reverse(b)
			if !slices.Equal(a, b) {
				t.Errorf("n %d, rounds %d and %d: %v is not the reverse of %v", n, round, round+1, b, a)
			}
			sorted := slices.Sorted(slices.Values(a))
			for i, v := range sorted {
				if i != v {
					t.Errorf("n %d: %v is no permutation", n, a)
				}
			}
		}
	}
	seen := map[int]bool{}
	for round := 0; round < 40; round += 2 {
		seen[Order(round, 2, 7)[0]] = true
	}
	if len(seen) != 2 {
		t.Error("the same contestant always comes first")
	}
}

func TestRatioAndItsInterval(t *testing.T) {
	for _, c := range []struct {
		name         string
		ours, theirs []float64
		mid          float64
		holds        []float64
		excludes     []float64
	}{
		{"equal", []float64{10, 11, 9, 10, 10.5, 9.5}, []float64{10.2, 10.8, 9.1, 10.1, 10.3, 9.6}, 1, []float64{1}, []float64{.9, 1.1}},
		{"half, whatever the speed of the machine", []float64{10, 20, 40, 5}, []float64{20.2, 39.5, 80, 10.1}, .5, []float64{.5}, []float64{.45, .55, 1}},
		{"an outlier widens", []float64{10, 10, 10, 30}, []float64{10, 10, 10, 10}, 1.316, []float64{1, 1.3}, nil},
		{"one pair proves nothing", []float64{1}, []float64{2}, .5, []float64{.001, 1000}, nil},
		{"pairs without a value are left out", []float64{0, 5, 5}, []float64{10, 10, 10}, .5, []float64{.5}, []float64{.6}},
	} {
		got := Ratio(c.ours, c.theirs)
		if math.Abs(got.Mid-c.mid) > .02 {
			t.Errorf("%s: middle %.3f, want %.3f", c.name, got.Mid, c.mid)
		}
		for _, v := range c.holds {
			if v < got.Low || v > got.High {
				t.Errorf("%s: %v does not hold %v", c.name, got, v)
			}
		}
		for _, v := range c.excludes {
			if v >= got.Low && v <= got.High {
				t.Errorf("%s: %v holds %v", c.name, got, v)
			}
		}
	}
	if got := Ratio(nil, nil); !math.IsNaN(got.Mid) {
		t.Errorf("no pairs give %v", got)
	}
}

func TestTiers(t *testing.T) {
	for _, c := range []struct {
		name  string
		i     Interval
		floor float64
		want  Tier
	}{
		{"clear win", Interval{.5, .45, .55}, 1.03, Win},
		{"the upper end decides", Interval{.5, .1, 1.01}, 1, Noise},
		{"better by less than the floor", Interval{.97, .96, .98}, 1.05, Noise},
		{"clear loss", Interval{1.3, 1.2, 1.4}, 1.03, Loss},
		{"worse by less than the floor", Interval{1.04, 1.03, 1.05}, 1.06, Noise},
		{"one pair", Interval{.5, 0, math.Inf(1)}, 1, Single},
	} {
		if got := Judge(c.i, c.floor); got != c.want {
			t.Errorf("%s: tier %d, want %d", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		name string
		null []Interval
		want float64
	}{
		{"no null run", nil, 1},
		{"nulls that hold 1", []Interval{{1.05, .98, 1.12}, {.96, .9, 1.01}}, 1},
		{"one that is faster than itself", []Interval{{1.01, .99, 1.03}, {.96, .94, .98}}, 1 / .96},
		{"one that is slower", []Interval{{1.06, 1.02, 1.1}, {.96, .94, .98}}, 1.06},
		{"one pair", []Interval{{2, 0, math.Inf(1)}}, 1},
	} {
		if got := Floor(c.null); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestVoidRules(t *testing.T) {
	quiet := Conditions{Seconds: 1, LagP99: 20, Client: .3, Core0: .5, Foreign0: .01, Foreign1: .01, OpenLoop: true, Accounted: true, ProxyAlone: true}
	for _, c := range []struct {
		name   string
		change func(*Conditions)
		want   string
	}{
		{"quiet", func(*Conditions) {}, ""},
		{"late client", func(c *Conditions) { c.LagP99 = 5000 }, "late"},
		{"late client in a closed loop doesn't matter", func(c *Conditions) { c.LagP99, c.OpenLoop = 5000, false }, ""},
		{"busy client", func(c *Conditions) { c.Core0 = .9 }, "busy"},
		{"busy client in a closed loop is a remark, not a void", func(c *Conditions) { c.Core0, c.OpenLoop = .99, false }, ""},
		{"company on the proxy's core", func(c *Conditions) { c.Foreign1 = .1 }, "proxy's core"},
		{"company of our own making", func(c *Conditions) { c.Foreign1, c.ProxyAlone = .1, false }, ""},
		{"company on the client's core", func(c *Conditions) { c.Foreign0 = .1 }, "client's core"},
		{"unknown company", func(c *Conditions) { c.Foreign0, c.Foreign1, c.Accounted = .5, .5, false }, ""},
		{"steal", func(c *Conditions) { c.Steal = .05 }, "hypervisor"},
	} {
		got := quiet
		c.change(&got)
		if reason := Void(got, DefaultBounds()); (reason == "") != (c.want == "") || !strings.Contains(reason, c.want) {
			t.Errorf("%s: %q, want %q", c.name, reason, c.want)
		}
	}
	if !ClientBound(Conditions{Core0: .99}, .6) || ClientBound(Conditions{Core0: .99}, .99) || ClientBound(Conditions{Core0: .5}, .6) {
		t.Error("client-bound rows are told wrongly")
	}
}

func TestHistogramKeepsQuantiles(t *testing.T) {
	h := NewHistogram()
	for i := range 1000 {
		h.Add(int64(i+1) * 1000) // 1 to 1,000 µs
	}
	for q, want := range map[float64]float64{.5: 500, .99: 990, .999: 999} {
		if got := h.Quantile(q); math.Abs(got-want)/want > .02 {
			t.Errorf("quantile %v is %.1f, want %.1f", q, got, want)
		}
	}
	back := Unsparse(h.Sparse())
	if back.Total != h.Total || back.Quantile(.5) != h.Quantile(.5) {
		t.Error("the raw form loses something")
	}
	if n := testing.AllocsPerRun(100, func() { h.Add(12345) }); n != 0 {
		t.Errorf("Add allocates %v times", n)
	}
}

func TestAddedLatencyTakesTheDirectWayOff(t *testing.T) {
	at := func(us ...int64) (h []*Histogram) {
		for _, u := range us {
			x := NewHistogram()
			for range 100 {
				x.Add(u * 1000)
			}
			h = append(h, x)
		}
		return h
	}
	got := AddedLatency(at(150, 150, 150), at(200, 200, 200), at(100, 100, 100), .5)
	if math.Abs(got.Mid-.5) > .05 || got.High > .6 || got.Low < .4 {
		t.Errorf("(150-100)/(200-100) is %v", got)
	}
}
