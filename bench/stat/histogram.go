package stat

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

const (
	perOctave = 64 // buckets for a doubling
	buckets   = 40 * perOctave
)

// Histogram counts latencies in nanoseconds, in buckets 1.6 % wide at most.
type Histogram struct {
	Counts []uint32
	Total  uint64
	Max    int64
}

// NewHistogram makes an empty one; Add then allocates nothing.
func NewHistogram() *Histogram { return &Histogram{Counts: make([]uint32, buckets)} }

func bucket(ns int64) int {
	v := uint64(max(ns, perOctave))
	octave := bits.Len64(v) - 7 // 64 is in octave 0
	return min(octave*perOctave+int(v>>octave)-perOctave, buckets-1)
}

// middle is the middle of bucket i in nanoseconds.
func middle(i int) float64 {
	octave := i / perOctave
	return math.Ldexp(float64(perOctave+i%perOctave)+.5, octave)
}

// Add counts one latency.
func (h *Histogram) Add(ns int64) {
	h.Counts[bucket(ns)]++
	h.Total++
	h.Max = max(h.Max, ns)
}

// Merge adds o.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Total += o.Total
	h.Max = max(h.Max, o.Max)
}

// Quantile gives the latency in microseconds that a share q doesn't exceed.
func (h *Histogram) Quantile(q float64) float64 {
	rank, seen := uint64(math.Ceil(q*float64(h.Total))), uint64(0)
	for i, n := range h.Counts {
		if seen += uint64(n); seen >= rank && seen > 0 {
			return middle(i) / 1000
		}
	}
	return 0
}

// Sparse gives the filled buckets as (index, count) pairs, for the raw file.
func (h *Histogram) Sparse() []uint32 {
	var s []uint32
	for i, n := range h.Counts {
		if n > 0 {
			s = append(s, uint32(i), n)
		}
	}
	return s
}

// Unsparse is the inverse of Sparse.
func Unsparse(s []uint32) *Histogram {
	h := NewHistogram()
	for i := 0; i+1 < len(s); i += 2 {
		h.Counts[s[i]] += s[i+1]
		h.Total += uint64(s[i+1])
	}
	return h
}

// AddedLatency gives the ratio of what two contestants add to the direct way at
// a quantile: histograms pooled over pairs, the interval from resampling pairs.
// What is added can't be told finer than a tenth of the direct way itself: less
// than that counts as that much, or noise of the direct way would make any ratio.
func AddedLatency(ours, theirs, direct []*Histogram, q float64) Interval {
	n := min(len(ours), len(theirs))
	base := 0.0
	if len(direct) > 0 {
		base = pool(direct, nil).Quantile(q)
	}
	ratio := func(pick []int) float64 {
		a, b := pool(ours[:n], pick).Quantile(q)-base, pool(theirs[:n], pick).Quantile(q)-base
		least := max(1, base/10)
		return max(a, least) / max(b, least)
	}
	if n == 0 {
		return Interval{math.NaN(), 0, math.Inf(1)}
	}
	out := Interval{ratio(nil), 0, math.Inf(1)}
	if n < 2 {
		return out
	}
	rng := rand.New(rand.NewPCG(3, 4))
	draws := make([]float64, 500)
	pick := make([]int, n)
	for i := range draws {
		for k := range pick {
			pick[k] = rng.IntN(n)
		}
		draws[i] = ratio(pick)
	}
	slices.Sort(draws)
	out.Low, out.High = quantile(draws, .025), quantile(draws, .975)
	return out
}

// pool merges the picked histograms, all for nil.
func pool(h []*Histogram, pick []int) *Histogram {
	sum := NewHistogram()
	if pick == nil {
		for _, x := range h {
			sum.Merge(x)
		}
		return sum
	}
	for _, i := range pick {
		sum.Merge(h[i])
	}
	return sum
}
