package main

import (
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"testing"
)

func TestNineTenthsOfTheContainersMemoryUnlessToldLess(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for _, c := range []struct {
		name      string
		told      int64 // GOMEMLIMIT
		container uint64
		err       error
		want      int64
	}{
		{"a container's limit alone", math.MaxInt64, 1000 << 20, nil, 900 << 20},
		{"GOMEMLIMIT of injection, the whole limit", 1000 << 20, 1000 << 20, nil, 900 << 20},
		{"a lower GOMEMLIMIT", 500 << 20, 1000 << 20, nil, 500 << 20},
		{"no limit", math.MaxInt64, 0, errors.New("none"), math.MaxInt64},
	} {
		debug.SetMemoryLimit(c.told)
		limitMemory(slog.New(slog.DiscardHandler), func() (uint64, error) { return c.container, c.err })
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: %d, not %d", c.name, got, c.want)
		}
	}
}
