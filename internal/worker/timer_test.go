package worker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestWheelFiresLikeAList compares the wheel with the obvious thing over random
// starts, stops and steps of the clock.
func TestWheelFiresLikeAList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		w := &Worker{}
		w.wheel.init()
		timers := make([]Timer, 40)
		due := make([]int64, len(timers)) // ticks; 0: stopped
		var fired []int
		for i := range timers {
			timers[i].Fire = func() { fired = append(fired, i) }
		}
		for range 300 {
			i := r.IntN(len(timers))
			switch r.IntN(4) {
			case 0:
				w.Stop(&timers[i])
				due[i] = 0
			case 1, 2:
				d := time.Duration(r.Int64N(1 << (10 + r.IntN(38))))
				w.Start(&timers[i], d)
				due[i] = max((w.now+int64(d)+tickNanos-1)/tickNanos, w.now/tickNanos+1)
			default:
				w.now += r.Int64N(1 << (10 + r.IntN(36)))
				fired = fired[:0]
				for turns := 0; turns == 0 || w.wheel.tick < w.now/tickNanos; turns++ {
					left := r.IntN(4) + 1
					w.wheel.advance(w.now, func() bool { left--; return left < 0 })
				}
				var want []int
				for j, d := range due {
					if d != 0 && d <= w.now/tickNanos {
						want = append(want, j)
						due[j] = 0
					}
				}
				got := slices.Clone(fired)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Fatalf("at %d fired %v, want %v", w.now, got, want)
				}
			}
			for j := range timers {
				if timers[j].Active() != (due[j] != 0) {
					t.Fatalf("timer %d active %v, due %d", j, timers[j].Active(), due[j])
				}
			}
			if n := w.wheel.nextTick(); n >= 0 {
				first := int64(1 << 62)
				for _, d := range due {
					if d != 0 {
						first = min(first, d)
					}
				}
				if n > first {
					t.Fatalf("would sleep until tick %d past %d", n, first)
				}
			}
		}
	}
}

func TestTimerRestartsItself(t *testing.T) {
	w := &Worker{}
	w.wheel.init()
	var n int
	var tm Timer
	tm.Fire = func() { n++; w.Start(&tm, 0) }
	w.Start(&tm, 0)
	for range 5 {
		w.now += int64(time.Millisecond)
		w.wheel.advance(w.now, func() bool { return false })
	}
	if n < 4 || n > 5 {
		t.Fatalf("fired %d times in 5 ticks", n)
	}
	if a := testing.AllocsPerRun(100, func() { w.Start(&tm, time.Hour); w.Stop(&tm) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}
