package localratelimit

import (
	"encoding/binary"
	"net/netip"
	"net/url"

	"sluice/internal/config"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// A description is a list of entries, each a key and a value with their lengths
// before them, so that no value can pass for another entry.

func appendEntry(dst []byte, key, value string) []byte {
	return appendPart(appendPart(dst, key), value)
}

func appendPart[T string | []byte](dst []byte, part T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(part))), part...)
}

// cutPart gives the next key or value; nil at the end.
func cutPart(d []byte) (part, rest []byte) {
	n, size := binary.Uvarint(d)
	if size <= 0 {
		return nil, nil
	}
	d = d[size:]
	return d[:n:n], d[n:]
}

// fit appends the limits of the request's descriptions to to.
func (f *Filter) fit(l *limiter, to []*limit, x *filter.Exchange, s *filter.Slot) []*limit {
	p := f.policy
	if len(p.RateLimits) > 0 {
		return fitEach(l, p.RateLimits, 0, to, x, s)
	}
	if x.Route == nil || x.Route.Action == nil {
		return to
	}
	a := x.Route.Action
	to = fitEach(l, a.RateLimits, p.Stage, to, x, s)
	switch {
	case a.WithHostLimits, p.VirtualHost == config.VirtualHostInclude,
		p.VirtualHost == config.VirtualHostOverride && len(a.RateLimits) == 0:
		to = fitEach(l, x.Host.RateLimits, p.Stage, to, x, s)
	}
	return to
}

func fitEach(l *limiter, list []config.RateLimit, stage uint32, to []*limit, x *filter.Exchange, s *filter.Slot) []*limit {
	for i := range list {
		if list[i].Stage != stage || !describe(&list[i], x, s) {
			continue
		}
		if b := l.find(s.B); b != nil {
			to = append(to, b)
		}
	}
	return to
}

// describe writes the description of the request to s.B; false: there is none.
func describe(l *config.RateLimit, x *filter.Exchange, s *filter.Slot) bool {
	s.B = s.B[:0]
	for i := range l.Actions {
		a := &l.Actions[i]
		before := len(s.B)
		s.B = appendPart(s.B, a.Key)
		ok := false
		if s.B, ok = appendValue(s.B, a, x); ok {
			continue
		}
		if !a.SkipAbsent {
			return false
		}
		s.B = s.B[:before]
	}
	return true
}

// appendValue appends the value that the action finds; false: none.
func appendValue(dst []byte, a *config.RateAction, x *filter.Exchange) ([]byte, bool) {
	switch a.Source {
	case config.RateRequestHeader:
		v, ok := route.First(x.Request, a.Name)
		return appendPart(dst, v), ok
	case config.RateQueryParam:
		v, ok := queryParam(x, a.Name)
		return appendPart(dst, v), ok
	case config.RateRemoteAddress, config.RateMaskedRemote:
		return appendAddress(dst, a, x)
	case config.RateHeaderMatch:
		return appendPart(dst, a.Value), headersFit(a, x) != a.Unless
	case config.RateQueryMatch:
		return appendPart(dst, a.Value), queryFits(a, x) != a.Unless
	}
	return appendPart(dst, a.Value), true
}

// appendAddress appends the client's address, or its network.
func appendAddress(dst []byte, a *config.RateAction, x *filter.Exchange) ([]byte, bool) {
	ip := x.Record.Remote.Addr().Unmap()
	if !ip.IsValid() {
		return dst, false
	}
	var room [64]byte
	if a.Source == config.RateRemoteAddress {
		return appendPart(dst, ip.AppendTo(room[:0])), true
	}
	bits := a.Masked
	if ip.Is6() {
		bits = a.Masked6
	}
	return appendPart(dst, netip.PrefixFrom(ip, bits).Masked().AppendTo(room[:0])), true
}

func headersFit(a *config.RateAction, x *filter.Exchange) bool {
	for i := range a.Headers {
		if !route.HeaderMatches(&a.Headers[i], x.Request, &x.Scratch) {
			return false
		}
	}
	return true
}

func queryFits(a *config.RateAction, x *filter.Exchange) bool {
	for i := range a.Query {
		m := &a.Query[i]
		v, ok := queryParam(x, m.Name)
		if ok == m.Absent || ok && m.String != nil && !route.StringMatches(m.String, v) {
			return false
		}
	}
	return true
}

// queryParam gives the first value of a parameter, percent-decoded where that is
// possible.
func queryParam(x *filter.Exchange, name string) ([]byte, bool) {
	_, query := route.SplitPath(x.Request.Path())
	v, ok := route.QueryParam(query, name)
	for _, c := range v {
		if c != '%' {
			continue
		}
		if s, err := url.PathUnescape(string(v)); err == nil {
			return []byte(s), true
		}
	}
	return v, ok
}
