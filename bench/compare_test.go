package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTwoRunsContradictOnlyWhereNoIntervalReaches(t *testing.T) {
	const name = "HTTP/1.1 1 KB, 32 connections" // must 0.30
	run := func(ours ...float64) map[string]standing {
		rec := &record{Samples: slices.Concat(cells(name, sluice, ours...), cells(name, envoy, 10, 10, 10, 10))}
		return rec.standings()
	}
	single := run(2.5)
	within, wide, over, lossy := run(2.5, 2.52, 2.48, 2.5), run(2.6, 3.4, 2.7, 3.2), run(3.6, 3.61, 3.59, 3.6), run(15, 15.1, 14.9, 15)
	for _, c := range []struct {
		what           string
		a, b           map[string]standing
		contradictions int
		want           string
	}{
		{"the same run", within, within, 0, "both: 1 of 1"},
		{"an interval that holds the must, and one below it", wide, within, 0, "at a limit"},
		{"one above and one below the must", over, within, 1, "clear wins, but short of their must: 0.36"},
		{"one pair, and an interval", single, within, 0, "at a limit"},
		{"one pair each", single, run(3.5), 0, "both: 1 of 1"},
		{"a loss and a win", lossy, within, 1, "contradiction"},
		{"a row that the second has not", within, nil, 1, "not in it"},
	} {
		text, n := compare(c.a, c.b)
		if n != c.contradictions || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d contradictions, want %d and %q:\n%s", c.what, n, c.contradictions, c.want, text)
		}
	}
}

func TestTheEndNextToOneDecidesTheGroup(t *testing.T) {
	const name = "HTTP/1.1 1 KB, 32 connections" // must 0.30
	rec := &record{Samples: slices.Concat(cells(name, sluice, 2.4, 3.1, 2.5, 3), cells(name, envoy, 10, 10, 10, 10))}
	if s := rec.standings()[name]; s.ratio.Mid >= .30 || s.group != short || s.best != won {
		t.Errorf("a middle of %.2f with an upper end of %.2f stands in group %d", s.ratio.Mid, s.ratio.High, s.group)
	}
}
