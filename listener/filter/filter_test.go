package filter

import (
	"testing"

	"sluice/internal/config"
)

func TestChance(t *testing.T) {
	count := func(p uint32) (n int) {
		for i := range uint64(20_000) {
			x := &Exchange{Random: i * 0x9e3779b97f4a7c15}
			if x.Chance(config.Percent{PerMillion: p}) {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		rule     string
		p        uint32
		min, max int
	}{
		{"never", 0, 0, 0},
		{"always", 1_000_000, 20_000, 20_000},
		{"half of the requests", 500_000, 9_600, 10_400},
		{"a tenth of them", 100_000, 1_850, 2_150},
	} {
		if n := count(c.p); n < c.min || n > c.max {
			t.Errorf("%s: %d of 20000", c.rule, n)
		}
	}
	both := 0
	for i := range uint64(20_000) {
		x := &Exchange{Random: i * 0x9e3779b97f4a7c15}
		first, second := x.Chance(config.Percent{PerMillion: 500_000}), x.Chance(config.Percent{PerMillion: 500_000})
		if first && second {
			both++
		}
	}
	if both < 4_700 || both > 5_300 {
		t.Errorf("two draws of a half came together %d times of 20000, want a quarter", both)
	}
}
