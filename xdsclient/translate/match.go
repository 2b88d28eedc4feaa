//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"math"
	"regexp"
	"strings"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"sluice/internal/config"
)

// maxRegexInput bounds a pattern: RE2 in Envoy stops at a program size, Go's
// engine compiles on, so length is what is checked.
const maxRegexInput = 64 << 10

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

// regex compiles a pattern. Envoy matches whole values; find keeps the pattern
// unanchored for substitutions.
func (s scope) regex(m *matcher.RegexMatcher, find bool) *regexp.Regexp {
	return s.pattern(m.GetRegex(), find)
}

func (s scope) pattern(p string, find bool) *regexp.Regexp {
	if len(p) > maxRegexInput {
		s.bad("regex of %d bytes is longer than %d", len(p), maxRegexInput)
		return nil
	}
	full := p
	if !find {
		full = `^(?:` + p + `)$`
	}
	if _, err := regexp.Compile(p); err != nil {
		s.bad("invalid regex '%s': %v", p, err)
		return nil
	}
	re, err := regexp.Compile(full)
	if err != nil {
		s.bad("invalid regex '%s': %v", p, err)
		return nil
	}
	return re
}

func (s scope) stringMatch(m *matcher.StringMatcher) *config.StringMatch {
	out := &config.StringMatch{IgnoreCase: m.GetIgnoreCase()}
	switch x := m.GetMatchPattern().(type) {
	case *matcher.StringMatcher_Exact:
		out.Kind, out.Value = config.MatchExact, x.Exact
	case *matcher.StringMatcher_Prefix:
		out.Kind, out.Value = config.MatchPrefix, x.Prefix
	case *matcher.StringMatcher_Suffix:
		out.Kind, out.Value = config.MatchSuffix, x.Suffix
	case *matcher.StringMatcher_Contains:
		out.Kind, out.Value = config.MatchContains, x.Contains
	case *matcher.StringMatcher_SafeRegex:
		if m.GetIgnoreCase() {
			s.bad("ignore_case has no effect for safe_regex")
		}
		out.Kind, out.IgnoreCase = config.MatchRegex, false
		out.Value = x.SafeRegex.GetRegex()
		out.Regex = s.at("safe_regex").regex(x.SafeRegex, false)
		return out
	default:
		s.bad("not supported yet: this kind of string matcher")
		return out
	}
	if out.IgnoreCase {
		out.Value = strings.ToLower(out.Value)
	}
	return out
}

func (s scope) stringMatches(field string, in []*matcher.StringMatcher) []config.StringMatch {
	var out []config.StringMatch
	for i, m := range in {
		out = append(out, *s.index(field, i).stringMatch(m))
	}
	return out
}

func (s scope) headers(field string, in []*route.HeaderMatcher) []config.HeaderMatch {
	var out []config.HeaderMatch
	for i, m := range in {
		out = append(out, s.index(field, i).header(m))
	}
	return out
}

// header converts one header matcher. Without a specifier Envoy asks for
// presence.
func (s scope) header(m *route.HeaderMatcher) config.HeaderMatch {
	out := config.HeaderMatch{
		Name:                strings.ToLower(m.GetName()),
		Invert:              m.GetInvertMatch(),
		TreatMissingAsEmpty: m.GetTreatMissingHeaderAsEmpty(),
	}
	switch x := m.GetHeaderMatchSpecifier().(type) {
	case nil:
		out.Present = true
	case *route.HeaderMatcher_PresentMatch:
		out.Present, out.Absent = x.PresentMatch, !x.PresentMatch
	case *route.HeaderMatcher_RangeMatch:
		out.Range = &[2]int64{x.RangeMatch.GetStart(), x.RangeMatch.GetEnd()}
	case *route.HeaderMatcher_StringMatch:
		out.String = s.at("string_match").stringMatch(x.StringMatch)
	case *route.HeaderMatcher_ExactMatch:
		out.String = &config.StringMatch{Kind: config.MatchExact, Value: x.ExactMatch}
	case *route.HeaderMatcher_PrefixMatch:
		out.String = &config.StringMatch{Kind: config.MatchPrefix, Value: x.PrefixMatch}
	case *route.HeaderMatcher_SuffixMatch:
		out.String = &config.StringMatch{Kind: config.MatchSuffix, Value: x.SuffixMatch}
	case *route.HeaderMatcher_ContainsMatch:
		out.String = &config.StringMatch{Kind: config.MatchContains, Value: x.ContainsMatch}
	case *route.HeaderMatcher_SafeRegexMatch:
		re := s.at("safe_regex_match").regex(x.SafeRegexMatch, false)
		out.String = &config.StringMatch{Kind: config.MatchRegex, Value: x.SafeRegexMatch.GetRegex(), Regex: re}
	default:
		s.bad("not supported yet: this kind of header matcher")
	}
	return out
}

func (s scope) metadataMatch(m *matcher.MetadataMatcher) config.MetadataMatch {
	out := config.MetadataMatch{Namespace: m.GetFilter(), Invert: m.GetInvert()}
	for _, p := range m.GetPath() {
		out.Path = append(out.Path, p.GetKey())
	}
	out.Value = s.at("value").valueMatch(m.GetValue(), 0)
	return out
}

func (s scope) valueMatch(m *matcher.ValueMatcher, depth int) *config.ValueMatch {
	out := &config.ValueMatch{}
	if depth > 32 {
		s.bad("nested more than 32 levels")
		return out
	}
	switch x := m.GetMatchPattern().(type) {
	case *matcher.ValueMatcher_NullMatch_:
		out.Null = true
	case *matcher.ValueMatcher_DoubleMatch:
		switch d := x.DoubleMatch.GetMatchPattern().(type) {
		case *matcher.DoubleMatcher_Exact:
			out.Number = &[2]float64{d.Exact, math.Nextafter(d.Exact, math.Inf(1))}
		case *matcher.DoubleMatcher_Range:
			out.Number = &[2]float64{d.Range.GetStart(), d.Range.GetEnd()}
		}
	case *matcher.ValueMatcher_StringMatch:
		out.String = s.at("string_match").stringMatch(x.StringMatch)
	case *matcher.ValueMatcher_BoolMatch:
		v := x.BoolMatch
		out.Bool = &v
	case *matcher.ValueMatcher_PresentMatch:
		v := x.PresentMatch
		out.Present = &v
	case *matcher.ValueMatcher_ListMatch:
		out.List = s.at("list_match.one_of").valueMatch(x.ListMatch.GetOneOf(), depth+1)
	case *matcher.ValueMatcher_OrMatch:
		for i, v := range x.OrMatch.GetValueMatchers() {
			out.Or = append(out.Or, *s.index("or_match.value_matchers", i).valueMatch(v, depth+1))
		}
	default:
		s.bad("no value matcher")
	}
	return out
}

func (s scope) rewrite(m *matcher.RegexMatchAndSubstitute) *config.RegexRewrite {
	if m == nil {
		return nil
	}
	re := s.at("pattern").regex(m.GetPattern(), true)
	if re == nil {
		return nil
	}
	return &config.RegexRewrite{Regex: re, Substitution: goSubstitution(m.GetSubstitution(), re.NumSubexp())}
}

// goSubstitution turns RE2's \1 into Go's ${1}; groups is how many there are.
// Envoy doesn't check the text: with a group that isn't there RE2 replaces
// nothing, and at any other bad escape it stops writing.
func goSubstitution(in string, groups int) string {
	var b strings.Builder
	for i := 0; i < len(in); i++ {
		c := in[i]
		switch {
		case c == '$':
			b.WriteString("$$")
		case c != '\\':
			b.WriteByte(c)
		case i+1 < len(in) && in[i+1] == '\\':
			b.WriteByte('\\')
			i++
		case i+1 < len(in) && in[i+1] >= '0' && in[i+1] <= '9' && int(in[i+1]-'0') <= groups:
			b.WriteString("${" + in[i+1:i+2] + "}")
			i++
		default:
			if i+1 < len(in) && in[i+1] >= '0' && in[i+1] <= '9' {
				return "${0}"
			}
			return b.String()
		}
	}
	return b.String()
}
