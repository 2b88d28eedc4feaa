package route

import (
	"net/url"
	"slices"
	"strings"

	"sluice/internal/config"
)

// param is a parameter as it stands in the path, and its name decoded.
type param struct{ name, text string }

// EditQuery gives a path whose query is edited. As in Envoy the parameters come
// out in the order of their names; their text stays as the client wrote it. It
// allocates: edits of the query are rare.
func EditQuery(path []byte, edits []config.QueryMutation, eval Eval) []byte {
	path, query := SplitPath(path)
	list := parameters(string(query))
	for i := range edits {
		list = editParameters(list, &edits[i], eval)
	}
	slices.SortStableFunc(list, func(a, b param) int { return strings.Compare(a.name, b.name) })
	out := append([]byte(nil), path...)
	for i := range list {
		out = append(append(out, "?&"[min(i, 1)]), list[i].text...)
	}
	return out
}

func parameters(query string) (list []param) {
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

func editParameters(list []param, m *config.QueryMutation, eval Eval) []param {
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
	value := eval(nil, m.Value)
	text := append(escapeParameter(nil, []byte(m.Name)), '=')
	return append(list, param{m.Name, string(escapeParameter(text, value))})
}

// escapeParameter percent-encodes what Envoy does in values, so that a value can be
// nothing but one.
func escapeParameter(dst, s []byte) []byte {
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
