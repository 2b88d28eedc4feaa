package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"sluice/bench/stat"
)

// standing is where a line stands in its run, and the groups that its interval reaches.
type standing struct {
	line
	group, best, worst group
}

// standings are those of all lines of a run, by name.
func (rec *record) standings() map[string]standing {
	j := rec.judge()
	all := map[string]standing{}
	for g, lines := range j.lines {
		for _, l := range lines {
			s := standing{line: l, group: group(g)}
			s.best, s.worst = l.reach(j.floor)
			all[l.name] = s
		}
	}
	return all
}

// reach gives the groups of the ends of a line's interval, taken as if each were
// known for certain. One pair has no interval: it reaches all.
func (l line) reach(floor float64) (best, worst group) {
	at := func(end float64) group {
		l.ratio = stat.Interval{Mid: end, Low: end, High: end}
		return l.group(floor)
	}
	if l.failed != "" || l.pairs == 0 {
		return lost, lost
	}
	if l.group(floor) == once {
		return once, lost
	}
	return at(l.ratio.Low), at(l.ratio.High)
}

// compareCommand says in which rows two runs disagree. Rows at a limit do by
// chance: there one run's interval reaches where the other's stands. The error
// counts those for which chance is no excuse.
func compareCommand(raw []string, out io.Writer) error {
	if len(raw) != 2 {
		return fmt.Errorf("compare wants two files of raw results, not %d", len(raw))
	}
	var runs [2]map[string]standing
	for i, path := range raw {
		rec, err := readRecord(path)
		if err != nil {
			return err
		}
		runs[i] = rec.standings()
	}
	text, contradictions := compare(runs[0], runs[1])
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	if contradictions > 0 {
		return fmt.Errorf("%d rows contradict each other", contradictions)
	}
	return nil
}

func compare(a, b map[string]standing) (text string, contradictions int) {
	var differ []string
	for name, x := range a {
		y, both := b[name]
		if both && x.group == y.group {
			continue
		}
		verdict, second := "contradiction", "not in it"
		if both {
			second = y.cell()
		}
		if both && x.best >= y.worst && y.best >= x.worst {
			verdict = "at a limit"
		} else {
			contradictions++
		}
		differ = append(differ, fmt.Sprintf("| %s | %s | %s | %s |", name, x.cell(), second, verdict))
	}
	slices.Sort(differ)
	text = fmt.Sprintf("The same group in both: %d of %d rows. At a limit: %d. Contradictions: %d.\n", len(a)-len(differ), len(a), len(differ)-contradictions, contradictions)
	if len(differ) > 0 {
		text += "\n| row | first | second | |\n|---|---|---|---|\n" + strings.Join(differ, "\n") + "\n"
	}
	return text, contradictions
}

func (s standing) cell() string {
	return fmt.Sprintf("%s: %.2f [%.2f, %.2f]", strings.ToLower(groups[s.group]), s.ratio.Mid, s.ratio.Low, s.ratio.High)
}
