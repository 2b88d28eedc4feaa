package budget

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	file = "ceilings.txt"

	// headroom is how far above its recorded nanoseconds a row may be. Below two,
	// so that twice the work never passes; as much as two builds of the same code on
	// two machines differ once their speed is taken out.
	headroom = 1.6

	// slack is what counts may be above theirs: what the runtime itself allocates.
	slack      = .05
	slackBytes = 16

	header = `# What one unit of each row costs, as the last "go test ./bench/budget -run TestCeilings -update" measured it. How to read it: bench/README.md.
# Nanoseconds may be 1.6 times these, on a machine of the same speed as the machine rows say; everything else may be no more.
#                             ns  allocs   bytes  waits  reads writes others
`
)

// ceilings are the contents of the file.
type ceilings struct {
	price price
	rows  map[string]figures
	order []string
}

// breach is a figure above its ceiling.
type breach struct {
	row, what    string
	got, ceiling float64
}

func (b breach) String() string {
	return fmt.Sprintf("%s: %.6g %s, the ceiling is %.6g", b.row, b.got, b.what, b.ceiling)
}

func readCeilings(t *testing.T) *ceilings {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &ceilings{rows: map[string]figures{}}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var name string
		var f figures
		n, err := fmt.Sscan(line, &name, &f.ns, &f.allocs, &f.bytes, &f.waits, &f.reads, &f.writes, &f.others)
		switch {
		case name == "machine/compute":
			c.price.compute = f.ns
		case name == "machine/call":
			c.price.call = f.ns
		case n != 8:
			t.Fatalf("%s: %q: %v", file, line, err)
		default:
			c.rows[name] = f
			c.order = append(c.order, name)
		}
	}
	return c
}

// write keeps the rows that can't be measured here.
func (m *meter) write(t *testing.T) {
	t.Helper()
	if !timed() {
		t.Fatal("-update wants the ordinary build: no -short, race detector or coverage")
	}
	text, old := m.report(), readCeilings(t)
	for _, name := range old.order {
		if elsewhere(name) {
			f := old.rows[name]
			f.ns = old.here(&f, m.price)
			text += f.line(name)
		}
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// breaches compares what was measured with the ceilings. A row that only one of
// them has is a breach too, unless it is for another processor.
func (c *ceilings) breaches(m *meter) (found []breach) {
	for _, name := range c.order {
		if m.got[name] == nil && !elsewhere(name) {
			found = append(found, breach{name, "rows of that name are measured", 0, 1})
		}
	}
	for _, w := range m.rows {
		want, ok := c.rows[w.name]
		if !ok {
			found = append(found, breach{w.name, "rows of that name have no ceiling, see -update", 1, 0})
			continue
		}
		found = append(found, c.compare(w, m.got[w.name], &want, m.price)...)
	}
	return found
}

func (c *ceilings) compare(w *work, got, want *figures, here price) (found []breach) {
	for _, x := range []struct {
		what      string
		got, most float64
	}{
		{"allocations", got.allocs, want.allocs + slack}, {"bytes allocated", got.bytes, want.bytes + slackBytes},
		{"waits", got.waits, want.waits + slack}, {"reads", got.reads, want.reads + slack},
		{"writes", got.writes, want.writes + slack}, {"other system calls", got.others, want.others + slack},
	} {
		if x.got > x.most {
			found = append(found, breach{w.name, x.what, x.got, x.most})
		}
	}
	if !timed() {
		return found
	}
	if most := headroom * c.here(want, here); got.ns > most {
		found = append(found, breach{w.name, timeUnit, got.ns, most})
	}
	if most := featureLimit * here.compute / c.price.compute; w.of != "" && got.ns > most {
		found = append(found, breach{w.name, byBudget, got.ns, most})
	}
	return found
}

// here is what a row's recorded nanoseconds are on the machine we run on: its
// system calls at their price here, the rest at that of computing.
func (c *ceilings) here(f *figures, here price) float64 {
	kernel := min(f.calls()*c.price.call, f.ns)
	return (f.ns-kernel)*here.compute/c.price.compute + kernel*here.call/c.price.call
}

const (
	timeUnit = "ns"
	byBudget = timeUnit + ", by the feature budget"
)

func anyTime(found []breach) bool {
	for _, b := range found {
		if strings.HasPrefix(b.what, timeUnit) {
			return true
		}
	}
	return false
}
