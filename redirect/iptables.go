package redirect

import (
	"slices"
	"strconv"
	"strings"
)

// spec is a rule in iptables' words, without table and chain.
func (r Rule) spec() []string {
	var args []string
	for _, m := range r.Matches {
		args = append(args, m.iptables()...)
	}
	return append(append(args, "-j"), r.Target.iptables(r.protocol())...)
}

func (m Match) iptables() []string {
	var load []string
	var flag string
	switch m.Kind {
	case InInterface:
		flag = "-i"
	case OutInterface:
		flag = "-o"
	case Protocol:
		flag = "-p"
	case Source:
		flag = "-s"
	case Destination:
		flag = "-d"
	case ConnState:
		load, flag = []string{"-m", "conntrack"}, "--ctstate"
	case DestPort:
		flag = "--dport"
	case SourcePort:
		flag = "--sport"
	case DestPorts:
		load, flag = []string{"-m", "multiport"}, "--dports"
	case OwnerUID:
		load, flag = []string{"-m", "owner"}, "--uid-owner"
	case OwnerGID:
		load, flag = []string{"-m", "owner"}, "--gid-owner"
	case Mark:
		load, flag = []string{"-m", "mark"}, "--mark"
	case ConnMark:
		load, flag = []string{"-m", "connmark"}, "--mark"
	}
	if m.Not {
		return append(load, "!", flag, m.Value)
	}
	return append(load, flag, m.Value)
}

func (t Target) iptables(protocol string) []string {
	switch t.Kind {
	case Accept:
		return []string{"ACCEPT"}
	case Drop:
		return []string{"DROP"}
	case Jump:
		return []string{t.Arg}
	case RedirectTo:
		flag := "--to-ports"
		if protocol == "udp" {
			flag = "--to-port" // the same option abbreviated, as istio-init has it
		}
		return []string{"REDIRECT", flag, t.Arg}
	case TProxyTo:
		return []string{"TPROXY", "--tproxy-mark", t.Arg2 + "/0xffffffff", "--on-port", t.Arg}
	case MarkWith:
		return []string{"MARK", "--set-mark", t.Arg}
	case SaveMark:
		return []string{"CONNMARK", "--save-mark"}
	case RestoreMark:
		return []string{"CONNMARK", "--restore-mark"}
	case Zone:
		return []string{"CT", "--zone", t.Arg}
	}
	return []string{"RETURN"}
}

// ownChains lists the chains of a table we have to create: those with rules in
// order of appearance, then any only jumped to.
func ownChains(list []Rule, table string) []string {
	var names []string
	add := func(name string) {
		if strings.HasPrefix(name, chainPrefix) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, r := range list {
		if r.Table == table {
			add(r.Chain)
		}
	}
	for _, r := range list {
		if r.Table == table && r.Target.Kind == Jump {
			add(r.Target.Arg)
		}
	}
	return names
}

// tablesOf lists the tables in use, alphabetically, as they are committed.
func tablesOf(list []Rule) []string {
	var names []string
	for _, r := range list {
		if !slices.Contains(names, r.Table) {
			names = append(names, r.Table)
		}
	}
	slices.Sort(names)
	return names
}

// script is the input of one iptables-restore: lines by table.
type script map[string][]string

func (s script) add(table, line string) { s[table] = append(s[table], line) }

func (s script) String() string {
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString("* " + name + "\n")
		for _, line := range s[name] {
			b.WriteString(line + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// create adds the lines that make the rules of one family.
func (s script) create(list []Rule) {
	for _, table := range tablesOf(list) {
		for _, chain := range ownChains(list, table) {
			s.add(table, "-N "+chain)
		}
	}
	for _, r := range list {
		at := "-A " + r.Chain
		if r.Insert > 0 {
			at = "-I " + r.Chain + " " + strconv.Itoa(r.Insert)
		}
		s.add(r.Table, at+" "+strings.Join(r.spec(), " "))
	}
}

// RestoreText renders the rules of one family as the input of
// `iptables-restore --noflush`; empty when the family has none.
func RestoreText(r Rules, f Family) string {
	s := script{}
	s.create(r.For(f))
	return s.String()
}
