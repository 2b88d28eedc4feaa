package extauthz

import (
	"strconv"
	"unicode/utf8"

	"sluice/internal/config"
	"sluice/listener/route"
)

// header is one that the service is told of: all values of a name.
type header struct{ name, value string }

const partialBody = "x-envoy-auth-partial-body"

// headers gives what the service may see, in the order of the request. Values of
// one name are joined, so that it judges by all of them.
func (k *check) headers() []header {
	h := k.x.Request
	var list []header
	for _, name := range [...]string{":authority", ":path", ":method", ":scheme"} {
		if v, _ := route.Pseudo(h, name); len(v) > 0 && k.shown(name) {
			list = append(list, header{name, text(v)})
		}
	}
	at := map[string]int{}
	for i := range h.Len() {
		_, name, value, ok := h.Field(i)
		if !ok || string(name) == partialBody || !k.shown(string(name)) {
			continue
		}
		if j, seen := at[string(name)]; seen {
			list[j].value += "," + text(value)
			continue
		}
		at[string(name)] = len(list)
		list = append(list, header{string(name), text(value)})
	}
	if b := k.body(); len(b) > 0 {
		list = append(list, header{partialBody, strconv.FormatBool(!k.x.Whole || len(b) < len(k.x.Content))})
	}
	return list
}

func (k *check) shown(name string) bool {
	p := k.f.policy
	return !anyMatches(p.Disallowed, name) && (p.AllHeaders || anyMatches(p.Allowed, name))
}

func anyMatches(list []config.StringMatch, name string) bool {
	for i := range list {
		if list[i].Match(name) {
			return true
		}
	}
	return false
}

// body is the content that the service sees, nil for none.
func (k *check) body() []byte {
	b := k.f.policy.Body
	if b == nil || k.f.route.NoBody {
		return nil
	}
	return k.x.Content[:min(len(k.x.Content), b.Max)]
}

// text makes UTF-8 of bytes as Envoy does: what isn't becomes an exclamation
// mark, byte by byte.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			out = append(out, '!')
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return string(out)
}
