package redirect

import (
	"net/netip"
	"strings"
)

// target is where DNS is captured: one server, or (empty) any.
type target struct {
	family Family
	addr   string
}

func (t target) to() []Match {
	if t.addr == "" {
		return nil
	}
	return []Match{dst(t.addr)}
}

func (t target) from() []Match {
	if t.addr == "" {
		return nil
	}
	return []Match{src(t.addr)}
}

func (b *builder) dnsTargets() []target {
	if b.c.DNSAll {
		return []target{{family: Both}}
	}
	var v4, v6 []target
	for _, s := range b.c.DNSServers {
		if isIPv4(s) {
			v4 = append(v4, target{IPv4, s + "/32"})
		} else if b.c.IPv6 {
			v6 = append(v6, target{IPv6, s + "/128"})
		}
	}
	return append(v4, v6...)
}

// dnsFamily is the narrowest family that covers all targets: a family without
// servers gets no jump to a chain that it doesn't have.
func dnsFamily(targets []target) Family {
	f := targets[0].family
	for _, t := range targets {
		if t.family != f {
			return Both
		}
	}
	return f
}

// dnsRules stand behind the loop guards (the proxy resolves directly) and
// before the loopback return (a resolver on loopback is captured too).
func (b *builder) dnsRules() {
	if !b.dns {
		return
	}
	b.dnsZonesOwn()
	targets := b.dnsTargets()
	if len(targets) == 0 {
		return
	}
	f := dnsFamily(targets)
	b.addFor(f, tableNat, chainOutbound, jump(chainDNS))
	for _, protocol := range []string{"tcp", "udp"} {
		for _, t := range targets {
			m := append([]Match{proto(protocol), dport(dnsPort)}, t.to()...)
			b.addFor(t.family, tableNat, chainDNS, toPort(dnsProxyPort), m...).terse = true
		}
	}
	b.addFor(f, tableRaw, chainPrerouting, jump(chainInbound))
	for _, t := range targets {
		to := append([]Match{proto("udp"), dport(dnsPort)}, t.to()...)
		b.addFor(t.family, tableRaw, chainDNS, zone("2"), to...).terse = true
		from := append([]Match{proto("udp"), sport(dnsPort)}, t.from()...)
		b.addFor(t.family, tableRaw, chainInbound, zone("1"), from...).terse = true
	}
}

// dnsZonesOwn keeps the proxy's own UDP exchanges and the application's apart
// in conntrack: both may use the same client port to the same server, and one
// table would translate the answers of one for the other.
func (b *builder) dnsZonesOwn() {
	b.add(tableRaw, chainOutput, jump(chainDNS))
	for _, o := range b.owners() {
		b.add(tableRaw, chainDNS, zone("1"), proto("udp"), dport(dnsPort), o).terse = true
		b.add(tableRaw, chainDNS, zone("2"), proto("udp"), sport(dnsProxyPort), o).terse = true
	}
}

// Nameservers reads the servers of a resolv.conf, in its order. Lines it
// doesn't know are skipped, as the resolver does; a zone is dropped because a
// rule can't express it.
func Nameservers(conf string) []string {
	var list []string
	for line := range strings.Lines(conf) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		text, _, _ := strings.Cut(fields[1], "%")
		if a, err := netip.ParseAddr(text); err == nil && !a.Is4In6() {
			list = append(list, text)
		}
	}
	return list
}
