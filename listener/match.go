package listener

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/config"
)

// criteria is what a filter chain is chosen by. Members are those of Envoy's
// FilterChainMatch, in the order they are tried.
type criteria struct {
	dst       netip.AddrPort // zero on a Unix socket
	sni       string         // lower-case
	transport string         // "tls" or "raw_buffer"
	protocols []string
	direct    netip.Addr // the socket's peer
	src       netip.AddrPort
}

// matcher finds the chain of a connection. At each criterion it takes the most
// specific entry that fits and never comes back to a less specific one if a
// later criterion fails, as Envoy does: then no chain matches. It is immutable
// and does not allocate.
type matcher struct {
	only  *chain // the whole matcher, if there is one chain that takes all
	ports table[uint16, byDst]
}

// table finds by exact key, else the entry for any.
type table[K comparable, T any] struct {
	exact map[K]*T
	any   *T
}

func (t *table[K, T]) find(k K) *T {
	if x, ok := t.exact[k]; ok {
		return x
	}
	return t.any
}

type (
	byDst  struct{ prefixes prefixes[byName] }
	byName struct {
		exact, suffix map[string]*byTransport
		any           *byTransport
	}
	byTransport = table[string, byProtocol]
	byProtocol  = table[string, byDirect]
	byDirect    struct{ prefixes prefixes[byType] }
	byType      struct{ of [3]*bySrc }
	bySrc       struct{ prefixes prefixes[byPort] }
	byPort      = table[uint16, chain]
)

// prefixes finds the longest prefix of an address.
type prefixes[T any] struct {
	v4, v6 []int // lengths in use, longest first
	of     map[netip.Prefix]*T
	any    *T
}

func (p *prefixes[T]) find(a netip.Addr) *T {
	if len(p.of) == 0 || !a.IsValid() {
		return p.any
	}
	a = a.Unmap().WithZone("")
	bits := p.v6
	if a.Is4() {
		bits = p.v4
	}
	for _, n := range bits {
		if x, err := a.Prefix(n); err == nil {
			if t := p.of[x]; t != nil {
				return t
			}
		}
	}
	return p.any
}

// find returns the chain, or nil if none fits; the caller has a default.
func (m *matcher) find(c *criteria) *chain {
	if m.only != nil {
		return m.only
	}
	dst := m.ports.find(c.dst.Port())
	if dst == nil {
		return nil
	}
	name := dst.prefixes.find(c.dst.Addr())
	if name == nil {
		return nil
	}
	transport := name.find(c.sni)
	if transport == nil {
		return nil
	}
	protocol := transport.find(c.transport)
	if protocol == nil {
		return nil
	}
	return findSource(firstOffered(protocol, c.protocols), c)
}

// firstOffered takes the first protocol, in the client's order, that a chain names.
func firstOffered(t *byProtocol, offered []string) *byDirect {
	for _, p := range offered {
		if x, ok := t.exact[p]; ok {
			return x
		}
	}
	return t.any
}

func findSource(direct *byDirect, c *criteria) *chain {
	if direct == nil {
		return nil
	}
	kind := direct.prefixes.find(c.direct)
	if kind == nil {
		return nil
	}
	src := kind.of[config.SourceExternal]
	if isLocal(c) {
		src = kind.of[config.SourceSameIPOrLoopback]
	}
	if src == nil {
		src = kind.of[config.SourceAny]
	}
	if src == nil {
		return nil
	}
	port := src.prefixes.find(c.src.Addr())
	if port == nil {
		return nil
	}
	return port.find(c.src.Port())
}

// isLocal is Envoy's SAME_IP_OR_LOOPBACK: of 127.0.0.0/8 only 127.0.0.1 counts.
func isLocal(c *criteria) bool {
	src := c.src.Addr().Unmap()
	return !src.IsValid() || src == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || src == netip.IPv6Loopback() || src == c.dst.Addr()
}

func (n *byName) find(sni string) *byTransport {
	if sni != "" {
		if t, ok := n.exact[sni]; ok {
			return t
		}
		if len(n.suffix) > 0 {
			for i := strings.IndexByte(sni, '.'); i >= 0; {
				if t, ok := n.suffix[sni[i:]]; ok {
					return t
				}
				next := strings.IndexByte(sni[i+1:], '.')
				if next < 0 {
					break
				}
				i += 1 + next
			}
		}
	}
	return n.any
}

// compile builds the matcher. Of two chains that can't be told apart the first
// wins; translate refuses such listeners.
func compile(chains []*chain) *matcher {
	m := &matcher{}
	if len(chains) == 1 && matchesAll(&chains[0].config.Match) {
		m.only = chains[0]
		return m
	}
	for _, c := range chains {
		m.add(c)
	}
	return m
}

func matchesAll(f *config.FilterChainMatch) bool {
	return f.DestinationPort == 0 && f.TransportProtocol == "" && f.SourceType == config.SourceAny &&
		len(f.PrefixRanges)+len(f.ServerNames)+len(f.ApplicationProtos)+len(f.DirectSourcePrefix)+len(f.SourcePrefix)+len(f.SourcePorts) == 0
}

func (m *matcher) add(c *chain) {
	f := &c.config.Match
	dst := m.ports.at(f.DestinationPort, f.DestinationPort == 0)
	for _, name := range dst.prefixes.at(f.PrefixRanges) {
		for _, transport := range name.at(f.ServerNames) {
			protocol := transport.at(f.TransportProtocol, f.TransportProtocol == "")
			for _, direct := range eachKey(protocol, f.ApplicationProtos) {
				for _, kind := range direct.prefixes.at(f.DirectSourcePrefix) {
					kind.add(c)
				}
			}
		}
	}
}

func (k *byType) add(c *chain) {
	f := &c.config.Match
	if k.of[f.SourceType] == nil {
		k.of[f.SourceType] = &bySrc{}
	}
	for _, port := range k.of[f.SourceType].prefixes.at(f.SourcePrefix) {
		if len(f.SourcePorts) == 0 && port.any == nil {
			port.any = c
		}
		for _, p := range f.SourcePorts {
			if port.exact == nil {
				port.exact = map[uint16]*chain{}
			}
			if port.exact[p] == nil {
				port.exact[p] = c
			}
		}
	}
}

// at gives the entry of k, made if it isn't there.
func (t *table[K, T]) at(k K, any bool) *T {
	if any {
		if t.any == nil {
			t.any = new(T)
		}
		return t.any
	}
	if t.exact == nil {
		t.exact = map[K]*T{}
	}
	if t.exact[k] == nil {
		t.exact[k] = new(T)
	}
	return t.exact[k]
}

func eachKey[K comparable, T any](t *table[K, T], keys []K) []*T {
	if len(keys) == 0 {
		var none K
		return []*T{t.at(none, true)}
	}
	var all []*T
	for _, k := range keys {
		if x := t.at(k, false); !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all
}

func (n *byName) at(names []string) []*byTransport {
	if len(names) == 0 {
		if n.any == nil {
			n.any = &byTransport{}
		}
		return []*byTransport{n.any}
	}
	if n.exact == nil {
		n.exact, n.suffix = map[string]*byTransport{}, map[string]*byTransport{}
	}
	var all []*byTransport
	for _, name := range names {
		in, key := n.exact, name
		if strings.HasPrefix(name, "*.") {
			in, key = n.suffix, name[1:]
		}
		if in[key] == nil {
			in[key] = &byTransport{}
		}
		all = append(all, in[key])
	}
	return all
}

// at gives the entries of each prefix, made if they aren't there; none means any.
func (p *prefixes[T]) at(list config.Prefixes) []*T {
	if len(list) == 0 {
		if p.any == nil {
			p.any = new(T)
		}
		return []*T{p.any}
	}
	if p.of == nil {
		p.of = map[netip.Prefix]*T{}
	}
	var all []*T
	for _, x := range list {
		x = netip.PrefixFrom(x.Addr().WithZone(""), x.Bits()).Masked()
		if p.of[x] == nil {
			p.of[x] = new(T)
			lengths := &p.v6
			if x.Addr().Is4() {
				lengths = &p.v4
			}
			if !slices.Contains(*lengths, x.Bits()) {
				*lengths = append(*lengths, x.Bits())
				slices.SortFunc(*lengths, func(a, b int) int { return b - a })
			}
		}
		all = append(all, p.of[x])
	}
	return all
}
