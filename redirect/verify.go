package redirect

import (
	"fmt"
	"slices"
	"strings"
)

// delta compares what is saved with what is wanted and describes the first
// difference, or returns "". Rules within a chain are compared as a set, as
// istio-init does; has is asked for each because the tools print rules in
// another spelling than they take.
func delta(s saved, want []Rule, has func(Rule) (bool, error)) (string, error) {
	if d := chainDelta(s, want); d != "" {
		return d, nil
	}
	for _, r := range want {
		ok, err := has(r)
		if err != nil {
			return "", err
		}
		if !ok {
			return fmt.Sprintf("%s %s lacks %s", r.Table, r.Chain, strings.Join(r.spec(), " ")), nil
		}
	}
	return "", nil
}

func chainDelta(s saved, want []Rule) string {
	for _, table := range tablesOf(want) {
		for _, chain := range ownChains(want, table) {
			rules, ok := s[table][chain]
			if !ok {
				return fmt.Sprintf("%s has no chain %s", table, chain)
			}
			if n := countRules(want, table, chain); n != len(rules) {
				return fmt.Sprintf("%s %s has %d rules, want %d", table, chain, len(rules), n)
			}
		}
	}
	for table := range s {
		for _, chain := range s.ours(table) {
			if !slices.Contains(ownChains(want, table), chain) {
				return fmt.Sprintf("%s has an unexpected chain %s", table, chain)
			}
		}
	}
	return ""
}

func countRules(list []Rule, table, chain string) int {
	n := 0
	for _, r := range list {
		if r.Table == table && r.Chain == chain {
			n++
		}
	}
	return n
}

// remove builds the lines that take away every chain of ours, the jumps to
// them, and those of the wanted rules that hang on the kernel's own hooks. It
// deletes one copy of each, by what is there and not by what should be, because
// one line too many fails the whole transaction.
func remove(s saved, want []Rule, has func(Rule) (bool, error)) (script, error) {
	lines := script{}
	for table, chains := range s {
		for chain, rules := range chains {
			if strings.HasPrefix(chain, chainPrefix) {
				continue
			}
			for _, spec := range rules {
				if jumpsToOurs(spec) {
					lines.add(table, "-D "+chain+" "+spec)
				}
			}
		}
	}
	for _, r := range want {
		if !r.builtin() || r.Target.Kind == Jump {
			continue
		}
		ok, err := has(r)
		if err != nil {
			return nil, err
		}
		if ok {
			lines.add(r.Table, "-D "+r.Chain+" "+strings.Join(r.spec(), " "))
		}
	}
	for table := range s {
		ours := s.ours(table)
		slices.Sort(ours)
		for _, op := range []string{"-F ", "-X "} { // chains refer to each other
			for _, chain := range ours {
				lines.add(table, op+chain)
			}
		}
	}
	return lines, nil
}

// guard drops everything while rules are replaced, so that nothing leaves the
// pod uncaptured in between.
func guard(op string) script {
	lines := script{}
	for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		for _, protocol := range []string{"tcp", "udp"} {
			at := chain
			if op == "-I" {
				at += " 1"
			}
			lines.add("filter", op+" "+at+" -p "+protocol+" -j DROP")
		}
	}
	return lines
}
