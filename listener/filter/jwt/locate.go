package jwt

import (
	"net/url"
	"slices"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// place is somewhere in a request where a token may be.
type place struct {
	kind    placeKind
	name    string
	prefix  string
	issuers []string // whose tokens may be there; none: anybody's
	anybody bool
}

type placeKind uint8

const (
	inHeader placeKind = iota
	inParam
	inCookie
)

// found is a token as text, and where it was.
type found struct {
	text  string
	place *place
}

// places are where the tokens of some providers are looked for, and the headers
// that only these providers' tokens may fill.
type places struct {
	list []place
	own  []string
}

func placesOf(providers []config.JWTProvider) *places {
	s := &places{}
	for i := range providers {
		p := &providers[i]
		for _, h := range p.Headers {
			s.add(inHeader, h.Name, h.Prefix, p.Issuer)
		}
		for _, n := range p.Params {
			s.add(inParam, n, "", p.Issuer)
		}
		for _, n := range p.Cookies {
			s.add(inCookie, n, "", p.Issuer)
		}
		if p.PayloadHeader != "" {
			s.own = append(s.own, p.PayloadHeader)
		}
		for _, c := range p.Claims {
			s.own = append(s.own, c.Header)
		}
	}
	slices.SortStableFunc(s.list, func(a, b place) int {
		if a.kind != b.kind {
			return int(a.kind) - int(b.kind)
		}
		return strings.Compare(a.name+a.prefix, b.name+b.prefix)
	})
	return s
}

func (s *places) add(kind placeKind, name, prefix, issuer string) {
	i := slices.IndexFunc(s.list, func(p place) bool { return p.kind == kind && p.name == name && p.prefix == prefix })
	if i < 0 {
		i = len(s.list)
		s.list = append(s.list, place{kind: kind, name: name, prefix: prefix})
	}
	p := &s.list[i]
	p.issuers = append(p.issuers, issuer)
	p.anybody = p.anybody || issuer == ""
}

func (p *place) allows(issuer string) bool { return p.anybody || slices.Contains(p.issuers, issuer) }

// sanitize removes what a client said in headers that tokens fill.
func (s *places) sanitize(h *httpmsg.Head) {
	for _, name := range s.own {
		h.DelName(name)
	}
}

// find gives the tokens of a request: headers, parameters, cookies, in the order
// of their names.
func (s *places) find(x *filter.Exchange) (list []found) {
	for i := range s.list {
		p := &s.list[i]
		switch p.kind {
		case inHeader:
			list = p.headers(x, list)
		case inParam:
			_, query := route.SplitPath(x.Request.Path())
			if v, there := param(string(query), p.name); there {
				list = append(list, found{v, p})
			}
		case inCookie:
			if v, there := route.Cookie(x.Request, p.name); there {
				list = append(list, found{string(v), p})
			}
		}
	}
	return list
}

// headers gives the token of each line of a header. Those of authorization are
// one, as Envoy keeps them: with two tokens it has none that is good.
func (p *place) headers(x *filter.Exchange, list []found) []found {
	if p.name == "authorization" {
		if v, there := route.Joined(x.Request, p.name, &x.Scratch); there {
			list = p.header(string(v), list)
		}
		return list
	}
	for i := range x.Request.Len() {
		if _, name, v, live := x.Request.Field(i); live && string(name) == p.name {
			list = p.header(string(v), list)
		}
	}
	return list
}

// header takes the token behind the prefix, wherever that is, and skips what can't
// begin a token.
func (p *place) header(v string, list []found) []found {
	if p.prefix != "" {
		_, after, there := strings.Cut(v, p.prefix)
		if !there {
			return list
		}
		v = strings.TrimLeftFunc(after, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
		})
	}
	return append(list, found{v, p})
}

// param gives the first parameter of a name, decoded.
func param(query, name string) (string, bool) {
	for text := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(text, "=")
		if text != "" && decoded(k) == name {
			return decoded(v), true
		}
	}
	return "", false
}

func decoded(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

// remove takes a token out of the request. One in a cookie stays, as in Envoy.
func (p *place) remove(h *httpmsg.Head) {
	switch p.kind {
	case inHeader:
		h.DelName(p.name)
	case inParam:
		path, query := route.SplitPath(h.Path())
		h.SetPath([]byte(string(path) + without(string(query), p.name)))
	}
}

// without leaves a parameter out. As in Envoy the others come out in the order
// of their names; their text stays as the client wrote it.
func without(query, name string) string {
	type parameter struct{ name, text string }
	var list []parameter
	for text := range strings.SplitSeq(query, "&") {
		k, _, _ := strings.Cut(text, "=")
		if n := decoded(k); text != "" && n != name {
			list = append(list, parameter{n, text})
		}
	}
	slices.SortStableFunc(list, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	var out strings.Builder
	for i, p := range list {
		out.WriteByte("?&"[min(i, 1)])
		out.WriteString(p.text)
	}
	return out.String()
}
