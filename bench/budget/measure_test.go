package budget

import (
	"crypto/sha256"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rounds  = 100              // each measures every row once
	batch   = time.Millisecond // of one measurement: short enough to be often undisturbed
	warm    = 300              // units before anything is counted
	counted = 400              // units in which allocations and calls are counted
)

// figures are what one unit of a row costs.
type figures struct {
	ns                           float64
	allocs, bytes                float64
	waits, reads, writes, others float64 // system calls
}

func (f *figures) calls() float64 { return f.waits + f.reads + f.writes + f.others }

// price is what this machine takes for work that never changes: of computing, and
// of a system call. It turns the nanoseconds of one machine into those of another.
type price struct{ compute, call float64 }

// meter measures rows: counts exactly, times by the best of many short batches
// that take turns, so that a busy neighbour disturbs all rows or none.
type meter struct {
	t     *testing.T
	rows  []*work
	n     map[*work]int // units of a batch
	got   map[string]*figures
	price price
	pair  [2]int
	table [256]uint32
	block [4096]byte
	sum   uint32
}

func newMeter(t *testing.T, rows []*work) *meter {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	m := &meter{t: t, rows: rows, n: map[*work]int{}, got: map[string]*figures{}, price: price{math.Inf(1), math.Inf(1)}}
	for i := range m.table {
		m.table[i] = uint32(i) * 0x9e3779b1
	}
	for i := range m.block {
		m.block[i] = byte(i * 7)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.pair = pair
	t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
	for _, w := range rows {
		m.got[w.name] = &figures{ns: math.Inf(1)}
	}
	return m
}

// count finds allocations and system calls, the fewest of a few passes: the
// runtime allocates now and then.
func (m *meter) count() {
	for _, w := range m.rows {
		f := m.got[w.name]
		if w.run == nil {
			continue
		}
		w.run(warm)
		f.allocs, f.bytes = math.Inf(1), math.Inf(1)
		for range 4 {
			m.countOnce(w, f)
		}
	}
	m.derive()
}

func (m *meter) countOnce(w *work, f *figures) {
	var before, after runtime.MemStats
	var calls [2]figures
	calls[0] = callsOf(w)
	runtime.ReadMemStats(&before)
	w.run(counted)
	runtime.ReadMemStats(&after)
	calls[1] = callsOf(w)
	per := func(n float64) float64 { return math.Round(n/counted*10) / 10 }
	f.allocs = min(f.allocs, per(float64(after.Mallocs-before.Mallocs)))
	f.bytes = min(f.bytes, math.Round(float64(after.TotalAlloc-before.TotalAlloc)/counted))
	f.waits, f.reads = per(calls[1].waits-calls[0].waits), per(calls[1].reads-calls[0].reads)
	f.writes, f.others = per(calls[1].writes-calls[0].writes), per(calls[1].others-calls[0].others)
}

func callsOf(w *work) figures {
	if w.calls == nil {
		return figures{}
	}
	c := w.calls()
	return figures{waits: float64(c.Waits), reads: float64(c.Reads), writes: float64(c.Writes), others: float64(c.Splices + c.Others)}
}

// time measures every row n times more.
func (m *meter) time(n int) { m.timeRows(m.rows, n) }

// timeOf measures the rows that breaches name once more.
func (m *meter) timeOf(found []breach, n int) {
	again := map[string]bool{}
	for _, b := range found {
		again[b.row] = true
	}
	for _, w := range m.rows {
		if again[w.name] && w.of != "" {
			again[w.of], again[w.than] = true, true
		}
	}
	var rows []*work
	for _, w := range m.rows {
		if again[w.name] {
			rows = append(rows, w)
		}
	}
	m.timeRows(rows, n)
}

func (m *meter) timeRows(rows []*work, n int) {
	for range n {
		m.calibrate()
		for _, w := range rows {
			if w.run != nil {
				f := m.got[w.name]
				f.ns = min(f.ns, m.batchOf(w))
			}
		}
	}
	m.derive()
}

// batchOf is the time of a unit in one batch.
func (m *meter) batchOf(w *work) float64 {
	if m.n[w] == 0 {
		m.n[w] = unitsOf(w)
	}
	n := m.n[w]
	return float64(w.run(n)) / float64(n)
}

// unitsOf is how many units make a batch. The quickest of several tries decides: one
// that was interrupted would make batches so short that their beginning is most of them.
func unitsOf(w *work) int {
	for n := 1; ; n *= 2 {
		best := batch
		for range 4 {
			best = min(best, w.run(n))
		}
		if best == batch {
			return n
		}
	}
}

// derive fills the rows that are the difference of two others.
func (m *meter) derive() {
	for _, w := range m.rows {
		if w.of == "" {
			continue
		}
		a, b := m.got[w.of], m.got[w.than]
		*m.got[w.name] = figures{a.ns - b.ns, a.allocs - b.allocs, a.bytes - b.bytes, a.waits - b.waits, a.reads - b.reads, a.writes - b.writes, a.others - b.others}
	}
}

// calibrate takes the prices.
func (m *meter) calibrate() {
	began := time.Now()
	for range 40 {
		m.compute()
	}
	m.price.compute = min(m.price.compute, float64(time.Since(began))/40)
	began = time.Now()
	for range 200 {
		m.call()
	}
	m.price.call = min(m.price.call, float64(time.Since(began))/400)
}

// compute is like what engines do: bytes looked up in a table, one after the
// other, with a branch, a copy, and a hash.
func (m *meter) compute() {
	s := m.sum
	for _, b := range m.block {
		if s = m.table[byte(s)^b] ^ s>>8; s&0x1f == 0 {
			s++
		}
	}
	x := sha256.Sum256(m.block[:1024])
	m.sum = s + uint32(x[0])
}

// call is a write and a read of a socket.
func (m *meter) call() {
	b := m.block[:256]
	if _, err := unix.Write(m.pair[0], b); err != nil {
		m.t.Fatal(err)
	}
	if _, err := unix.Read(m.pair[1], b); err != nil {
		m.t.Fatal(err)
	}
}

// report writes everything that was measured.
func (m *meter) report() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s%-24s %8.0f\n%-24s %8.0f\n", header, "machine/compute", m.price.compute, "machine/call", m.price.call)
	for _, w := range m.rows {
		s.WriteString(m.got[w.name].line(w.name))
	}
	return s.String()
}

// line is a row of the file.
func (f *figures) line(name string) string {
	return fmt.Sprintf("%-24s %8.0f %7.4g %7.4g %6.4g %6.4g %6.4g %6.4g\n", name, f.ns, f.allocs, f.bytes, f.waits, f.reads, f.writes, f.others)
}
