package conform

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

var updateFlag = flag.Bool("update", false, "TestCases rewrites pending.yaml: what passes goes off, what fails comes on")

const pendingHeader = `# Cases that do not pass yet: "area/name: why". A case of this list that passes fails
# the test: take it off. go test ./internal/meshtest/conform -run TestCases -update
# rewrites it; reasons that stand here stay.
`

// pendingList is pending.yaml while a run rewrites it.
type pendingList struct {
	mu  sync.Mutex
	why map[string]string
}

// noted takes a verdict into the list.
func (p *pendingList) noted(name string, r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.passed():
		delete(p.why, name)
	case p.why[name] == "":
		p.why[name] = shortReason(r)
	}
}

// shortReason is the first thing wrong, in a line.
func shortReason(r result) string {
	why := strings.Join(r.problems, "; ")
	if len(r.diffs) > 0 {
		d := r.diffs[0]
		why = fmt.Sprintf("%s: expected %s, got %s", d.path, shownSide(d.want, d.got), shownSide(d.got, d.want))
		if len(r.diffs) > 1 {
			why = fmt.Sprintf("%d differences, %s", len(r.diffs), why)
		}
	}
	if why = strings.ToValidUTF8(why, "?"); len(why) > 160 {
		why = strings.ToValidUTF8(why[:160], "") + "..."
	}
	return why
}

func (p *pendingList) write(t *testing.T) {
	t.Helper()
	text := pendingHeader
	for _, name := range slices.Sorted(maps.Keys(p.why)) {
		text += name + ": " + quoted(p.why[name]) + "\n"
	}
	if err := os.WriteFile("pending.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
