package budget

import (
	"strings"
	"testing"
	"time"

	"sluice/listener/filter"
)

// asCeilings takes what m measured for the ceilings of another measurement, so
// that what trips them is the change alone.
func (m *meter) asCeilings() *ceilings {
	c := &ceilings{price: m.price, rows: map[string]figures{}}
	for _, w := range m.rows {
		c.rows[w.name] = *m.got[w.name]
		c.order = append(c.order, w.name)
	}
	return c
}

func measure(t *testing.T, rows ...*work) *meter {
	m := newMeter(t, rows)
	m.count()
	if timed() {
		m.time(rounds / 2)
	}
	return m
}

// twice does every unit of a row two times.
func twice(w *work) *work {
	slow := *w
	if w.run != nil {
		slow.run = func(n int) time.Duration { return w.run(2 * n) }
	}
	return &slow
}

// want is a breach that must be found.
type want struct{ row, what string }

// missing gives the wanted breaches that slow doesn't show against base. What
// other processes took of the time of base raises the ceilings: then both are measured on.
func missing(base, slow *meter, wanted []want) (found []breach, left []want) {
	for range 5 {
		found, left = base.asCeilings().breaches(slow), nil
		for _, w := range wanted {
			if !has(found, w) && (timed() || !strings.HasPrefix(w.what, timeUnit)) {
				left = append(left, w)
			}
		}
		if len(left) == 0 || !timed() {
			break
		}
		base.time(rounds)
		slow.time(rounds)
	}
	return found, left
}

func has(found []breach, w want) bool {
	for _, b := range found {
		if b.row == w.row && b.what == w.what && b.got > b.ceiling && strings.HasPrefix(b.String(), w.row+": ") {
			return true
		}
	}
	return false
}

// TestTwiceTheWorkIsABreach shows that headroom and noise together hide no row
// that becomes half as fast.
func TestTwiceTheWorkIsABreach(t *testing.T) {
	rows := allWork(t)
	var slow []*work
	var wanted []want
	for _, w := range rows {
		slow = append(slow, twice(w))
		if w.run != nil {
			wanted = append(wanted, want{w.name, timeUnit})
		}
	}
	found, left := missing(measure(t, rows...), measure(t, slow...), wanted)
	for _, w := range left {
		t.Errorf("%s: twice the work passes", w.row)
	}
	t.Log(found)
}

// extra is a filter that does something to every request.
type extra func()

func (f extra) Decode(*filter.Exchange, *filter.Slot) filter.Verdict { f(); return filter.Continue }
func (f extra) Encode(*filter.Exchange, *filter.Slot)                {}

func burn() {
	for began := time.Now(); time.Since(began) < 10*time.Microsecond; {
	}
}

// TestCeilingsTrip slows the path down on purpose.
func TestCeilingsTrip(t *testing.T) {
	const row, bare, cost = "path/http1/istio", "path/http1/bare", "features/http1"
	rows := func(f filter.HTTP, pieces int) []*work {
		return []*work{newHTTP1(t, "bare").work(bare), newHTTP1With(t, "istio", f, pieces).work(row), beyond(cost, row, bare)}
	}
	var kept []byte
	base := measure(t, rows(nil, 1)...)
	for _, x := range []struct {
		name   string
		f      filter.HTTP
		pieces int
		wanted []want
	}{
		{"a filter that burns 10 µs", extra(burn), 1, []want{{row, timeUnit}, {cost, timeUnit}, {cost, byBudget}}},
		{"a filter that allocates", extra(func() { kept = make([]byte, 64) }), 1, []want{{row, "allocations"}, {row, "bytes allocated"}}},
		{"an answer in two pieces", nil, 2, []want{{row, "writes"}, {row, "reads"}}},
	} {
		found, left := missing(base, measure(t, rows(x.f, x.pieces)...), x.wanted)
		if len(left) > 0 {
			t.Errorf("%s is no breach of %v: %v", x.name, left, found)
		}
		t.Logf("%s: %v", x.name, found)
	}
	if len(kept) == 0 {
		t.Error("the filter did not run")
	}
}
