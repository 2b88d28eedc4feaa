package tokenbucket

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/config"
)

func TestTake(t *testing.T) {
	for _, c := range []struct {
		rule   string
		bucket config.TokenBucket
		at     []time.Duration
		want   string // one letter a take: y or n
	}{
		{"as many as it holds", config.TokenBucket{Max: 2, Fill: 1, Interval: time.Hour}, []time.Duration{0, 0, 0, time.Minute}, "yynn"},
		{"a token comes back", config.TokenBucket{Max: 1, Fill: 1, Interval: time.Second}, []time.Duration{0, time.Second / 2, time.Second, time.Second}, "ynyn"},
		{"never more than it holds", config.TokenBucket{Max: 2, Fill: 2, Interval: time.Second}, []time.Duration{time.Hour, time.Hour, time.Hour}, "yyn"},
		{"several tokens a fill", config.TokenBucket{Max: 4, Fill: 4, Interval: time.Second}, []time.Duration{0, 0, 0, 0, 0, time.Second / 4}, "yyyyny"},
		{"soon after the clock began", config.TokenBucket{Max: 3, Fill: 1, Interval: time.Hour}, []time.Duration{1, 2, 3, 4}, "yyyn"},
		{"no tokens at all", config.TokenBucket{Fill: 1, Interval: time.Second}, []time.Duration{0, time.Hour}, "nn"},
		{"a bucket that takes ages to fill is full at first", config.TokenBucket{Max: math.MaxUint32, Fill: 1, Interval: 24 * time.Hour}, []time.Duration{0, 1}, "yy"},
	} {
		b, got := New(c.bucket), ""
		for _, at := range c.at {
			if b.Take(int64(at)) {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestLeftAndWait(t *testing.T) {
	b := New(config.TokenBucket{Max: 2, Fill: 1, Interval: time.Second})
	now := int64(time.Hour)
	for _, want := range []struct {
		left uint32
		wait time.Duration
	}{{2, 0}, {1, 0}, {0, time.Second}} {
		if left, wait := b.Left(now), b.Wait(now); left != want.left || wait != want.wait {
			t.Errorf("%d left, %v to wait, want %+v", left, wait, want)
		}
		b.Take(now)
	}
	if wait := b.Wait(now + int64(time.Second/4)); wait != 750*time.Millisecond {
		t.Errorf("%v to wait after a quarter of a second", wait)
	}
}

func TestWorkersShareOneBucket(t *testing.T) {
	b := New(config.TokenBucket{Max: 1000, Fill: 1, Interval: time.Hour})
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if b.Take(1) {
					taken.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := taken.Load(); n != 1000 {
		t.Errorf("%d tokens taken of 1000", n)
	}
}
