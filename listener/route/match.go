package route

import (
	"bytes"
	"unsafe"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// Request is what Match looks at. Its scratch memory is reused: keep one per
// request object. Random decides fractions and weights and must stay the same
// for all looks at one request.
type Request struct {
	Head       *httpmsg.Head
	Random     uint64
	HTTPS      bool // x-forwarded-proto is https
	Internal   bool // the client is an internal address
	TLSPresent bool // the client showed a certificate
	TLSValid   bool // and it was validated
	Metadata   config.Metadata
	MetadataOK func(m *config.MetadataMatch) bool // nil: no dynamic metadata

	host, joined, bare []byte
}

// Outcome says what Match found.
type Outcome uint8

// The outcomes. TLSRequired comes with a Route in whose virtual host plain
// requests are redirected.
const (
	Found Outcome = iota
	NotFound
	TLSRequired
)

// Match finds the route of q, nil when there is none.
func (t *Table) Match(q *Request) (*Route, Outcome) {
	h := t.host(q)
	if h == nil {
		return nil, NotFound
	}
	if tls := h.Config.RequireTLS; tls != config.TLSNone && !q.HTTPS && (tls == config.TLSAll || !q.Internal) {
		if r := h.route(q); r != nil {
			return r, TLSRequired
		}
		if len(h.routes) > 0 {
			return h.routes[0], TLSRequired
		}
		return nil, NotFound
	}
	if r := h.route(q); r != nil {
		return r, Found
	}
	return nil, NotFound
}

func (t *Table) host(q *Request) *VirtualHost {
	a := q.Head.Authority()
	if t.Config.IgnorePortInHost {
		a = StripPort(a)
	}
	if len(t.exact) == 0 && len(t.suffixes) == 0 && len(t.prefixes) == 0 {
		return t.fallback
	}
	q.host = appendLower(q.host[:0], a)
	if h := t.exact[str(q.host)]; h != nil {
		return h
	}
	for _, w := range t.suffixes {
		if len(q.host) > w.n {
			if h := w.hosts[str(q.host[len(q.host)-w.n:])]; h != nil {
				return h
			}
		}
	}
	for _, w := range t.prefixes {
		if len(q.host) > w.n {
			if h := w.hosts[str(q.host[:w.n])]; h != nil {
				return h
			}
		}
	}
	return t.fallback
}

// StripPort cuts ":port" off a host, minding IPv6 literals.
func StripPort(a []byte) []byte {
	i := bytes.LastIndexByte(a, ':')
	if i < 0 || bytes.IndexByte(a[i:], ']') >= 0 {
		return a
	}
	if a[0] != '[' && bytes.IndexByte(a[:i], ':') >= 0 { // a bare IPv6 literal
		return a
	}
	return a[:i]
}

func (h *VirtualHost) route(q *Request) *Route {
	path, query := SplitPath(q.Head.Path())
	if len(h.routes) > 0 && h.routes[0].Table.Config.IgnorePathParameters {
		if bytes.IndexByte(path, ';') >= 0 {
			q.bare = withoutParameters(q.bare[:0], path)
			path = q.bare
		}
	}
	if h.index != nil {
		return h.index.find(q, path, query)
	}
	for _, r := range h.routes {
		if r.matches(q, path, query) {
			return r
		}
	}
	return nil
}

// withoutParameters appends path without the ;name=value of its segments.
func withoutParameters(dst, path []byte) []byte {
	skip := false
	for _, c := range path {
		switch c {
		case ';':
			skip = true
		case '/':
			skip = false
		}
		if !skip {
			dst = append(dst, c)
		}
	}
	return dst
}

// SplitPath cuts :path at the query; query excludes the question mark.
func SplitPath(p []byte) (path, query []byte) {
	if i := bytes.IndexByte(p, '#'); i >= 0 {
		p = p[:i]
	}
	if i := bytes.IndexByte(p, '?'); i >= 0 {
		return p[:i], p[i+1:]
	}
	return p, nil
}

func (r *Route) matches(q *Request, path, query []byte) bool {
	return r.pathMatches(q, path) && r.restMatches(q, query)
}

func (r *Route) pathMatches(q *Request, path []byte) bool {
	m := &r.Config.Match
	if m.Kind == config.PathConnect {
		return string(q.Head.Method()) == "CONNECT"
	}
	if len(path) == 0 && len(q.Head.Path()) == 0 { // CONNECT without a path
		return false
	}
	switch m.Kind {
	case config.PathPrefix:
		return hasPrefix(path, m.Path, m.IgnoreCase)
	case config.PathExact:
		return len(path) == len(m.Path) && hasPrefix(path, m.Path, m.IgnoreCase)
	case config.PathSeparated:
		return hasPrefix(path, m.Path, m.IgnoreCase) && (len(path) == len(m.Path) || path[len(m.Path)] == '/')
	}
	return m.Regex != nil && m.Regex.Match(path)
}

func (r *Route) restMatches(q *Request, query []byte) bool {
	m := &r.Config.Match
	if m.GRPC && !IsGRPC(q.Head.Get(httpmsg.ContentType)) {
		return false
	}
	for i := range m.Headers {
		if !q.HeaderMatches(&m.Headers[i]) {
			return false
		}
	}
	for i := range m.Query {
		if !queryMatches(&m.Query[i], query) {
			return false
		}
	}
	for i := range m.Cookies {
		if !cookieMatches(&m.Cookies[i], q.Head) {
			return false
		}
	}
	if m.TLSPresent != nil && *m.TLSPresent != q.TLSPresent || m.TLSValid != nil && *m.TLSValid != q.TLSValid {
		return false
	}
	for i := range m.Metadata {
		if !m.Metadata[i].Match(q.Metadata) {
			return false
		}
	}
	return m.Fraction == nil || q.Random%1_000_000 < uint64(m.Fraction.PerMillion)
}

// IsGRPC reports whether a content type is application/grpc or one of its
// application/grpc+x kin.
func IsGRPC(contentType []byte) bool {
	const grpc = "application/grpc"
	return len(contentType) >= len(grpc) && string(contentType[:len(grpc)]) == grpc &&
		(len(contentType) == len(grpc) || contentType[len(grpc)] == '+')
}

func hasPrefix(s []byte, prefix string, fold bool) bool {
	if len(s) < len(prefix) {
		return false
	}
	if !fold {
		return string(s[:len(prefix)]) == prefix
	}
	for i := range len(prefix) {
		if lower(s[i]) != lower(prefix[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 32
	}
	return c
}

func appendLower(dst, s []byte) []byte {
	for _, c := range s {
		dst = append(dst, lower(c))
	}
	return dst
}

// str views bytes as a string for a look-up or a comparison; it must not be
// kept.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
