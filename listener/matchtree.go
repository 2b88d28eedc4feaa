package listener

import (
	"net/netip"
	"strconv"
	"strings"

	"sluice/internal/config"
)

// chosenBy walks a filter_chain_matcher and gives the name it comes to; ok is
// false if it comes to none. Conditions about a value that isn't there don't
// hold.
func chosenBy(m *config.ChainMatcher, c *criteria) (name string, ok bool) {
	if m == nil {
		return "", false
	}
	for i := range m.Rules {
		if holds(&m.Rules[i].When, c) {
			if name, ok = outcome(m.Rules[i].Then, c); ok {
				return name, true
			}
		}
	}
	if len(m.Rules) == 0 {
		if name, ok, found := inTree(m, c); found {
			return name, ok
		}
	}
	return outcome(m.NoMatch, c)
}

// find chooses the chain of a connection; nil: none.
func (a *active) find(c *criteria) *chain {
	if m := a.config.Matcher; m != nil {
		name, ok := chosenBy(m, c)
		if !ok {
			return a.deflt
		}
		return a.named[name]
	}
	if ch := a.matcher.find(c); ch != nil {
		return ch
	}
	return a.deflt
}

func outcome(o *config.ChainOutcome, c *criteria) (string, bool) {
	switch {
	case o == nil:
		return "", false
	case o.Matcher != nil:
		return chosenBy(o.Matcher, c)
	}
	return o.Chain, true
}

// inTree looks the input up; found is false where on_no_match has the word.
func inTree(m *config.ChainMatcher, c *criteria) (name string, ok, found bool) {
	if len(m.Ranges) > 0 {
		a := address(m.Input, c)
		for i := range m.Ranges {
			r := &m.Ranges[i]
			if !a.IsValid() || !r.Prefix.Contains(a) {
				continue
			}
			if name, ok = outcome(r.Then, c); ok || r.Exclusive {
				return name, ok, true
			}
		}
		return "", false, false
	}
	v := value(m.Input, c)
	if v == "" {
		return "", false, false
	}
	if o, has := m.Exact[v]; has {
		name, ok = outcome(o, c)
		return name, ok, true
	}
	for n := len(v); n > 0 && len(m.Prefixes) > 0; n-- {
		if o, has := m.Prefixes[v[:n]]; has {
			name, ok = outcome(o, c)
			return name, ok, true
		}
	}
	return "", false, false
}

func holds(w *config.ChainCondition, c *criteria) bool {
	switch {
	case w.Not != nil:
		return !holds(w.Not, c)
	case w.All != nil:
		for i := range w.All {
			if !holds(&w.All[i], c) {
				return false
			}
		}
		return true
	case w.Any != nil:
		for i := range w.Any {
			if holds(&w.Any[i], c) {
				return true
			}
		}
		return false
	case w.String != nil:
		v := value(w.Input, c)
		return v != "" && w.String.Match(v)
	}
	a := address(w.Input, c)
	return a.IsValid() && w.Ranges.Contains(a)
}

func address(in config.ChainInput, c *criteria) netip.Addr {
	switch in {
	case config.DestinationIP:
		return c.dst.Addr().Unmap()
	case config.SourceIP:
		return c.src.Addr().Unmap()
	case config.DirectSourceIP:
		return c.direct.Unmap()
	}
	return netip.Addr{}
}

func value(in config.ChainInput, c *criteria) string {
	switch in {
	case config.DestinationPort:
		return strconv.Itoa(int(c.dst.Port()))
	case config.SourcePort:
		return strconv.Itoa(int(c.src.Port()))
	case config.SourceTypeInput:
		if isLocal(c) {
			return "local"
		}
		return ""
	case config.ServerName:
		return c.sni
	case config.TransportProtocol:
		return c.transport
	case config.ApplicationProtocols:
		if len(c.protocols) == 0 {
			return ""
		}
		return "'" + strings.Join(c.protocols, "','") + "'"
	}
	if a := address(in, c); a.IsValid() {
		return a.String()
	}
	return ""
}
