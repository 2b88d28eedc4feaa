// Package stat decides what the samples say: the order of the cells, ratios of
// pairs with their intervals, the noise floor, tiers, and which cells don't
// count. Nothing in it knows which contestant is ours.
package stat

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Order gives the sequence of n contestants in a round: shuffled in even rounds,
// and reversed in the odd round after it, so that two rounds are ABBA and a
// drift of the machine falls on both halves of a pair alike.
func Order(round, n int, seed uint64) []int {
	order := rand.New(rand.NewPCG(seed, uint64(round/2))).Perm(n)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// Interval is an estimate with its 95 % interval.
type Interval struct{ Mid, Low, High float64 }

// Resamples is how often the bootstrap draws.
const Resamples = 10000

// Ratio gives the geometric mean of ours[i]/theirs[i], and a bootstrap interval
// from resampling whole pairs. Few pairs make a bootstrap too sure by a factor
// of sqrt(n/(n-1)) and a normal quantile where Student's is meant; the interval
// is widened by both. One pair has no interval: Low is 0 and High is infinite.
func Ratio(ours, theirs []float64) Interval {
	n := min(len(ours), len(theirs))
	logs := make([]float64, 0, n)
	for i := range n {
		if ours[i] > 0 && theirs[i] > 0 {
			logs = append(logs, math.Log(ours[i]/theirs[i]))
		}
	}
	mid, low, high := bootstrap(logs)
	return Interval{math.Exp(mid), math.Exp(low), math.Exp(high)}
}

func bootstrap(v []float64) (mid, low, high float64) {
	n := len(v)
	if n == 0 {
		return math.NaN(), math.Inf(-1), math.Inf(1)
	}
	mid = mean(v)
	if n == 1 {
		return mid, math.Inf(-1), math.Inf(1)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, Resamples)
	for i := range means {
		sum := 0.0
		for range n {
			sum += v[rng.IntN(n)]
		}
		means[i] = sum / float64(n)
	}
	slices.Sort(means)
	wider := math.Sqrt(float64(n)/float64(n-1)) * student(n-1) / 1.96
	low = mid - (mid-quantile(means, .025))*wider
	high = mid + (quantile(means, .975)-mid)*wider
	return mid, low, high
}

// student is the 97.5 % quantile of Student's distribution.
func student(df int) float64 {
	table := []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23}
	if df <= len(table) {
		return table[df-1]
	}
	return 1.96 + 2.5/float64(df)
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func quantile(sorted []float64, q float64) float64 {
	return sorted[int(q*float64(len(sorted)-1)+.5)]
}

// Median gives the middle of v, 0 for nothing.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Tier says what a ratio to a rival proves.
type Tier int

// Tiers from worst to best.
const (
	Loss   Tier = iota // worse, and not by noise
	Noise              // the interval, or the noise floor, holds 1
	Win                // better, and not by noise
	Single             // one pair: there's no interval to judge by
)

// Judge places an interval of a cost: the end next to 1 decides, not the middle,
// and it has to be past the noise floor, which is what a contestant differs from
// itself (1.03 for 3 %).
func Judge(i Interval, floor float64) Tier {
	switch {
	case math.IsInf(i.High, 1):
		return Single
	case i.High < 1/floor:
		return Win
	case i.Low > floor:
		return Loss
	}
	return Noise
}

// Floor is the noise floor that null runs prove: the largest factor by which a
// middle of theirs is off 1 whose interval doesn't hold 1, else 1. What differs by
// chance is in every row's own interval already. One pair is no null run.
func Floor(nulls []Interval) float64 {
	floor := 1.0
	for _, n := range nulls {
		if n.Low > 1 || n.High < 1 {
			floor = max(floor, n.Mid, 1/n.Mid)
		}
	}
	return floor
}
