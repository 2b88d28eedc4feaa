package redirect

// Family says which IP version a rule is for.
type Family uint8

// Families of a rule.
const (
	Both Family = iota // no address in it: the same for both
	IPv4
	IPv6
)

// covers reports whether a rule of family f belongs into the rule set of one.
func (f Family) covers(one Family) bool { return f == Both || f == one }

// Table and chain names are iptables' spelling; the nftables backend derives
// its own from them.
const (
	tableMangle = "mangle"
	tableNat    = "nat"
	tableRaw    = "raw"

	chainPrerouting = "PREROUTING"
	chainOutput     = "OUTPUT"

	chainPrefix     = "ISTIO_"
	chainInbound    = chainPrefix + "INBOUND"
	chainOutbound   = chainPrefix + "OUTPUT"
	chainDNS        = chainPrefix + "OUTPUT_DNS"
	chainRedirect   = chainPrefix + "REDIRECT"
	chainInRedirect = chainPrefix + "IN_REDIRECT"
	chainDivert     = chainPrefix + "DIVERT"
	chainTProxy     = chainPrefix + "TPROXY"
	chainDrop       = chainPrefix + "DROP"
)

// MatchKind names what a Match looks at.
type MatchKind uint8

// What a packet can be matched by, and what Match.Value is then.
const (
	InInterface  MatchKind = iota // device name, a trailing + is a wildcard
	OutInterface                  // the same
	Protocol                      // tcp or udp
	Source                        // prefix
	Destination                   // prefix
	ConnState                     // conntrack states, comma list
	DestPort                      // port
	SourcePort                    // port
	DestPorts                     // ports, comma list
	OwnerUID                      // user id or name
	OwnerGID                      // group id or name
	Mark                          // packet mark, decimal
	ConnMark                      // connection mark, decimal
)

// Match is one condition of a rule. Values are already checked by
// Config.Validate, so both backends print them as they are.
type Match struct {
	Kind  MatchKind
	Not   bool
	Value string
}

// TargetKind names what a rule does with a packet that matches.
type TargetKind uint8

// Verdicts, and what Target.Arg is for them.
const (
	Return TargetKind = iota
	Accept
	Drop
	Jump       // Arg: chain
	RedirectTo // Arg: port
	TProxyTo   // Arg: port, Arg2: mark
	MarkWith   // Arg: mark
	SaveMark
	RestoreMark
	Zone // Arg: conntrack zone
)

// Target is the verdict of a rule.
type Target struct {
	Kind      TargetKind
	Arg, Arg2 string
}

// Rule is one line of one chain, free of any tool's syntax.
type Rule struct {
	Family  Family
	Table   string
	Chain   string
	Insert  int // 1-based position; 0 appends
	Matches []Match
	Target  Target

	// terse rules leave the protocol to the port match where the tool allows.
	terse bool
}

// builtin reports whether the rule hangs on one of the kernel's own hooks and
// so has to be deleted by itself at clean-up.
func (r Rule) builtin() bool { return r.Chain == chainPrerouting || r.Chain == chainOutput }

func (r Rule) protocol() string {
	for _, m := range r.Matches {
		if m.Kind == Protocol {
			return m.Value
		}
	}
	return ""
}

func in(name string) Match       { return Match{Kind: InInterface, Value: name} }
func out(name string) Match      { return Match{Kind: OutInterface, Value: name} }
func src(prefix string) Match    { return Match{Kind: Source, Value: prefix} }
func dst(prefix string) Match    { return Match{Kind: Destination, Value: prefix} }
func dport(port string) Match    { return Match{Kind: DestPort, Value: port} }
func dports(ports string) Match  { return Match{Kind: DestPorts, Value: ports} }
func sport(port string) Match    { return Match{Kind: SourcePort, Value: port} }
func state(states string) Match  { return Match{Kind: ConnState, Value: states} }
func mark(value string) Match    { return Match{Kind: Mark, Value: value} }
func connmark(v string) Match    { return Match{Kind: ConnMark, Value: v} }
func proto(name string) Match    { return Match{Kind: Protocol, Value: name} }
func not(m Match) Match          { m.Not = true; return m }
func jump(chain string) Target   { return Target{Kind: Jump, Arg: chain} }
func toPort(port string) Target  { return Target{Kind: RedirectTo, Arg: port} }
func setMark(mark string) Target { return Target{Kind: MarkWith, Arg: mark} }
func zone(id string) Target      { return Target{Kind: Zone, Arg: id} }

// Route is the policy routing TPROXY needs: packets with Mark are local.
type Route struct {
	Mark, Table uint32
}

// Rules is everything the kernel is asked for, in the order it is asked. Two
// equal Configs give equal Rules.
type Rules struct {
	List []Rule
	IPv6 bool   // IPv6 rules count, and ::6 must be an address of lo
	TP   *Route // nil unless TPROXY
}

// For picks the rules of one family, in order.
func (r Rules) For(f Family) []Rule {
	if f == IPv6 && !r.IPv6 {
		return nil
	}
	var list []Rule
	for _, rule := range r.List {
		if rule.Family.covers(f) {
			list = append(list, rule)
		}
	}
	return list
}
