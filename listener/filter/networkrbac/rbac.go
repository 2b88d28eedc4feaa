// Package networkrbac is envoy.filters.network.rbac: whether a connection of a
// TCP chain may go on. It decides once, at the client's first bytes or its FIN,
// by what the connection is; attributes of HTTP requests match nothing here.
// listener builds it for chains whose terminal isn't HTTP.
package networkrbac

import (
	"net/netip"
	"slices"

	"sluice/internal/config"
	"sluice/listener/downstream"
)

// metadataKey is where shadow results go in dynamic metadata.
const metadataKey = "envoy.filters.network.rbac"

// Filter decides by one policy. It is immutable.
type Filter struct {
	policy *config.RBAC
	count  func(stat string)
	// Names of statistics, joined once.
	allowed, denied, shadowAllowed, shadowDenied string
}

// New makes the filter. count is given the full name of each statistic that
// goes up, on the worker; nil: nobody counts.
func New(p *config.RBAC, count func(stat string)) *Filter {
	if count == nil {
		count = func(string) {}
	}
	base := p.StatPrefix + "rbac."
	return &Filter{policy: p, count: count, allowed: base + "allowed", denied: base + "denied",
		shadowAllowed: base + p.ShadowStatPrefix + "shadow_allowed", shadowDenied: base + p.ShadowStatPrefix + "shadow_denied"}
}

// Admit implements downstream.Filter: the word is given at the first bytes.
func (f *Filter) Admit(c *downstream.Connection, _ func()) downstream.Admission {
	c.AddGuard(f.decide)
	return downstream.Pass
}

func (f *Filter) decide(c *downstream.Connection) bool {
	if r := f.policy.Shadow; r != nil {
		ok, policy := evaluate(r, c)
		f.noteShadow(c, ok, policy)
	}
	r := f.policy.Rules
	if r == nil {
		return true
	}
	ok, policy := evaluate(r, c)
	if ok {
		f.count(f.allowed)
		return true
	}
	f.count(f.denied)
	if policy == "" {
		policy = "none"
	}
	c.Termination = "rbac_access_denied_matched_policy[" + policy + "]"
	return false
}

func (f *Filter) noteShadow(c *downstream.Connection, ok bool, policy string) {
	stat, result := f.shadowDenied, "denied"
	if ok {
		stat, result = f.shadowAllowed, "allowed"
	}
	f.count(stat)
	if c.Dynamic == nil {
		c.Dynamic = config.Metadata{}
	}
	s := c.Dynamic[metadataKey]
	if s == nil {
		s = config.Struct{}
		c.Dynamic[metadataKey] = s
	}
	if policy != "" {
		s[f.policy.ShadowStatPrefix+"shadow_effective_policy_id"] = policy
	}
	s[f.policy.ShadowStatPrefix+"shadow_engine_result"] = result
}

// evaluate gives the decision and the policy that matched ("" if none did).
func evaluate(r *config.RBACRules, c *downstream.Connection) (ok bool, policy string) {
	matched := ""
	for i := range r.Policies {
		p := &r.Policies[i]
		if anyOf(p.Permissions, c) && anyOf(p.Principals, c) {
			matched = p.Name
			break
		}
	}
	switch r.Action {
	case config.RBACAllow:
		return matched != "", matched
	case config.RBACDeny:
		return matched == "", matched
	}
	return true, matched
}

func anyOf(list []config.RBACExpr, c *downstream.Connection) bool {
	for i := range list {
		if match(&list[i], c) {
			return true
		}
	}
	return false
}

func allOf(list []config.RBACExpr, c *downstream.Connection) bool {
	for i := range list {
		if !match(&list[i], c) {
			return false
		}
	}
	return true
}

func match(e *config.RBACExpr, c *downstream.Connection) bool {
	switch e.Op {
	case config.RBACAny:
		return true
	case config.RBACAnd:
		return allOf(e.Sub, c)
	case config.RBACOr:
		return anyOf(e.Sub, c)
	case config.RBACNot:
		return !anyOf(e.Sub, c)
	case config.RBACDestIP:
		return contains(e.Prefix, c.Dst)
	case config.RBACDestPort, config.RBACDestPortRange:
		p := uint32(c.Dst.Port())
		return p >= e.Ports[0] && p < e.Ports[1]
	case config.RBACServerName:
		return e.String != nil && e.String.Match(c.SNI)
	case config.RBACAuthenticated:
		return authenticated(e.String, c.TLS)
	case config.RBACSourceIP, config.RBACDirectRemoteIP:
		return contains(e.Prefix, c.DirectSrc)
	case config.RBACRemoteIP:
		return contains(e.Prefix, c.Src)
	case config.RBACMetadata:
		return matchMetadata(e.Metadata, c.Dynamic)
	case config.RBACHeader:
		return matchNoHeader(e.Header)
	}
	return false // HTTP's attributes, and filter state that nobody sets here
}

func contains(p netip.Prefix, a netip.AddrPort) bool {
	return a.IsValid() && p.Contains(a.Addr().Unmap())
}

// authenticated compares with each URI SAN, each DNS SAN and the subject. No
// matcher is satisfied by any TLS connection, as in Envoy.
func authenticated(m *config.StringMatch, t *downstream.TLS) bool {
	if t == nil || m == nil {
		return t != nil
	}
	for _, u := range t.PeerURIs {
		if m.Match(u) {
			return true
		}
	}
	for _, n := range t.PeerDNS {
		if m.Match(n) {
			return true
		}
	}
	return m.Match(t.PeerSubject)
}

// matchNoHeader is a header matcher where there are no headers.
func matchNoHeader(h *config.HeaderMatch) bool {
	missing := h.Absent || h.TreatMissingAsEmpty && h.String != nil && h.String.Match("")
	if h.Present || h.Absent {
		return missing != h.Invert
	}
	if !h.TreatMissingAsEmpty {
		return false
	}
	return missing != h.Invert
}

func matchMetadata(m *config.MetadataMatch, d config.Metadata) bool {
	v, ok := d.Lookup(m.Namespace, m.Path...)
	return (m.Value != nil && matchValue(m.Value, v, ok)) != m.Invert
}

func matchValue(m *config.ValueMatch, v config.Value, present bool) bool {
	switch {
	case m.Present != nil:
		return present == *m.Present
	case len(m.Or) > 0:
		return slices.ContainsFunc(m.Or, func(o config.ValueMatch) bool { return matchValue(&o, v, present) })
	case !present:
		return false
	case m.Null:
		return v == nil
	case m.String != nil:
		s, ok := v.(string)
		return ok && m.String.Match(s)
	case m.Bool != nil:
		b, ok := v.(bool)
		return ok && b == *m.Bool
	case m.Number != nil:
		n, ok := v.(float64)
		return ok && (n == m.Number[0] || n >= m.Number[0] && n < m.Number[1])
	case m.List != nil:
		l, _ := v.(config.List)
		for _, x := range l {
			if matchValue(m.List, x, true) {
				return true
			}
		}
	}
	return false
}
