package headermutation

import (
	"net/url"
	"slices"
	"strings"

	"sluice/internal/config"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// param is a parameter as it stands in the path, and its name decoded.
type param struct{ name, text string }

// EditQuery edits the query of the request. As in Envoy the parameters come out
// in the order of their names; their text stays as the client wrote it. It
// allocates: edits of the query are rare.
func EditQuery(x *filter.Exchange, edits []config.QueryMutation) {
	path, query := route.SplitPath(x.Request.Path())
	list := parse(string(query))
	for i := range edits {
		list = edit(list, &edits[i], x)
	}
	slices.SortStableFunc(list, func(a, b param) int { return strings.Compare(a.name, b.name) })
	out := append([]byte(nil), path...)
	for i := range list {
		out = append(append(out, "?&"[min(i, 1)]), list[i].text...)
	}
	x.Request.SetPath(out)
}

func parse(query string) (list []param) {
	for text := range strings.SplitSeq(query, "&") {
		if text == "" {
			continue
		}
		name, _, _ := strings.Cut(text, "=")
		if s, err := url.PathUnescape(name); err == nil {
			name = s
		}
		list = append(list, param{name, text})
	}
	return list
}

func edit(list []param, m *config.QueryMutation, x *filter.Exchange) []param {
	named := func(name string) func(param) bool { return func(p param) bool { return p.name == name } }
	if m.Remove != "" {
		return slices.DeleteFunc(list, named(m.Remove))
	}
	exists := slices.ContainsFunc(list, named(m.Name))
	switch {
	case m.Action == config.AddIfAbsent && exists, m.Action == config.OverwriteIfExists && !exists:
		return list
	case m.Action == config.OverwriteIfExists, m.Action == config.OverwriteOrAdd:
		list = slices.DeleteFunc(list, named(m.Name))
	}
	value := x.Eval(nil, m.Value)
	text := append(escape(nil, []byte(m.Name)), '=')
	return append(list, param{m.Name, string(escape(text, value))})
}

// escape percent-encodes what Envoy does in values, so that a value can be
// nothing but one.
func escape(dst, s []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_', c == '*':
			dst = append(dst, c)
		default:
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}
