package connectionrate

import (
	"testing"
	"time"

	"sluice/internal/config"
)

func TestBucket(t *testing.T) {
	for _, c := range []struct {
		name   string
		bucket config.TokenBucket
		at     []time.Duration
		want   string // one letter a take: y or n
	}{
		{"as many as it holds", config.TokenBucket{Max: 2, Fill: 1, Interval: time.Hour}, []time.Duration{0, 0, 0, time.Minute}, "yynn"},
		{"a token comes back", config.TokenBucket{Max: 1, Fill: 1, Interval: time.Second}, []time.Duration{0, time.Second / 2, time.Second, time.Second}, "ynyn"},
		{"never more than it holds", config.TokenBucket{Max: 2, Fill: 2, Interval: time.Second}, []time.Duration{time.Hour, time.Hour, time.Hour}, "yyn"},
		{"several tokens a fill", config.TokenBucket{Max: 4, Fill: 4, Interval: time.Second}, []time.Duration{0, 0, 0, 0, 0, time.Second / 4}, "yyyyny"},
		{"soon after the clock began", config.TokenBucket{Max: 3, Fill: 1, Interval: time.Hour}, []time.Duration{1, 2, 3, 4}, "yyyn"},
	} {
		b, got := NewBucket(c.bucket), ""
		for _, at := range c.at {
			if b.Take(int64(at)) {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
