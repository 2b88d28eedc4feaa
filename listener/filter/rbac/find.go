package rbac

import (
	"net/netip"
	"unsafe"

	"sluice/internal/config"
	"sluice/listener/route"
)

// maxLists bounds the lists that are merged.
const maxLists = 16

// candidates are alternatives that may match, from lists that are each in order.
type candidates struct {
	lists [maxLists][]int32
	n     int
	full  bool // there were more lists
}

func (c *candidates) add(list []int32) {
	switch {
	case len(list) == 0:
	case c.n == maxLists:
		c.full = true
	default:
		c.lists[c.n] = list
		c.n++
	}
}

// next gives the candidates in order, each once.
func (c *candidates) next() (first int32, ok bool) {
	for _, l := range c.lists[:c.n] {
		if len(l) > 0 && (!ok || l[0] < first) {
			first, ok = l[0], true
		}
	}
	for i, l := range c.lists[:c.n] {
		if len(l) > 0 && l[0] == first {
			c.lists[i] = l[1:]
		}
	}
	return first, ok
}

// find collects the alternatives that s can match; false: they are too many lists.
func (x *index) find(s *Subject, c *candidates) bool {
	c.add(x.always)
	if s.Head != nil {
		x.findHead(s, c)
	}
	conn := s.Conn
	if len(x.principal) > 0 && conn.TLS != nil {
		x.principal.findEach(conn.TLS.PeerURIs, c)
		x.principal.findEach(conn.TLS.PeerDNS, c)
		x.principal.find(conn.TLS.PeerSubject, nil, c)
	}
	if len(x.serverName) > 0 {
		x.serverName.find(conn.SNI, nil, c)
	}
	if len(x.port) > 0 {
		b := portBytes(conn.Dst.Port())
		x.port.find(str(b[:]), nil, c)
	}
	if len(x.destination) > 0 {
		x.destination.findAddress(conn.Dst, c)
	}
	if len(x.direct) > 0 {
		x.direct.findAddress(conn.Direct(), c)
	}
	if len(x.remote) > 0 {
		x.remote.findAddress(s.Remote, c)
	}
	return !c.full
}

func (x *index) findHead(s *Subject, c *candidates) {
	if len(x.path) > 0 {
		x.path.find(str(pathOf(s.Head)), s.Scratch, c)
	}
	for i := range x.pseudo {
		v, _ := route.Pseudo(s.Head, x.pseudo[i].name)
		x.pseudo[i].find(str(v), s.Scratch, c)
	}
	if len(x.headers) == 0 {
		return
	}
	for i := range s.Head.Len() {
		_, name, v, live := s.Head.Field(i)
		if live && x.lengths&(1<<(len(name)%64)) != 0 {
			if l := x.headers[str(name)]; l != nil {
				l.find(str(v), s.Scratch, c)
			}
		}
	}
}

func (l lists) findEach(values []string, c *candidates) {
	for _, v := range values {
		l.find(v, nil, c)
	}
}

func (l lists) findAddress(a netip.AddrPort, c *candidates) {
	b := a.Addr().As16()
	l.find(str(b[:]), nil, c)
}

// find adds the alternatives whose keys hold for v. scratch is for keys in lower case.
func (l lists) find(v string, scratch *[]byte, c *candidates) {
	for i := range l {
		s, part := &l[i], v
		if len(v) < s.n {
			continue
		}
		switch s.kind {
		case config.MatchPrefix:
			part = v[:s.n]
		case config.MatchSuffix:
			part = v[len(v)-s.n:]
		case config.MatchContains:
			s.findNamespaces(v, c)
			continue
		}
		if s.fold {
			*scratch = appendLower((*scratch)[:0], part)
			part = str(*scratch)
		}
		c.add(s.at[part])
	}
}

// str views bytes as a string for a look-up; it must not be kept.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
