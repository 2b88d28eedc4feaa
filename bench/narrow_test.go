package main

import (
	"slices"
	"testing"
)

func TestTheWidestIntervalGetsMoreRoundsWhereverItLies(t *testing.T) {
	const name = "HTTP/1.1 1 KB, 32 connections"
	s := http1()[0]
	width := func(ours ...float64) float64 {
		rec := &record{Samples: slices.Concat(cells(name, sluice, ours...), cells(name, envoy, 10, 10, 10, 10))}
		return rec.width(s)
	}
	win, loss, narrow := width(2, 3, 2, 3), width(20, 30, 20, 30), width(2, 2.1, 2, 2.1)
	if d := win - loss; d > 1e-9 || d < -1e-9 {
		t.Errorf("a win's width is %v, a loss's of the same spread %v", win, loss)
	}
	if narrow <= 0 || narrow >= win {
		t.Errorf("a row with less spread has width %v, not less than %v", narrow, win)
	}
	if w := width(2); w != 0 {
		t.Errorf("one pair has width %v", w)
	}
	for _, c := range []struct {
		what   string
		widths []float64
		rounds []int
		want   int
	}{
		{"the widest", []float64{.1, .3, .2}, []int{4, 4, 4}, 1},
		{"the widest of those with rounds left", []float64{.1, .3, .2}, []int{4, 8, 4}, 2},
		{"none has rounds left", []float64{.1, .3}, []int{8, 8}, -1},
		{"no interval", []float64{0, 0}, []int{4, 4}, -1},
	} {
		if got := widest(c.widths, c.rounds, 8); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

func TestMoreRoundsAreOfThePairOnly(t *testing.T) {
	p := programs{envoy: "envoy", haproxy: "haproxy"}
	if got, want := p.pair(http1()[0]), []string{sluice, envoy, envoyTuned}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := p.pair(http1()[3]), []string{sluice, envoy, envoyTuned, direct}; !slices.Equal(got, want) {
		t.Errorf("with latencies: got %v, want %v", got, want)
	}
}
