package jwt

import (
	"testing"

	"sluice/internal/config"
)

// What Envoy 1.40 answered to the same requirements and tokens.
func TestRequirements(t *testing.T) {
	p, q, r := trusting("i"), trusting("j"), trusting("i")
	q.Headers, q.Params = []config.JWTHeader{{Name: "x-a"}}, nil
	r.Audiences = []string{"r"}
	missed, failed := group(config.JWTAllowMissing), group(config.JWTAllowFailed)
	either := func(sub ...config.JWTRequirement) config.JWTRequirement { return group(config.JWTAny, sub...) }
	both := func(sub ...config.JWTRequirement) config.JWTRequirement { return group(config.JWTAll, sub...) }
	good, bad, old, unknown := bearer(hs(`{"iss":"i"}`)), bearer(forged(`{"iss":"i"}`)), bearer(hs(`{"iss":"i","exp":5}`)), bearer(hs(`{"iss":"w"}`))
	inA, badA := "x-a: "+hs(`{"iss":"j"}`), "x-a: "+forged(`{"iss":"j"}`)
	const none, fails, issuer, expires, audience = "401 Jwt is missing", "401 Jwt verification fails",
		"401 Jwt issuer is not configured", "401 Jwt is expired", "403 Audiences in Jwt are not allowed"
	for _, c := range []struct {
		rule  string
		need  config.JWTRequirement
		lines []string
		want  string
	}{
		{"one: nothing", of(0), nil, none},
		{"one: good", of(0), []string{good}, "ok"},
		{"one: another's", of(0), []string{unknown}, issuer},
		{"one: elsewhere", of(0), []string{inA}, none},
		{"any: nothing", either(of(0), of(1)), nil, none},
		{"any: the second", either(of(0), of(1)), []string{inA}, "ok"},
		{"any: a bad first and a good second", either(of(0), of(1)), []string{bad, inA}, "ok"},
		{"any: what tells more is said, before", either(of(0), of(1)), []string{bad}, fails},
		{"any: and after", either(of(1), of(0)), []string{bad}, fails},
		{"any: of equals the last", either(of(0), of(2)), []string{bad}, audience},
		{"any: either way", either(of(2), of(0)), []string{bad}, fails},
		{"any: an unknown issuer tells more than nothing", either(of(0), of(1)), []string{unknown}, issuer},
		{"all: nothing", both(of(0), of(1)), nil, none},
		{"all: one", both(of(0), of(1)), []string{good}, none},
		{"all: both", both(of(0), of(1)), []string{good, inA}, "ok"},
		{"all: one bad", both(of(0), of(1)), []string{good, badA}, fails},
		{"or missing: nothing", either(of(0), missed), nil, "ok"},
		{"or missing: good", either(of(0), missed), []string{good}, "ok"},
		{"or missing: forged is not missing", either(of(0), missed), []string{bad}, fails},
		{"or missing: expired", either(of(0), missed), []string{old}, expires},
		{"or missing: an unknown issuer", either(of(0), missed), []string{unknown}, issuer},
		{"or missing: no token at all", either(of(0), missed), []string{bearer("junk")}, "401 " + badFormat.text()},
		{"or missing: an empty one", either(of(0), missed), []string{"authorization: Bearer "}, "401 " + badFormat.text()},
		{"or missing: elsewhere", either(of(0), missed), []string{inA}, "ok"},
		{"missing first", either(missed, of(0)), []string{bad}, fails},
		{"or failed: forged", either(of(0), failed), []string{bad}, "ok"},
		{"or failed wins over missing", either(missed, failed, of(0)), []string{bad}, "ok"},
		{"all of what may be missing", both(either(of(0), missed), either(of(1), missed)), nil, "ok"},
		{"but not bad", both(either(of(0), missed), either(of(1), missed)), []string{bad}, fails},
		{"missing alone: nothing", missed, nil, "ok"},
		{"missing alone: any provider's", missed, []string{inA}, "ok"},
		{"missing alone: forged", missed, []string{bad}, fails},
		{"missing alone: of nobody", missed, []string{unknown}, issuer},
		{"failed alone", failed, []string{bad}, "ok"},
		{"permissions only", either(missed, missed), []string{bad}, fails},
		{"other audiences", config.JWTRequirement{Provider: 2, Audiences: []string{"z"}}, []string{bearer(hs(`{"iss":"i","aud":"z"}`))}, "ok"},
		{"instead of the provider's", config.JWTRequirement{Provider: 2, Audiences: []string{"z"}}, []string{bearer(hs(`{"iss":"i","aud":"r"}`))}, audience},
		{"nothing required", both(), nil, "ok"},
	} {
		if got := request(filterOf(c.need, p, q, r), "/", c.lines...).outcome(); got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestRulesAndRoutes(t *testing.T) {
	need := of(0)
	policy := &config.JWT{Providers: []config.JWTProvider{trusting("i")}, BypassPreflight: true,
		Rules: []config.JWTRule{
			{Match: config.RouteMatch{Kind: config.PathExact, Path: "/free"}},
			{Match: config.RouteMatch{Path: "/q", Query: []config.QueryMatch{{Name: "k"}}}, Requires: &need},
			{Match: config.RouteMatch{Path: "/h", Headers: []config.HeaderMatch{{Name: "x-h", Present: true}}}, Requires: &need},
			{Match: config.RouteMatch{Path: "/p"}, Requires: &need}},
		Requirements: map[string]*config.JWTRequirement{"strict": &need, "b": &need}}
	f := New(policy)
	on := func(r config.JWTRoute) *Filter { return f.ForRoute(&r).(*Filter) }
	const none = "401 Jwt is missing"
	for _, c := range []struct {
		rule string
		f    *Filter
		path string
		want string
	}{
		{"a rule that asks for nothing", f, "/free?k", "ok"},
		{"no rule", f, "/other", "ok"},
		{"a prefix", f, "/path", none},
		{"a parameter", f, "/q?k=1", none},
		{"without it", f, "/q", "ok"},
		{"a header that isn't there", f, "/h", "ok"},
		{"a route without", on(config.JWTRoute{Disabled: true}), "/path", "ok"},
		{"a route with another requirement", on(config.JWTRoute{Requirement: "strict"}), "/free", none},
		{"a route with an unknown one", on(config.JWTRoute{Requirement: "nobody"}), "/free",
			"403 Failed JWT authentication: Wrong requirement_name: nobody. It should be one of [b,strict]"},
	} {
		if got := request(c.f, c.path).outcome(); got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
	for origin, want := range map[string]string{"o": "ok", "": none} {
		a := request(f, "/path", "origin: "+origin, "access-control-request-method: GET")
		a.x.Request.SetMethod([]byte("OPTIONS"))
		if got := a.outcome(); got != want {
			t.Errorf("a preflight of origin %q: %s", origin, got)
		}
	}
}
