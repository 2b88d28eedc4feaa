package conform

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// missing stands for a value that one side does not have.
const missing = "<nothing>"

// difference is one place where an outcome is not as recorded.
type difference struct {
	path      string // dotted: steps.0.headers.x-a
	want, got any
}

func (d difference) String() string {
	return fmt.Sprintf("%s\n    expected %s\n    got      %s", d.path, shownSide(d.want, d.got), shownSide(d.got, d.want))
}

// compared lists the differences of two outcomes outside the ignored paths.
func compared(want, got any, ignore []pathPattern) []difference {
	return differences(pruned(plain(want, ""), ignore, ""), pruned(plain(got, ""), ignore, ""), "")
}

// plain has header pairs as name → values, so that a path names the header.
func plain(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(object, len(v))
		for k, inner := range v {
			out[k] = plain(inner, k)
		}
		return out
	case []any:
		if key == "headers" || key == "trailers" {
			if byName, ok := namedPairs(v); ok {
				return byName
			}
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i], "")
		}
		return out
	}
	return v
}

func namedPairs(list []any) (object, bool) {
	out := object{}
	for _, p := range list {
		kv, ok := p.([]any)
		if !ok || len(kv) != 2 {
			return nil, false
		}
		name := fmt.Sprint(kv[0])
		switch old := out[name].(type) {
		case nil:
			out[name] = kv[1]
		case []any:
			out[name] = append(old, kv[1])
		default:
			out[name] = []any{old, kv[1]}
		}
	}
	return out, true
}

// pathPattern is a shell pattern over dotted paths: * also matches dots.
type pathPattern struct {
	text string
	re   *regexp.Regexp
}

func pathPatterns(texts []string) []pathPattern {
	out := make([]pathPattern, len(texts))
	for i, t := range texts {
		quoted := regexp.QuoteMeta(t)
		quoted = strings.NewReplacer(`\*`, `.*`, `\?`, `.`, `\[`, `[`, `\]`, `]`).Replace(quoted)
		out[i] = pathPattern{t, regexp.MustCompile(`(?s)^` + quoted + `$`)}
	}
	return out
}

func matchesAny(path string, patterns []pathPattern) bool {
	return slices.ContainsFunc(patterns, func(p pathPattern) bool { return p.re.MatchString(path) })
}

func joined(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// pruned is v without what the patterns name.
func pruned(v any, ignore []pathPattern, path string) any {
	if len(ignore) == 0 {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		out := object{}
		for k, inner := range v {
			if at := joined(path, k); !matchesAny(at, ignore) {
				out[k] = pruned(inner, ignore, at)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			if at := joined(path, strconv.Itoa(i)); !matchesAny(at, ignore) {
				out[i] = pruned(v[i], ignore, at)
			}
		}
		return out
	}
	return v
}

func differences(want, got any, path string) []difference {
	var out []difference
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(w)
		maps.Copy(keys, g)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			out = append(out, differences(valueOr(w, k), valueOr(g, k), joined(path, k))...)
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok {
			break
		}
		for i := range max(len(w), len(g)) {
			out = append(out, differences(itemOr(w, i), itemOr(g, i), joined(path, strconv.Itoa(i)))...)
		}
		return out
	}
	if reflect.DeepEqual(want, got) {
		return nil
	}
	return []difference{{path, want, got}}
}

func valueOr(m object, k string) any {
	if v, ok := m[k]; ok {
		return v
	}
	return missing
}

func itemOr(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return missing
}

// withoutMeant is the differences that no pattern names, and the patterns that
// name none: a list of meant differences must not rot.
func withoutMeant(diffs []difference, meant []pathPattern) (rest []difference, stale []string) {
	used := map[string]bool{}
	for _, d := range diffs {
		found := false
		for _, p := range meant {
			if p.re.MatchString(d.path) {
				used[p.text], found = true, true
			}
		}
		if !found {
			rest = append(rest, d)
		}
	}
	for _, p := range meant {
		if !used[p.text] {
			stale = append(stale, p.text)
		}
	}
	return rest, stale
}

// shownSide is one side of a difference; long texts from shortly before where
// they part.
func shownSide(v, other any) string {
	s, isText := v.(string)
	o, otherText := other.(string)
	if isText && otherText && len(s) > 200 {
		at := 0
		for at < len(s) && at < len(o) && s[at] == o[at] {
			at++
		}
		return fmt.Sprintf("(at %d) ...%q", at, s[max(0, at-30):min(len(s), at+120)])
	}
	if s == missing {
		return missing
	}
	shown := dumped(v)
	if len(shown) > 400 {
		shown = shown[:400] + "..."
	}
	return shown
}
