package redirect

import "strings"

// saved is what iptables-save printed: per table its chains, and per chain the
// rule specifications in order, as printed.
type saved map[string]map[string][]string

// parseSave reads the output of iptables-save. It takes what it understands
// and skips the rest: the output is a tool's, and the verification after a
// change fails on anything of ours that is missing from it.
func parseSave(text string) saved {
	s := saved{}
	var table map[string][]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		switch rest := line[1:]; line[0] {
		case '*':
			name := strings.TrimSpace(rest)
			if s[name] == nil {
				s[name] = map[string][]string{}
			}
			table = s[name]
		case ':', '-', '[':
			if table != nil {
				saveLine(table, line)
			}
		case 'C':
			if line == "COMMIT" {
				table = nil
			}
		}
	}
	return s
}

// saveLine takes ":CHAIN POLICY [0:0]" and "[0:0] -A CHAIN spec".
func saveLine(table map[string][]string, line string) {
	if name, ok := strings.CutPrefix(line, ":"); ok {
		name, _, _ = strings.Cut(name, " ")
		if _, known := table[name]; name != "" && !known {
			table[name] = nil
		}
		return
	}
	if line[0] == '[' { // counters, with iptables-save -c
		_, line, _ = strings.Cut(line, "] ")
	}
	if rest, ok := strings.CutPrefix(line, "-A "); ok {
		chain, spec, _ := strings.Cut(rest, " ")
		if chain != "" {
			table[chain] = append(table[chain], spec)
		}
	}
}

// ours lists our chains of a table that exist.
func (s saved) ours(table string) []string {
	var names []string
	for name := range s[table] {
		if strings.HasPrefix(name, chainPrefix) {
			names = append(names, name)
		}
	}
	return names
}

// residue reports whether a family has anything an earlier run, or somebody
// else, may have left: a chain of ours or any rule at all.
func (s saved) residue() bool {
	for table, chains := range s {
		if len(s.ours(table)) > 0 {
			return true
		}
		for _, rules := range chains {
			if len(rules) > 0 {
				return true
			}
		}
	}
	return false
}

// jumpsToOurs reports whether a printed rule goes to a chain of ours. What a
// comment says doesn't count.
func jumpsToOurs(spec string) bool {
	words := strings.Fields(unquoted(spec))
	for i, w := range words {
		if (w == "-j" || w == "-g") && i+1 < len(words) {
			return strings.HasPrefix(words[i+1], chainPrefix)
		}
	}
	return false
}

// unquoted drops quoted text, in which the tool escapes quotes by a backslash.
func unquoted(spec string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(spec); i++ {
		switch c := spec[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted:
			b.WriteByte(c)
		}
	}
	return b.String()
}
