package conform

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maskedHeader is a header value without what differs by nature.
func maskedHeader(name, value string) string {
	switch name {
	case "date":
		return "<date>"
	case "x-envoy-upstream-service-time":
		return "<ms>"
	case "x-envoy-expected-rq-timeout-ms":
		return rounded(value)
	}
	return value
}

// rounded is a remaining timeout up to two digits: it shrinks by what a first
// try took.
func rounded(digits string) string {
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return digits
	}
	unit := uint64(1)
	for range len(digits) - 2 {
		unit *= 10
	}
	return strconv.FormatUint((n+unit-1)/unit*unit, 10)
}

// maskRule replaces what a pattern finds. notNext are bytes that must not follow
// a match: the patterns of cases look ahead, which package regexp does not.
type maskRule struct {
	find    *regexp.Regexp
	replace string
	notNext *regexp.Regexp
	rewrite func([]string) string
}

// natureRules hide what differs by nature in every string.
var natureRules = []maskRule{
	{find: regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), replace: "<uuid>"},
	{find: regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?`), replace: "<time>"},
	{find: regexp.MustCompile(`\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`), replace: "<date>"},
	{find: regexp.MustCompile(`(?i)\b(x-envoy-upstream-service-time: |[\w-]*duration[\w-]*[=:] ?|[\w-]*duration[\w-]*": ?"?|\w*_ms[=:] ?)\d+`), replace: "${1}<ms>"},
	{find: regexp.MustCompile(`(x-envoy-expected-rq-timeout-ms(?:: |": "|", "))(\d+)`), rewrite: func(m []string) string { return m[1] + rounded(m[2]) }},
	{find: regexp.MustCompile(`Hash=[0-9a-f]{64}`), replace: "Hash=<hash>"},
	{find: regexp.MustCompile(`(Cert|Chain)="[^"]*"`), replace: `${1}="<pem>"`},
	{find: regexp.MustCompile(`\b(127\.0\.0\.\d+[:_])(3276[89]|327[7-9]\d|32[89]\d\d|3[3-9]\d{3}|[45]\d{4}|60\d{3})\b`), replace: "${1}<port>"},
	{find: regexp.MustCompile(`(PROXY TCP4 [\d.]+ [\d.]+ )\d+ `), replace: "${1}<port> "},
}

func (r maskRule) apply(s string) string {
	if r.notNext == nil && r.rewrite == nil {
		return r.find.ReplaceAllString(s, r.replace)
	}
	var out strings.Builder
	last := 0
	for _, at := range r.find.FindAllStringSubmatchIndex(s, -1) {
		if r.notNext != nil && r.notNext.MatchString(s[at[1]:]) {
			continue
		}
		out.WriteString(s[last:at[0]])
		last = at[1]
		if r.rewrite == nil {
			out.Write(r.find.ExpandString(nil, r.replace, s, at))
			continue
		}
		groups := make([]string, len(at)/2)
		for i := range groups {
			if at[2*i] >= 0 {
				groups[i] = s[at[2*i]:at[2*i+1]]
			}
		}
		out.WriteString(r.rewrite(groups))
	}
	out.WriteString(s[last:])
	return out.String()
}

var (
	groupNumber  = regexp.MustCompile(`\\(\d)`)
	lookedAhead  = regexp.MustCompile(`^(.*)\(\?!([^()]*)\)$`)
	localAddress = regexp.MustCompile(`\|-- ([\d.]+)\n\s+/32 host LOCAL`)
)

// authoredRule is a [REGEX, TEXT] of a case. A look-ahead may stand at its end.
func authoredRule(pattern, replace string) (maskRule, error) {
	r := maskRule{replace: groupNumber.ReplaceAllString(strings.ReplaceAll(replace, "$", "$$"), "$${${1}}")}
	if m := lookedAhead.FindStringSubmatch(pattern); m != nil {
		pattern = m[1]
		r.notNext = regexp.MustCompile("^(?:" + m[2] + ")")
	}
	var err error
	if r.find, err = regexp.Compile(pattern); err != nil {
		return r, fmt.Errorf("mask: %w", err)
	}
	return r, nil
}

// ownAddresses are this machine's IPv4 addresses besides loopback: a proxy
// writes its own into x-forwarded-for of a client on 127.0.0.1.
func ownAddresses() []string {
	data, err := os.ReadFile("/proc/net/fib_trie")
	if err != nil {
		return nil
	}
	var own []string
	for _, m := range localAddress.FindAllStringSubmatch(string(data), -1) {
		if !strings.HasPrefix(m[1], "127.") && !slices.Contains(own, m[1]) {
			own = append(own, m[1])
		}
	}
	return own
}

// masker replaces ports, the folder, own addresses and patterns in every string
// of an outcome.
type masker struct {
	names  map[string]string // port → its name
	folder string
	rules  []maskRule
}

func newMasker(ports map[string]int, folder string, authored [][2]string) (*masker, error) {
	m := &masker{names: map[string]string{}, folder: folder}
	for _, a := range authored {
		r, err := authoredRule(a[0], a[1])
		if err != nil {
			return nil, err
		}
		m.rules = append(m.rules, r)
	}
	var known []string
	for name, port := range ports {
		m.names[strconv.Itoa(port)] = name
		known = append(known, strconv.Itoa(port))
	}
	m.rules = append(m.rules, maskRule{
		find:    regexp.MustCompile(`([:_]|port_value": ?|PROXY TCP4 \S+ \S+ \S+ )(` + strings.Join(known, "|") + `)`),
		notNext: regexp.MustCompile(`^\d`),
		rewrite: func(g []string) string { return g[1] + "${" + m.names[g[2]] + "}" },
	})
	for _, own := range ownAddresses() {
		m.rules = append(m.rules, maskRule{find: regexp.MustCompile(`\b` + regexp.QuoteMeta(own) + `\b`), replace: "<own>", notNext: regexp.MustCompile(`^[.\d]`)})
	}
	m.rules = append(m.rules, natureRules...)
	return m, nil
}

// value is a masked copy. Inside `picked` values a number alone can be a port.
func (m *masker) value(v any) any { return m.masked(v, false) }

func (m *masker) masked(v any, bare bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(object, len(v))
		for k, inner := range v {
			out[m.text(k)] = m.masked(inner, bare || k == "picked")
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.masked(v[i], bare)
		}
		return out
	case string:
		if name, ok := m.names[v]; bare && ok {
			return "${" + name + "}"
		}
		return m.text(v)
	case int:
		if name, ok := m.names[strconv.Itoa(v)]; bare && ok {
			return "${" + name + "}"
		}
	}
	return v
}

func (m *masker) text(s string) string {
	s = strings.ReplaceAll(s, m.folder, "${DIR}")
	for _, r := range m.rules {
		s = r.apply(s)
	}
	return s
}
