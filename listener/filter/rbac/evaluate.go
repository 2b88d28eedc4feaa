// Package rbac decides by role-based access rules: what a request or connection
// is, against policies of permissions and principals. It is Envoy's RBAC engine
// for both of its filters: the HTTP filter is here too, the network filter is in
// networkrbac, next to it.
package rbac

import (
	"bytes"
	"net/netip"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/downstream"
	"sluice/listener/route"
)

// Subject is what rules look at. On TCP Head is nil, and what is of HTTP matches
// as if there were no headers.
type Subject struct {
	Conn    *downstream.Connection
	Head    *httpmsg.Head
	Remote  netip.AddrPort // the client: by x-forwarded-for where that is trusted
	Dynamic config.Metadata
	Scratch *[]byte // for joined header values
}

// Evaluate gives the decision and the policy that matched ("" if none did). The
// first policy that matches decides; policies are in the order of their names.
func Evaluate(r *config.RBACRules, s *Subject) (ok bool, policy string) {
	for i := range r.Policies {
		p := &r.Policies[i]
		if anyOf(p.Permissions, s) && anyOf(p.Principals, s) {
			policy = p.Name
			break
		}
	}
	switch r.Action {
	case config.RBACAllow:
		return policy != "", policy
	case config.RBACDeny:
		return policy == "", policy
	}
	return true, policy
}

func anyOf(list []config.RBACExpr, s *Subject) bool {
	for i := range list {
		if match(&list[i], s) {
			return true
		}
	}
	return false
}

func allOf(list []config.RBACExpr, s *Subject) bool {
	for i := range list {
		if !match(&list[i], s) {
			return false
		}
	}
	return true
}

func match(e *config.RBACExpr, s *Subject) bool {
	c := s.Conn
	switch e.Op {
	case config.RBACAny:
		return true
	case config.RBACAnd:
		return allOf(e.Sub, s)
	case config.RBACOr:
		return anyOf(e.Sub, s)
	case config.RBACNot:
		return !anyOf(e.Sub, s)
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
		return contains(e.Prefix, c.Direct())
	case config.RBACRemoteIP:
		return contains(e.Prefix, s.Remote)
	case config.RBACMetadata:
		return e.Metadata.Match(s.Dynamic)
	case config.RBACHeader:
		if s.Head == nil {
			return matchNoHeader(e.Header)
		}
		return route.EachValueMatches(e.Header, s.Head, s.Scratch)
	case config.RBACURLPath, config.RBACURITemplate:
		return s.Head != nil && e.String != nil && route.StringMatches(e.String, pathOf(s.Head))
	}
	return false // filter state that nobody sets here
}

// pathOf is the path without query and fragment, as policies see it.
func pathOf(h *httpmsg.Head) []byte {
	p := h.Path()
	if i := bytes.IndexAny(p, "?#"); i >= 0 {
		return p[:i]
	}
	return p
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
	if h.Present || h.Absent || h.TreatMissingAsEmpty {
		return missing != h.Invert
	}
	return false
}
