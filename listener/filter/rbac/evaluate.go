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
	Scratch *[]byte // for header values that are joined or folded
}

func (c *condition) match(s *Subject) bool {
	conn := s.Conn
	switch c.Op {
	case config.RBACAny:
		return true
	case config.RBACAnd:
		return c.all(s)
	case config.RBACOr:
		return c.first(s) >= 0
	case config.RBACNot:
		return c.first(s) < 0
	case config.RBACDestIP:
		return contains(c.Prefix, conn.Dst)
	case config.RBACDestPort, config.RBACDestPortRange:
		p := uint32(conn.Dst.Port())
		return p >= c.Ports[0] && p < c.Ports[1]
	case config.RBACServerName:
		return c.String != nil && c.String.Match(conn.SNI)
	case config.RBACAuthenticated:
		return authenticated(c.String, conn.TLS)
	case config.RBACSourceIP, config.RBACDirectRemoteIP:
		return contains(c.Prefix, conn.Direct())
	case config.RBACRemoteIP:
		return contains(c.Prefix, s.Remote)
	case config.RBACMetadata:
		return c.Metadata.Match(s.Dynamic)
	case config.RBACHeader:
		if s.Head == nil {
			return matchNoHeader(c.Header)
		}
		return route.EachValueMatches(c.Header, s.Head, s.Scratch)
	case config.RBACURLPath, config.RBACURITemplate:
		return s.Head != nil && c.String != nil && route.StringMatches(c.String, pathOf(s.Head))
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
