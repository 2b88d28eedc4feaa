package redirect

import (
	"slices"
	"strconv"
	"strings"
)

// nftFamily makes one table serve IPv4 and IPv6.
const nftFamily = "inet"

// nftTables is the order tables are written in.
func nftTables() []string { return []string{tableNat, tableMangle, tableRaw} }

func nftTable(table string) string { return "istio-proxy-" + table }

func nftChain(chain string) string {
	return strings.ReplaceAll(strings.ToLower(chain), "_", "-")
}

// nftHook is the declaration of a base chain. Output of mangle is a route hook,
// so that a changed mark is looked up again.
func nftHook(table, chain string) string {
	kind, priority := "nat", "-100"
	switch table {
	case tableMangle:
		kind, priority = "filter", "-150"
		if chain == chainOutput {
			kind = "route"
		}
	case tableRaw:
		kind, priority = "filter", "-300"
	}
	return "{ type " + kind + " hook " + nftChain(chain) + " priority " + priority + " ; }"
}

// NFTText renders all rules as the input of one `nft -f -`, which is one
// transaction: either all of it holds afterwards or nothing has changed. Tables
// are flushed first, so it may be applied again.
func NFTText(r Rules) string {
	var b strings.Builder
	for _, table := range nftTables() {
		writeNFTTable(&b, table, nftRules(r, table))
	}
	return b.String()
}

func nftRules(r Rules, table string) []Rule {
	var list []Rule
	for _, rule := range r.List {
		if rule.Table == table && (rule.Family != IPv6 || r.IPv6) {
			list = append(list, rule)
		}
	}
	return list
}

func writeNFTTable(b *strings.Builder, table string, list []Rule) {
	if len(list) == 0 {
		return
	}
	name := nftFamily + " " + nftTable(table)
	b.WriteString("add table " + name + "\nflush table " + name + "\n")
	for _, base := range []string{chainPrerouting, chainOutput} {
		if slices.ContainsFunc(list, func(r Rule) bool { return r.Chain == base }) {
			b.WriteString("add chain " + name + " " + nftChain(base) + " " + nftHook(table, base) + "\n")
		}
	}
	chains := ownChains(list, table)
	if table == tableRaw {
		slices.Sort(chains) // as istio-init declares them
	}
	for _, chain := range chains {
		b.WriteString("add chain " + name + " " + nftChain(chain) + "\n")
	}
	length := map[string]int{}
	for _, r := range list {
		// Positions count from 0, and one behind the end is refused by nft.
		at := "add rule " + name + " " + nftChain(r.Chain)
		if r.Insert > 0 && r.Insert <= length[r.Chain] {
			at = "insert rule " + name + " " + nftChain(r.Chain) + " index " + strconv.Itoa(r.Insert-1)
		}
		length[r.Chain]++
		b.WriteString(at + " " + r.nft() + "\n")
	}
}

// nftOrder is the order matches are written in; iptables has another.
func nftOrder(table string) []MatchKind {
	order := []MatchKind{InInterface, OutInterface, Protocol, ConnState, Source, Destination,
		DestPort, SourcePort, DestPorts, OwnerUID, OwnerGID, Mark, ConnMark}
	if table == tableRaw {
		// The conntrack zone rules put the port first.
		return []MatchKind{DestPort, SourcePort, Source, Destination, OwnerUID, OwnerGID}
	}
	return order
}

func (r Rule) nft() string {
	matches := r.Matches
	if r.Table == tableMangle && r.Target == jump(chainDrop) {
		matches = append([]Match{proto("tcp")}, matches...)
	}
	var words []string
	for _, kind := range nftOrder(r.Table) {
		for _, m := range matches {
			if m.Kind == kind && !(kind == Protocol && r.terse) {
				words = append(words, m.nft(r)...)
			}
		}
	}
	return strings.Join(append(words, r.Target.nft(r)...), " ")
}

func (m Match) nft(r Rule) []string {
	var words []string
	value := m.Value
	switch m.Kind {
	case InInterface:
		words = []string{"iifname"}
		value = nftInterface(value)
	case OutInterface:
		words = []string{"oifname"}
		value = nftInterface(value)
	case Protocol:
		words = []string{"meta", "l4proto"}
	case Source:
		words = []string{ipWord(r.Family), "saddr"}
	case Destination:
		words = []string{ipWord(r.Family), "daddr"}
	case ConnState:
		words, value = []string{"ct", "state"}, strings.ToLower(value)
	case DestPort, DestPorts:
		words = []string{r.protocol(), "dport"}
	case SourcePort:
		words = []string{r.protocol(), "sport"}
	case OwnerUID, OwnerGID:
		words = nftOwner(m.Kind, r.Table)
	case Mark:
		words = []string{"mark"}
	case ConnMark:
		words = []string{"ct", "mark"}
	}
	if m.Not {
		words = append(words, "!=")
	}
	if m.Kind == DestPorts {
		value = "{ " + strings.ReplaceAll(value, ",", ", ") + " }"
	}
	return append(words, value)
}

// nftInterface quotes what isn't a plain word and turns iptables' trailing
// wildcard into nft's.
func nftInterface(name string) string {
	if rest, ok := strings.CutSuffix(name, "+"); ok {
		return `"` + rest + `*"`
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			return `"` + name + `"`
		}
	}
	return name
}

func nftOwner(kind MatchKind, table string) []string {
	word := "skuid"
	if kind == OwnerGID {
		word = "skgid"
	}
	if table == tableRaw {
		return []string{"meta", word}
	}
	return []string{word}
}

func ipWord(f Family) string {
	if f == IPv6 {
		return "ip6"
	}
	return "ip"
}

func (t Target) nft(r Rule) []string {
	switch t.Kind {
	case Accept:
		return []string{"counter", "accept"}
	case Drop:
		return []string{"counter", "drop"}
	case Jump:
		return []string{"counter", "jump", nftChain(t.Arg)}
	case RedirectTo:
		return []string{"counter", "redirect", "to", ":" + t.Arg}
	case TProxyTo:
		// Unlike iptables' target this one doesn't mark the packet by itself.
		return []string{"tproxy", ipWord(r.Family), "to", ":" + t.Arg, "meta", "mark", "set", t.Arg2, "counter", "accept"}
	case MarkWith:
		return []string{"counter", "meta", "mark", "set", t.Arg}
	case SaveMark:
		return []string{"counter", "ct", "mark", "set", "mark"}
	case RestoreMark:
		return []string{"counter", "meta", "mark", "set", "ct", "mark"}
	case Zone:
		return []string{"counter", "ct", "zone", "set", t.Arg}
	}
	return []string{"counter", "return"}
}
