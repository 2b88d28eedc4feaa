package conform

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// meantDifference is a difference the product means to have: an entry of
// differs.yaml. Only the named paths are accepted; the rest of the case counts.
type meantDifference struct {
	Why   string   `yaml:"why"`
	Paths []string `yaml:"paths"`
}

// lists are the product's own remarks on cases.
type lists struct {
	differs map[string]meantDifference
	pending map[string]string // case → why it does not pass yet
}

// loadLists reads differs.yaml and pending.yaml. Each entry needs its reason and
// must name a case that exists.
func loadLists(differs, pending string, known []string) (lists, error) {
	var l lists
	for file, into := range map[string]any{differs: &l.differs, pending: &l.pending} {
		n, err := readYAML(file)
		if err != nil {
			return l, err
		}
		if n == nil || n.Kind == yaml.ScalarNode {
			continue // nothing but comments
		}
		if err := decodeStrict(n, into); err != nil {
			return l, fmt.Errorf("reading %s: %w", file, err)
		}
	}
	for name, d := range l.differs {
		if d.Why == "" || len(d.Paths) == 0 || !slices.Contains(known, name) {
			return l, fmt.Errorf("%s: %s needs a case that exists, why and paths", differs, name)
		}
	}
	for name, why := range l.pending {
		if why == "" || !slices.Contains(known, name) {
			return l, fmt.Errorf("%s: %s needs a case that exists and a reason", pending, name)
		}
	}
	return l, nil
}

// result is the verdict on one case.
type result struct {
	file  *caseFile
	diffs []difference
	// problems fail the case whatever was compared.
	problems []string
	took     time.Duration
}

func (r result) passed() bool { return len(r.diffs) == 0 && len(r.problems) == 0 }

// judge plays a case and compares; differences that are meant are accepted, and
// one that is listed as meant but is none is a problem.
func judge(ctx context.Context, s setup, c *caseFile, meant meantDifference) (result, error) {
	o, err := play(ctx, s, c)
	if err != nil {
		return result{}, err
	}
	r := result{file: c, problems: o.problems, took: o.took}
	var stale []string
	r.diffs, stale = withoutMeant(compared(any(c.expect), any(o.value), pathPatterns(c.Ignore)), pathPatterns(meant.Paths))
	for _, path := range stale {
		r.problems = append(r.problems, "listed as a meant difference, but is none now: "+path)
	}
	return r, nil
}

// String is a report: what the case pins, its problems and differences.
func (r result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.file.name, r.file.Why)
	for _, p := range r.problems {
		fmt.Fprintf(&b, "  %s\n", p)
	}
	for i, d := range r.diffs {
		if i == 20 {
			fmt.Fprintf(&b, "  ... and %d more\n", len(r.diffs)-i)
			break
		}
		label := r.file.stepLabel(d.path)
		fmt.Fprintf(&b, "  %s%s\n      expected %s\n      got      %s\n", d.path, label, shownSide(d.want, d.got), shownSide(d.got, d.want))
	}
	return b.String()
}
