// Package budget holds what a request may cost: time, allocations and system
// calls of each engine, of the whole path through the connection manager, and of
// the features that Istio's configuration turns on. ceilings.txt has the figures;
// a figure above its ceiling fails the build. It has no code of its own and
// nobody imports it.
package budget

import (
	"flag"
	"testing"
)

// featureLimit is the feature budget in nanoseconds a request, on the machine of
// ceilings.txt: routing, statistics, access log, retries, timeouts and header
// edits together.
const featureLimit = 6000

// TestCeilings measures every row and compares it with ceilings.txt. Nanoseconds
// are of the ordinary build only: with -short, the race detector or coverage
// allocations and system calls decide.
func TestCeilings(t *testing.T) {
	m := newMeter(t, allWork(t))
	m.count()
	if timed() {
		m.time(rounds)
	} else {
		t.Log("nanoseconds are not compared: -short, race detector or coverage")
	}
	if *update {
		m.time(4 * rounds) // to record the quietest moments
		m.write(t)
	}
	f := readCeilings(t)
	found := f.breaches(m)
	for try := 0; try < 4 && anyTime(found); try++ {
		m.timeOf(found, rounds) // more rounds find a quieter moment; they can't hide a slowdown
		found = f.breaches(m)
	}
	t.Log("\n" + m.report())
	for _, b := range found {
		t.Error(b)
	}
}

// timed says whether nanoseconds mean something in this build.
func timed() bool { return !testing.Short() && !raceDetector && testing.CoverMode() == "" }

var update = flag.Bool("update", false, "write what is measured to ceilings.txt")
