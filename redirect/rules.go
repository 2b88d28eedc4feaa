package redirect

import (
	"net/netip"
	"strconv"
	"strings"
)

const (
	loopback6    = "::1/128"
	passthrough4 = "127.0.0.6/32" // the source address of inbound pass-through connections
	passthrough6 = "::6/128"
	dnsPort      = "53"
	dnsProxyPort = "15053"
	// returnMark marks the proxy's own loopback packets, which TPROXY must see.
	returnMark = "1338"
)

// Build turns a Config into Rules. It is pure; c must have passed Validate.
//
// The order of rules within a chain decides what is captured, so each step
// below says why it stands where it does.
func Build(c Config) Rules {
	b := &builder{c: c, dns: c.DNS && (c.DNSAll || len(c.DNSServers) > 0)}
	b.skipInterfaces()
	b.dropInvalid()
	b.base()
	b.inbound()
	b.outbound()
	b.tproxyMarks()
	rules := Rules{List: b.list, IPv6: c.IPv6}
	if c.Mode == TProxy {
		rules.TP = &Route{Mark: c.TProxyMark, Table: c.TProxyTable}
	}
	return rules
}

type builder struct {
	c    Config
	dns  bool
	list []Rule
}

func (b *builder) add(table, chain string, t Target, m ...Match) *Rule {
	return b.addFor(Both, table, chain, t, m...)
}

func (b *builder) addFor(f Family, table, chain string, t Target, m ...Match) *Rule {
	b.list = append(b.list, Rule{Family: f, Table: table, Chain: chain, Target: t, Matches: m})
	return &b.list[len(b.list)-1]
}

func (b *builder) insert(pos int, table, chain string, t Target, m ...Match) {
	b.add(table, chain, t, m...).Insert = pos
}

// versioned adds the IPv4 and IPv6 twins of a rule with an address in it.
func (b *builder) versioned(v4, v6 string, add func(f Family, addr string)) {
	add(IPv4, v4)
	if b.c.IPv6 {
		add(IPv6, v6)
	}
}

func (b *builder) loopback(add func(f Family, addr string)) {
	b.versioned(b.c.LoopbackIPv4.String(), loopback6, add)
}

// skipInterfaces comes first: nothing about these interfaces is ours, and a
// guest's traffic must not be taken for inbound traffic of the pod.
func (b *builder) skipInterfaces() {
	tables := []string{tableNat}
	if b.c.Mode == TProxy {
		tables = append(tables, tableMangle)
	}
	for _, table := range tables {
		for _, name := range b.c.SkipInterfaces {
			b.add(table, chainPrerouting, Target{}, in(name))
			b.add(table, chainOutput, Target{}, out(name))
		}
	}
	for _, name := range b.c.VirtInterfaces {
		b.insert(1, tableNat, chainPrerouting, Target{}, in(name))
	}
}

// dropInvalid drops out-of-window packets, which NAT would pass untranslated
// and the peer would answer with a reset. Only nftables narrows it to TCP.
func (b *builder) dropInvalid() {
	if !b.c.DropInvalid {
		return
	}
	b.add(tableMangle, chainPrerouting, jump(chainDrop), state("INVALID"))
	b.add(tableMangle, chainDrop, Target{Kind: Drop})
}

func (b *builder) base() {
	b.add(tableNat, chainInbound, Target{}, proto("tcp"), dport(port(b.c.TunnelPort)))
	b.add(tableNat, chainRedirect, toPort(port(b.c.ProxyPort)), proto("tcp"))
	b.add(tableNat, chainInRedirect, toPort(port(b.c.InboundPort)), proto("tcp"))
}

func (b *builder) inbound() {
	if b.c.InboundPorts.None() {
		return
	}
	table := tableNat
	if b.c.Mode == TProxy {
		table = tableMangle
		b.tproxyChains()
	}
	b.add(table, chainPrerouting, jump(chainInbound), proto("tcp"))
	if !b.c.InboundPorts.All {
		for _, p := range b.c.InboundPorts.List {
			b.capture(proto("tcp"), dport(port(p)))
		}
		return
	}
	for _, p := range b.c.InboundSkip {
		b.add(table, chainInbound, Target{}, proto("tcp"), dport(port(p)))
	}
	b.capture(proto("tcp"))
}

// capture sends inbound packets to the proxy. With TPROXY a packet of a known
// connection is only diverted to lo: a second TPROXY look-up could find the
// listener instead of the connection's socket.
func (b *builder) capture(m ...Match) {
	if b.c.Mode != TProxy {
		b.add(tableNat, chainInbound, jump(chainInRedirect), m...)
		return
	}
	known := append(m[:len(m):len(m)], state("RELATED,ESTABLISHED"))
	b.add(tableMangle, chainInbound, jump(chainDivert), known...)
	b.add(tableMangle, chainInbound, jump(chainTProxy), m...)
}

func (b *builder) tproxyChains() {
	b.add(tableMangle, chainDivert, setMark(b.mark()))
	b.add(tableMangle, chainDivert, Target{Kind: Accept})
	b.loopback(func(f Family, addr string) {
		t := Target{Kind: TProxyTo, Arg: port(b.c.InboundPort), Arg2: b.mark()}
		b.addFor(f, tableMangle, chainTProxy, t, not(dst(addr)), proto("tcp"))
	})
}

// tproxyMarks keeps the mark across both directions of a connection, and keeps
// TPROXY away from loopback traffic the application makes by itself.
func (b *builder) tproxyMarks() {
	if b.c.Mode != TProxy || b.c.InboundPorts.None() {
		return
	}
	ours := mark(b.mark())
	b.add(tableMangle, chainPrerouting, Target{Kind: SaveMark}, proto("tcp"), ours)
	b.add(tableMangle, chainOutput, Target{}, proto("tcp"), out("lo"), ours)
	for _, o := range b.owners() {
		b.loopback(func(f Family, addr string) {
			b.addFor(f, tableMangle, chainOutput, setMark(returnMark), not(dst(addr)), proto("tcp"), out("lo"), o)
		})
	}
	b.add(tableMangle, chainOutput, Target{Kind: RestoreMark}, proto("tcp"), connmark(b.mark()))
	b.insert(1, tableMangle, chainInbound, Target{}, proto("tcp"), ours)
	b.versioned(passthrough4, passthrough6, func(f Family, addr string) {
		b.addFor(f, tableMangle, chainInbound, Target{}, proto("tcp"), src(addr), in("lo")).Insert = 2
	})
	b.insert(3, tableMangle, chainInbound, Target{}, proto("tcp"), in("lo"), not(mark(returnMark)))
}

func (b *builder) mark() string { return strconv.FormatUint(uint64(b.c.TProxyMark), 10) }

// owners lists the proxy's own users, then its groups.
func (b *builder) owners() []Match {
	var list []Match
	for _, u := range b.c.ProxyUID {
		list = append(list, Match{Kind: OwnerUID, Value: u})
	}
	for _, g := range b.c.ProxyGID {
		list = append(list, Match{Kind: OwnerGID, Value: g})
	}
	return list
}

// outbound is one pass over ISTIO_OUTPUT: exclusions that beat everything, the
// loop guards, DNS, plain loopback, and only then what is captured.
func (b *builder) outbound() {
	b.add(tableNat, chainOutput, jump(chainOutbound)) // every protocol: DNS may be UDP
	for _, p := range b.c.OutboundSkipPorts {
		b.add(tableNat, chainOutbound, Target{}, proto("tcp"), dport(port(p))).terse = true
		b.add(tableNat, chainOutbound, Target{}, proto("udp"), dport(port(p))).terse = true
	}
	b.versioned(passthrough4, passthrough6, func(f Family, addr string) {
		b.addFor(f, tableNat, chainOutbound, Target{}, out("lo"), src(addr))
	})
	for _, o := range b.owners() {
		b.loopGuard(o)
	}
	b.ownerGroups()
	b.dnsRules()
	b.loopback(func(f Family, addr string) {
		b.addFor(f, tableNat, chainOutbound, Target{}, dst(addr))
	})
	for _, p := range sortFamilies(b.c.OutboundSkip) {
		b.addFor(familyOf(p.Addr()), tableNat, chainOutbound, Target{}, dst(p.String()))
	}
	for _, p := range b.c.OutboundPorts {
		b.add(tableNat, chainOutbound, jump(chainRedirect), proto("tcp"), dport(port(p))).terse = true
	}
	b.outboundRanges()
}

// loopGuard lets the proxy's own traffic out, except that what it sends to one
// of the pod's addresses enters again as inbound traffic.
func (b *builder) loopGuard(o Match) {
	b.loopback(func(f Family, addr string) {
		ports := not(dport(port(b.c.TunnelPort)))
		if b.dns && o.Kind == OwnerUID {
			ports = not(dports(dnsPort + "," + port(b.c.TunnelPort)))
		}
		b.addFor(f, tableNat, chainOutbound, jump(chainInRedirect), out("lo"), not(dst(addr)), proto("tcp"), ports, o)
	})
	if !b.c.OutboundRanges.loopback() {
		if b.dns {
			b.add(tableNat, chainOutbound, Target{}, out("lo"), proto("tcp"), not(dport(dnsPort)), not(o))
		} else {
			b.add(tableNat, chainOutbound, Target{}, out("lo"), not(o))
		}
	}
	b.add(tableNat, chainOutbound, Target{}, o)
}

func (b *builder) ownerGroups() {
	for _, g := range b.c.OwnerGroupsSkip {
		b.add(tableNat, chainOutbound, Target{}, Match{Kind: OwnerGID, Value: g})
	}
	if b.c.OwnerGroups == nil {
		return
	}
	var none []Match // a packet of none of these groups
	for _, g := range b.c.OwnerGroups {
		none = append(none, Match{Kind: OwnerGID, Not: true, Value: g})
	}
	b.add(tableNat, chainOutbound, Target{}, none...)
}

func (b *builder) outboundRanges() {
	if b.c.OutboundRanges.All {
		b.add(tableNat, chainOutbound, jump(chainRedirect))
		for _, name := range b.c.VirtInterfaces {
			b.insert(1, tableNat, chainPrerouting, jump(chainRedirect), in(name))
		}
		return
	}
	for _, p := range sortFamilies(b.c.OutboundRanges.List) {
		f := familyOf(p.Addr())
		for _, name := range b.c.VirtInterfaces {
			b.addFor(f, tableNat, chainPrerouting, jump(chainRedirect), in(name), dst(p.String())).Insert = 1
		}
		b.addFor(f, tableNat, chainOutbound, jump(chainRedirect), dst(p.String()))
	}
}

func port(p uint16) string { return strconv.Itoa(int(p)) }

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// sortFamilies puts IPv4 first and otherwise keeps the order asked for.
func sortFamilies(list []netip.Prefix) []netip.Prefix {
	var v4, v6 []netip.Prefix
	for _, p := range list {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	return append(v4, v6...)
}

func isIPv4(server string) bool { return !strings.Contains(server, ":") }
