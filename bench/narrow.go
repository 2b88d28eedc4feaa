package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"sluice/bench/stat"
)

// narrowed is how many rounds a row may have, as a multiple of those that all have:
// tails of latency stay wide, and would take all of the time.
const narrowed = 2

// narrow spends what the rounds left of the budget: two more of them, so that they
// are ABBA, for the row whose interval is widest, again and again. Where an
// interval lies plays no part, so that nobody is favoured by it.
func (b *bench) narrow(ctx context.Context, list []scenario, rec *record, began time.Time) error {
	base, added := rec.Facts.Rounds, 0
	open := slices.DeleteFunc(slices.Clone(list), func(s scenario) bool { return s.rounds > 0 })
	rounds, widths := make([]int, len(open)), make([]float64, len(open))
	for i, s := range open {
		rounds[i], widths[i] = base, rec.width(s)
	}
	for longest := time.Duration(0); time.Since(began)+longest < b.options.budget; added += 2 {
		i := widest(widths, rounds, narrowed*base)
		if i < 0 {
			break
		}
		s, since := open[i], time.Now()
		if s.halfMax {
			s.load.Rate = halfOfMaximum(rec.Samples)
		}
		for range 2 {
			if err := b.round(ctx, s, b.programs.pair(s), rounds[i], rec); err != nil {
				return err
			}
			rounds[i]++
		}
		widths[i] = rec.width(s)
		longest = max(longest, time.Since(since))
	}
	rec.Facts.Notes = append(rec.Facts.Notes, fmt.Sprintf("%d more rounds of single rows, each for the one with the widest interval then", added))
	rec.Facts.Took = time.Since(began).Round(time.Second).String()
	return b.write(rec)
}

// widest gives the place of the largest width among those with fewer rounds than
// most, -1 for none.
func widest(widths []float64, rounds []int, most int) int {
	at := -1
	for i, w := range widths {
		if rounds[i] < most && w > 0 && (at < 0 || w > widths[at]) {
			at = i
		}
	}
	return at
}

// width is that of the widest interval of a scenario's metrics, as a logarithm; 0
// where there is none.
func (rec *record) width(s scenario) (most float64) {
	for _, l := range rec.lines(s) {
		if l.failed == "" && l.ratio.Low > 0 && !math.IsInf(l.ratio.High, 1) {
			most = max(most, math.Log(l.ratio.High/l.ratio.Low))
		}
	}
	return most
}

// round measures all of names once.
func (b *bench) round(ctx context.Context, s scenario, names []string, round int, rec *record) error {
	for _, i := range stat.Order(round, len(names), uint64(len(s.name))) {
		if err := b.cellOf(ctx, s, names[i], round, rec); err != nil {
			return err
		}
	}
	return nil
}

// pair lists those that a ratio is made of.
func (p programs) pair(s scenario) []string {
	return slices.DeleteFunc(p.field(s, 0, 1), func(name string) bool {
		return !slices.Contains([]string{sluice, envoy, envoyTuned, direct}, name)
	})
}
