package route

import (
	"bytes"
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// headerFirst gives the first value of a header or pseudo header.
func (q *Request) headerFirst(name string) []byte {
	v, _ := First(q.Head, name)
	return v
}

// First gives the first value of a header or pseudo header; ok is false when it
// is absent.
func First(h *httpmsg.Head, name string) (value []byte, ok bool) {
	if v, pseudo := Pseudo(h, name); pseudo {
		return v, len(v) > 0
	}
	return h.Value(name)
}

// Pseudo gives the value behind a pseudo header's name (or "host"); ok is false
// for every other name.
func Pseudo(h *httpmsg.Head, name string) (value []byte, ok bool) {
	if name == "host" {
		return h.Authority(), true
	}
	if len(name) == 0 || name[0] != ':' {
		return nil, false
	}
	switch name {
	case ":path":
		return h.Path(), true
	case ":method":
		return h.Method(), true
	case ":authority":
		return h.Authority(), true
	case ":scheme":
		return h.Scheme(), true
	case ":protocol":
		return h.Protocol(), true
	case ":status":
		if h.Status != 0 {
			return strconv.AppendInt(nil, int64(h.Status), 10), true
		}
	}
	return nil, true
}

// Joined gives all values of a header joined with a comma, as matching sees
// them; ok is false when it is absent. scratch is used when there are several.
func Joined(h *httpmsg.Head, name string, scratch *[]byte) (value []byte, ok bool) {
	if v, pseudo := Pseudo(h, name); pseudo {
		return v, len(v) > 0 || name == "host" && h.Has(httpmsg.Host)
	}
	first, ok := h.Value(name)
	if !ok {
		return nil, false
	}
	n := 0
	for i := range h.Len() {
		_, k, v, live := h.Field(i)
		if !live || string(k) != name {
			continue
		}
		if n++; n == 2 {
			*scratch = append((*scratch)[:0], first...)
		}
		if n >= 2 {
			*scratch = append(append(*scratch, ','), v...)
		}
	}
	if n < 2 {
		return first, true
	}
	return *scratch, true
}

// HeaderMatches reports whether the request fits m.
func (q *Request) HeaderMatches(m *config.HeaderMatch) bool {
	return HeaderMatches(m, q.Head, &q.joined)
}

// HeaderMatches reports whether h fits m, with Envoy's rules for absent
// headers: a value matcher on an absent header never matches, inverted or not,
// unless absent is treated as empty.
func HeaderMatches(m *config.HeaderMatch, h *httpmsg.Head, scratch *[]byte) bool {
	v, ok := Joined(h, m.Name, scratch)
	if m.Present || m.Absent {
		if !ok && m.TreatMissingAsEmpty {
			ok = true
		}
		return ok != m.Absent != m.Invert
	}
	if !ok {
		if !m.TreatMissingAsEmpty {
			return false
		}
		v = nil
	}
	return valueMatches(m, v) != m.Invert
}

// EachValueMatches is HeaderMatches for policies: a header that came more than
// once fits when one of its values does, and an inverted match only when none
// does, so that no value hides behind another.
func EachValueMatches(m *config.HeaderMatch, h *httpmsg.Head, scratch *[]byte) bool {
	if _, pseudo := Pseudo(h, m.Name); pseudo || m.Present || m.Absent {
		return HeaderMatches(m, h, scratch)
	}
	found := false
	for i := range h.Len() {
		_, k, v, live := h.Field(i)
		if !live || string(k) != m.Name {
			continue
		}
		found = true
		if valueMatches(m, v) {
			return !m.Invert
		}
	}
	if !found {
		return HeaderMatches(m, h, scratch)
	}
	return m.Invert
}

func valueMatches(m *config.HeaderMatch, v []byte) bool {
	if m.Range != nil {
		n, err := strconv.ParseInt(str(bytes.TrimSpace(v)), 10, 64)
		return err == nil && n >= m.Range[0] && n < m.Range[1]
	}
	return m.String == nil || StringMatches(m.String, v)
}

// StringMatches is config.StringMatch.Match for bytes, without allocation.
func StringMatches(m *config.StringMatch, v []byte) bool {
	if m.Kind == config.MatchRegex {
		return m.Regex.Match(v)
	}
	n := len(m.Value)
	if len(v) < n {
		return false
	}
	switch m.Kind {
	case config.MatchPrefix:
		return hasPrefix(v, m.Value, m.IgnoreCase)
	case config.MatchSuffix:
		return hasPrefix(v[len(v)-n:], m.Value, m.IgnoreCase)
	case config.MatchContains:
		return contains(v, m.Value, m.IgnoreCase)
	}
	return len(v) == n && hasPrefix(v, m.Value, m.IgnoreCase)
}

func contains(v []byte, s string, fold bool) bool {
	for i := 0; i+len(s) <= len(v); i++ {
		if hasPrefix(v[i:], s, fold) {
			return true
		}
	}
	return false
}

// queryMatches looks for the first parameter of that name. As in Envoy,
// neither names nor values are percent-decoded.
func queryMatches(m *config.QueryMatch, query []byte) bool {
	v, ok := QueryParam(query, m.Name)
	if !ok || m.Absent {
		return ok != m.Absent
	}
	return m.String == nil || StringMatches(m.String, v)
}

// cookieMatches looks at the first cookie of that name, over all Cookie lines.
func cookieMatches(m *config.CookieMatch, h *httpmsg.Head) bool {
	v, ok := Cookie(h, m.Name)
	return (ok && StringMatches(m.String, v)) != m.Invert
}

// Cookie gives the value of the first cookie of a name, without the quotes
// around it. It views h.
func Cookie(h *httpmsg.Head, name string) (value []byte, ok bool) {
	for i := range h.Len() {
		id, _, v, live := h.Field(i)
		if !live || id != httpmsg.Cookie {
			continue
		}
		for part := range bytes.SplitSeq(v, []byte{';'}) {
			k, val, found := bytes.Cut(bytes.TrimSpace(part), []byte{'='})
			if found && string(k) == name {
				return unquoted(val), true
			}
		}
	}
	return nil, false
}

func unquoted(v []byte) []byte {
	if n := len(v); n >= 2 && v[0] == '"' && v[n-1] == '"' {
		return v[1 : n-1]
	}
	return v
}

// QueryParam gives the first value of a query parameter.
func QueryParam(query []byte, name string) (value []byte, ok bool) {
	for len(query) > 0 {
		part := query
		if i := bytes.IndexByte(query, '&'); i >= 0 {
			part, query = query[:i], query[i+1:]
		} else {
			query = nil
		}
		key, v := part, []byte(nil)
		if i := bytes.IndexByte(part, '='); i >= 0 {
			key, v = part[:i], part[i+1:]
		}
		if string(key) == name {
			return v, true
		}
	}
	return nil, false
}
