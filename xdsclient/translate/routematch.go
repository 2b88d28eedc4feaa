package translate

import (
	"regexp"
	"strings"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	uritemplate "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/internal/config"
)

type (
	wrapperUint32 = wrapperspb.UInt32Value
	wrapperUint64 = wrapperspb.UInt64Value
)

func optionalFraction(p *typev3.FractionalPercent) *config.Percent {
	if p == nil {
		return nil
	}
	v := fraction(p)
	return &v
}

func (s scope) routeMatch(m *route.RouteMatch) config.RouteMatch {
	out := config.RouteMatch{IgnoreCase: !boolean(m.GetCaseSensitive(), true), GRPC: m.GetGrpc() != nil}
	s.unsupported(len(m.GetFilterState()) > 0, "filter_state", "routes by filter state")
	switch x := m.GetPathSpecifier().(type) {
	case *route.RouteMatch_Prefix:
		out.Kind, out.Path = config.PathPrefix, x.Prefix
	case *route.RouteMatch_Path:
		out.Kind, out.Path = config.PathExact, x.Path
	case *route.RouteMatch_SafeRegex:
		out.Kind, out.Regex = config.PathRegex, s.at("safe_regex").regex(x.SafeRegex, false)
		out.Path = x.SafeRegex.GetRegex()
		out.IgnoreCase = false // Envoy: case_sensitive doesn't apply to regexes
	case *route.RouteMatch_PathSeparatedPrefix:
		out.Kind, out.Path = config.PathSeparated, x.PathSeparatedPrefix
	case *route.RouteMatch_ConnectMatcher_:
		out.Kind = config.PathConnect
	case *route.RouteMatch_PathMatchPolicy:
		s.at("path_match_policy").templateMatch(x, &out)
	default:
		s.bad("no path specifier: one of prefix, path, safe_regex, path_separated_prefix or connect_matcher")
	}
	if out.IgnoreCase {
		out.Path = strings.ToLower(out.Path)
	}
	out.Headers = s.headers("headers", m.GetHeaders())
	out.Query = s.queries(m.GetQueryParameters())
	for i, c := range m.GetCookies() {
		out.Cookies = append(out.Cookies, config.CookieMatch{Name: c.GetName(), Invert: c.GetInvertMatch(),
			String: s.index("cookies", i).at("string_match").stringMatch(c.GetStringMatch())})
	}
	if f := m.GetRuntimeFraction(); f != nil {
		out.Fraction = optionalFraction(f.GetDefaultValue())
	}
	if t := m.GetTlsContext(); t != nil {
		out.TLSPresent, out.TLSValid = optionalBool(t.GetPresented()), optionalBool(t.GetValidated())
	}
	for i, d := range m.GetDynamicMetadata() {
		out.Metadata = append(out.Metadata, s.index("dynamic_metadata", i).metadataMatch(d))
	}
	return out
}

func (s scope) templateMatch(x *route.RouteMatch_PathMatchPolicy, out *config.RouteMatch) {
	var m uritemplate.UriTemplateMatchConfig
	out.Kind = config.PathTemplate
	if !s.at("typed_config").unpack(x.PathMatchPolicy.GetName(), x.PathMatchPolicy.GetTypedConfig(), &m) {
		return
	}
	out.Path = m.GetPathTemplate()
	out.Regex = s.at("path_template").template(m.GetPathTemplate())
}

// Limits of a URI template, Envoy's.
const (
	maxTemplateVars   = 5
	maxTemplateName   = 16
	templateLiteral   = `^[a-zA-Z0-9\-._~%!$&'()+,;:@=]*$`
	templateVariable  = `^[a-zA-Z][a-zA-Z0-9_]*$`
	templateSegment   = `[a-zA-Z0-9\-._~%!$&'()+,;:@=]+`
	templateRemainder = `[a-zA-Z0-9\-._~%!$&'()+,;:@=/]*`
)

// template compiles Envoy's URI template syntax: literals, *, **, {name},
// {name=pattern}; Istio's {*} and {**} come as the plain operators. Named
// groups hold the variables.
func (s scope) template(t string) *regexp.Regexp {
	if !strings.HasPrefix(t, "/") {
		s.bad("invalid path_template %q: must start with '/'", t)
		return nil
	}
	c := templateCompiler{scope: s, text: t, names: map[string]bool{}}
	c.pattern(t[1:])
	if c.failed {
		return nil
	}
	re, err := regexp.Compile("^" + c.out.String() + "$")
	if err != nil {
		s.bad("invalid path_template %q: %v", t, err)
		return nil
	}
	return re
}

type templateCompiler struct {
	scope
	text   string
	out    strings.Builder
	names  map[string]bool
	rest   bool // ** has been seen: it must be the last operator
	failed bool
}

func (c *templateCompiler) fail(why string) {
	if !c.failed {
		c.bad("invalid path_template %q: %s", c.text, why)
	}
	c.failed = true
}

// pattern compiles segments up to the end of t, splitting at slashes outside of
// braces.
func (c *templateCompiler) pattern(t string) {
	for first := true; ; first = false {
		seg, after, more := cutSegment(t)
		c.out.WriteByte('/')
		if !first && seg == "" && more {
			c.fail("empty segment")
			return
		}
		c.segment(seg)
		if !more || c.failed {
			return
		}
		t = after
	}
}

func cutSegment(t string) (seg, after string, more bool) {
	depth := 0
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case '{':
			depth++
		case '}':
			depth--
		case '/':
			if depth == 0 {
				return t[:i], t[i+1:], true
			}
		}
	}
	return t, "", false
}

func (c *templateCompiler) segment(seg string) {
	switch {
	case seg == "*":
		c.operator(templateSegment)
	case seg == "**":
		c.operator(templateRemainder)
		c.rest = true
	case strings.HasPrefix(seg, "{"):
		end := strings.IndexByte(seg, '}')
		if end < 0 {
			c.fail("unbalanced {")
			return
		}
		c.variable(seg[1:end])
		if rest := seg[end+1:]; rest != "" {
			c.literal(rest)
		}
	default:
		c.literal(seg)
	}
}

func (c *templateCompiler) operator(re string) {
	if c.rest {
		c.fail("an operator behind **")
	}
	c.out.WriteString(re)
}

func (c *templateCompiler) literal(seg string) {
	if !regexp.MustCompile(templateLiteral).MatchString(seg) {
		c.fail("invalid literal " + seg)
		return
	}
	c.out.WriteString(regexp.QuoteMeta(seg))
}

func (c *templateCompiler) variable(v string) {
	name, pattern, has := strings.Cut(v, "=")
	if !regexp.MustCompile(templateVariable).MatchString(name) || len(name) > maxTemplateName {
		c.fail("invalid variable name " + name)
		return
	}
	if c.names[name] || len(c.names) >= maxTemplateVars {
		c.fail("variable names must be unique and at most 5")
		return
	}
	c.names[name] = true
	if !has {
		pattern = "*"
	}
	c.out.WriteString("(?P<" + name + ">")
	for i, seg := range strings.Split(pattern, "/") {
		if i > 0 {
			c.out.WriteByte('/')
		}
		if strings.ContainsAny(seg, "{}") {
			c.fail("invalid variable pattern " + pattern)
			return
		}
		c.segment(seg)
	}
	c.out.WriteByte(')')
}

func (s scope) queries(in []*route.QueryParameterMatcher) []config.QueryMatch {
	var out []config.QueryMatch
	for i, q := range in {
		qm := config.QueryMatch{Name: q.GetName()}
		switch x := q.GetQueryParameterMatchSpecifier().(type) {
		case *route.QueryParameterMatcher_StringMatch:
			qm.String = s.index("query_parameters", i).at("string_match").stringMatch(x.StringMatch)
		case *route.QueryParameterMatcher_PresentMatch:
			qm.Absent = !x.PresentMatch
		}
		out = append(out, qm)
	}
	return out
}
