package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestSmallHeapsAreCollectedLessOften(t *testing.T) {
	for _, c := range []struct {
		live, room uint64
		percent    int64
	}{{0, gcRoom, 400}, {4 << 20, gcRoom, 400}, {5 << 20, gcRoom, 300}, {8 << 20, gcRoom, 169}, {16 << 20, gcRoom, 100}, {1 << 30, gcRoom, 100},
		{0, startRoom, 1100}, {10 << 20, startRoom, 349}, {44 << 20, startRoom, 100}} {
		if n := gcPercent(c.live, c.room); n != c.percent {
			t.Errorf("%d live bytes, room for %d: %d %%, not %d", c.live, c.room, n, c.percent)
		}
	}
}

func TestThePaceFollowsTheLiveHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	k := paceCollector()
	want := func(percent int64) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); k.percent.Load() != percent; time.Sleep(time.Millisecond) {
			if runtime.GC(); time.Now().After(end) {
				t.Fatalf("%d %%, not %d", k.percent.Load(), percent)
			}
		}
	}
	want(1100)
	k.settle()
	want(400)
	hold := make([]byte, 64<<20)
	want(gcDefault)
	runtime.KeepAlive(hold)
	hold = nil
	want(400)
}
