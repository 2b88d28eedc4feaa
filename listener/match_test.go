package listener

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/internal/config"
)

// slow is the matcher written as Envoy's documentation tells it: for each
// criterion in turn keep the chains whose value fits best, drop the others.
func slow(chains []*chain, c *criteria) *chain {
	left := chains
	narrow := func(score func(f *config.FilterChainMatch) int) {
		best := 0
		var keep []*chain
		for _, x := range left {
			s := score(&x.config.Match)
			if s <= 0 || s < best {
				continue
			}
			if s > best {
				best, keep = s, nil
			}
			keep = append(keep, x)
		}
		left = keep
	}
	longest := func(list config.Prefixes, a netip.Addr) int {
		if len(list) == 0 {
			return 1
		}
		best := 0
		for _, p := range list {
			if a.IsValid() && p.Contains(a.Unmap()) {
				best = max(best, 2+p.Bits())
			}
		}
		return best
	}
	narrow(func(f *config.FilterChainMatch) int {
		return exact(f.DestinationPort == 0, f.DestinationPort == c.dst.Port())
	})
	narrow(func(f *config.FilterChainMatch) int { return longest(f.PrefixRanges, c.dst.Addr()) })
	narrow(func(f *config.FilterChainMatch) int {
		best := exact(len(f.ServerNames) == 0, c.sni != "" && slices.Contains(f.ServerNames, c.sni)) * 1000
		for _, n := range f.ServerNames {
			if strings.HasPrefix(n, "*.") && strings.HasSuffix(c.sni, n[1:]) {
				best = max(best, 1000+len(n))
			}
		}
		return best
	})
	narrow(func(f *config.FilterChainMatch) int {
		return exact(f.TransportProtocol == "", f.TransportProtocol == c.transport)
	})
	narrow(func(f *config.FilterChainMatch) int {
		if len(f.ApplicationProtos) == 0 {
			return 1
		}
		for i, p := range c.protocols {
			if slices.Contains(f.ApplicationProtos, p) {
				return 1000 - i
			}
		}
		return 0
	})
	narrow(func(f *config.FilterChainMatch) int { return longest(f.DirectSourcePrefix, c.direct) })
	narrow(func(f *config.FilterChainMatch) int {
		local := c.src.Addr().String() == "127.0.0.1" || c.src.Addr().String() == "::1" || c.src.Addr() == c.dst.Addr()
		return exact(f.SourceType == config.SourceAny, local == (f.SourceType == config.SourceSameIPOrLoopback))
	})
	narrow(func(f *config.FilterChainMatch) int { return longest(f.SourcePrefix, c.src.Addr()) })
	narrow(func(f *config.FilterChainMatch) int {
		return exact(len(f.SourcePorts) == 0, slices.Contains(f.SourcePorts, c.src.Port()))
	})
	if len(left) == 0 {
		return nil
	}
	return left[0]
}

// exact scores a criterion: 2 fits, 1 is open, 0 does not fit.
func exact(open, fits bool) int {
	switch {
	case open:
		return 1
	case fits:
		return 2
	}
	return 0
}

// dice draws from small sets, so that chains overlap.
type dice struct{ next func() int }

func pick[T any](d dice, set ...T) T { return set[d.next()%len(set)] }

func some[T any](d dice, set ...T) []T {
	var out []T
	for _, x := range set {
		if d.next()%4 == 0 {
			out = append(out, x)
		}
	}
	return out
}

func prefixSet() []netip.Prefix {
	var p []netip.Prefix
	for _, s := range []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0", "::/0", "fd00::/8", "127.0.0.0/8"} {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func (d dice) match() config.FilterChainMatch {
	return config.FilterChainMatch{
		DestinationPort:    pick(d, uint16(0), 0, 80, 443),
		PrefixRanges:       some(d, prefixSet()...),
		ServerNames:        some(d, "a.example", "*.example", "*.b.example", "c.org", "*.org"),
		TransportProtocol:  pick(d, "", "", "tls", "raw_buffer"),
		ApplicationProtos:  some(d, "h2", "http/1.1", "istio"),
		DirectSourcePrefix: some(d, prefixSet()[:2]...),
		SourceType:         pick(d, config.SourceAny, config.SourceAny, config.SourceSameIPOrLoopback, config.SourceExternal),
		SourcePrefix:       some(d, prefixSet()...),
		SourcePorts:        some(d, uint16(1000), 2000),
	}
}

func (d dice) criteria() criteria {
	addrs := []string{"10.1.2.3", "10.1.9.9", "10.9.9.9", "127.0.0.1", "127.0.0.7", "::1", "192.168.1.1", "fd00::1", "2001:db8::1"}
	addr := func() netip.Addr { return netip.MustParseAddr(pick(d, addrs...)) }
	return criteria{
		dst:       netip.AddrPortFrom(addr(), pick(d, uint16(80), 443, 9)),
		sni:       pick(d, "", "a.example", "x.example", "y.b.example", "z.y.b.example", "example", "c.org", ".org"),
		transport: pick(d, "tls", "raw_buffer"),
		protocols: some(d, "istio", "h2", "http/1.1", "other"),
		direct:    addr(),
		src:       netip.AddrPortFrom(addr(), pick(d, uint16(1000), 2000, 3000)),
	}
}

func compare(t *testing.T, d dice) {
	t.Helper()
	var chains []*chain
	for i := range 1 + d.next()%8 {
		chains = append(chains, &chain{config: &config.FilterChain{Name: fmt.Sprint(i), Match: d.match()}})
	}
	m := compile(chains)
	for range 20 {
		c := d.criteria()
		if got, want := m.find(&c), slow(chains, &c); got != want {
			for _, x := range chains {
				t.Logf("%s: %+v", x.config.Name, x.config.Match)
			}
			t.Fatalf("%+v: got %v, want %v", c, name(got), name(want))
		}
	}
}

func name(c *chain) string {
	if c == nil {
		return "none"
	}
	return c.config.Name
}

func TestMatcherAgreesWithTheSlowOne(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		compare(t, dice{func() int { return r.IntN(1 << 20) }})
	}
}

func FuzzMatcher(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		i := 0
		compare(t, dice{func() int {
			if len(b) == 0 {
				return 0
			}
			i++
			return int(b[i%len(b)]) + i*i/len(b)
		}})
	})
}

func TestMatcherFollowsEnvoysOrder(t *testing.T) {
	mk := func(name string, m config.FilterChainMatch) *chain {
		return &chain{config: &config.FilterChain{Name: name, Match: m}}
	}
	p := netip.MustParsePrefix
	at := netip.MustParseAddrPort
	for _, c := range []struct {
		name   string
		chains []*chain
		in     criteria
		want   string
	}{
		{"port before name", []*chain{mk("port", config.FilterChainMatch{DestinationPort: 80}), mk("name", config.FilterChainMatch{ServerNames: []string{"a"}})},
			criteria{dst: at("1.1.1.1:80"), sni: "a"}, "port"},
		{"no way back from a port", []*chain{mk("port", config.FilterChainMatch{DestinationPort: 80, ServerNames: []string{"b"}}), mk("any", config.FilterChainMatch{})},
			criteria{dst: at("1.1.1.1:80"), sni: "a"}, "none"},
		{"longest prefix", []*chain{mk("8", config.FilterChainMatch{PrefixRanges: config.Prefixes{p("10.0.0.0/8")}}), mk("32", config.FilterChainMatch{PrefixRanges: config.Prefixes{p("10.1.1.1/32")}})},
			criteria{dst: at("10.1.1.1:1")}, "32"},
		{"exact name before wildcard, longest wildcard first", []*chain{mk("w", config.FilterChainMatch{ServerNames: []string{"*.e"}}), mk("ww", config.FilterChainMatch{ServerNames: []string{"*.d.e"}})},
			criteria{sni: "a.b.d.e"}, "ww"},
		{"a wildcard does not match its bare domain", []*chain{mk("w", config.FilterChainMatch{ServerNames: []string{"*.e"}})},
			criteria{sni: "e"}, "none"},
		{"first offered protocol", []*chain{mk("h1", config.FilterChainMatch{ApplicationProtos: []string{"http/1.1"}}), mk("h2", config.FilterChainMatch{ApplicationProtos: []string{"h2"}})},
			criteria{protocols: []string{"x", "h2", "http/1.1"}}, "h2"},
		{"source port after source address", []*chain{mk("addr", config.FilterChainMatch{SourcePrefix: config.Prefixes{p("10.0.0.0/8")}}), mk("port", config.FilterChainMatch{SourcePorts: []uint16{5}})},
			criteria{src: at("10.0.0.1:5")}, "addr"},
		{"IPv4 in IPv6", []*chain{mk("v4", config.FilterChainMatch{SourcePrefix: config.Prefixes{p("10.0.0.0/8")}})},
			criteria{src: at("[::ffff:10.0.0.1]:5")}, "v4"},
	} {
		if got := name(compile(c.chains).find(&c.in)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestMatcherDoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	d := dice{func() int { return r.IntN(1 << 20) }}
	var chains []*chain
	for range 20 {
		chains = append(chains, &chain{config: &config.FilterChain{Match: d.match()}})
	}
	m, c := compile(chains), d.criteria()
	if n := testing.AllocsPerRun(100, func() { m.find(&c) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
