package telemetry

import (
	"context"
	"fmt"
	"testing"
)

func TestAScrapeTakesAWorkerInPieces(t *testing.T) {
	s := NewSet()
	const groups = 5000
	for i := range groups {
		g := s.Add("cluster", fmt.Sprint(i), nil)
		g.Inc("a")
		g.Inc("b")
	}
	calls, before := 0, 0
	s.Before(func() { before++ })
	r := &Registry{}
	r.Register(func(f func()) { calls++; f() }, s)
	if n := len(r.Gather(context.Background())); n != 2*groups {
		t.Errorf("%d metrics, not %d", n, 2*groups)
	}
	if want := 2*groups/perPiece + 1; calls != want || before != 1 {
		t.Errorf("%d pieces, not %d; brought up to date %d times", calls, want, before)
	}
}

func TestAScrapeDoesNotWaitForAWorkerLongerThanAsked(t *testing.T) {
	s := NewSet()
	s.Add("cluster", "a", nil).Inc("a")
	r := &Registry{}
	r.Register(func(func()) {}, s) // it never runs anything
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if n := len(r.Gather(ctx)); n != 0 {
		t.Errorf("%d metrics of a worker that is gone", n)
	}
}

// A group that goes while the walk goes on is no matter.
func TestGroupsMayChangeDuringAScrape(t *testing.T) {
	s := NewSet()
	var list []*Group
	for i := range 2 * perPiece {
		g := s.Add("cluster", fmt.Sprint(i), nil)
		g.Inc("a")
		list = append(list, g)
	}
	c := &collection{}
	seen := len(c.next(s))
	for _, g := range list[:perPiece/2] {
		s.Remove(g)
	}
	s.Add("cluster", "new", nil).Inc("a")
	for !c.over {
		seen += len(c.next(s))
	}
	if seen != 2*perPiece {
		t.Errorf("%d metrics, not %d", seen, 2*perPiece)
	}
}
