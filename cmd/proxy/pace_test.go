package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestSmallHeapsAreCollectedLessOften(t *testing.T) {
	for _, c := range []struct {
		live    uint64
		percent int
	}{{0, 400}, {4 << 20, 400}, {5 << 20, 300}, {8 << 20, 169}, {16 << 20, 100}, {1 << 30, 100}} {
		if n := gcPercent(c.live); n != c.percent {
			t.Errorf("%d live bytes: %d %%, not %d", c.live, n, c.percent)
		}
	}
}

func TestThePaceFollowsTheLiveHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	paceCollector(t.Context())
	hold := make([]byte, 64<<20)
	want := func(percent int) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; {
			runtime.GC()
			time.Sleep(time.Millisecond)
			n := debug.SetGCPercent(-1)
			debug.SetGCPercent(n)
			if n == percent {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d %%, not %d", n, percent)
			}
		}
	}
	want(gcDefault)
	runtime.KeepAlive(hold)
	hold = nil
	want(gcMost)
}
