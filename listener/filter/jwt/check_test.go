package jwt

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

func TestClaimsAsHeaders(t *testing.T) {
	for _, c := range []struct{ rule, claim, want string }{
		{"text", `"a"`, "a"}, {"a number", "7", "7"}, {"of 64 bits", "1e19", "10000000000000000000"}, {"a larger one", "1e20", "100000000000000000000.000000"},
		{"a negative one", "-1", "-1.000000"}, {"zero", "-0.0", "0"}, {"a fraction", "1.5", "1.500000"}, {"a truth", "true", "true"},
		{"nothing", "null", ""}, {"empty text", `""`, ""}, {"a list", `["a",1,1.5,null,true,1e21,0.000001]`, "WyJhIiwxLDEuNSxudWxsLHRydWUsMWUrMjEsMWUtMDZd"},
		{"an object", `{"b":1,"a":[]}`, "eyJhIjpbXSwiYiI6MX0="}, {"an empty one", "{}", "e30="}, {"other letters", `"é"`, "é"}, {"a tab", `"a\tb"`, "a\tb"},
	} {
		p := trusting("i")
		p.Claims = []config.ClaimHeader{{Header: "x-c", Path: []string{"v"}}, {Header: "x-deep", Path: []string{"w", "k"}}, {Header: "x-none", Path: []string{"v", "k", "z"}}}
		a := request(filterOf(of(0), p), "/", bearer(hs(`{"iss":"i","w":{"k":"deep"},"v":`+c.claim+`}`)), "x-c: forged", "x-none: forged")
		if got := a.outcome(); got != "ok" {
			t.Fatalf("%s: %s", c.rule, got)
		}
		v, there := a.x.Request.Value("x-c")
		deep, _ := a.x.Request.Value("x-deep")
		if _, left := a.x.Request.Value("x-none"); string(v) != c.want || there != (c.want != "") || string(deep) != "deep" || left {
			t.Errorf("%s: %q (%v), %q, x-none there: %v", c.rule, v, there, deep, left)
		}
	}
}

func TestAClaimIsNoHeaderLine(t *testing.T) {
	for _, claim := range []string{`a\nx: y`, `a\r`, `a\u0000`, `\u007f`, `\u001f`} {
		p := trusting("i")
		p.Claims = []config.ClaimHeader{{Header: "x-c", Path: []string{"v"}}}
		a := request(filterOf(of(0), p), "/", bearer(hs(`{"iss":"i","v":"`+claim+`"}`)))
		if got := a.outcome(); got != "503 invalid header value for: x-c" || a.term.reply.Flag != telemetry.DPE {
			t.Errorf("%s: %s", claim, got)
		}
		if _, there := a.x.Request.Value("x-c"); there {
			t.Errorf("%s is in the request", claim)
		}
	}
}

func TestForgedHeadersNeverPass(t *testing.T) {
	p := trusting("i")
	p.PayloadHeader = "x-p"
	need := group(config.JWTAny, of(0), group(config.JWTAllowMissing))
	f := New(&config.JWT{Providers: []config.JWTProvider{p}, BypassPreflight: true,
		Rules: []config.JWTRule{{Match: config.RouteMatch{Path: "/a"}, Requires: &need}}})
	for rule, g := range map[string]*Filter{"by rule": f, "switched off": f.ForRoute(&config.JWTRoute{Disabled: true}).(*Filter)} {
		for _, path := range []string{"/a", "/no-rule"} {
			a := request(g, path, "x-p: forged", "x-p: twice")
			if got := a.outcome(); got != "ok" {
				t.Fatal(got)
			}
			if _, left := a.x.Request.Value("x-p"); left {
				t.Errorf("%s, %s: the client's own x-p passed", rule, path)
			}
		}
	}
}

func TestMetadata(t *testing.T) {
	p := trusting("i")
	p.PayloadKey, p.HeaderKey, p.FailureKey, p.SpaceDelimited = "pay", "head", "why", []string{"scope", "n", "none"}
	for _, c := range []struct{ rule, token, want string }{
		{"what the token says", hs(`{"iss":"i","num":7,"deep":{"l":[1]}}`), `{"head":{"alg":"HS256"},"pay":{"deep":{"l":[1]},"iss":"i","num":7}}`},
		{"a list in one string", hs(`{"iss":"i","scope":" a b  c","n":5}`), `{"head":{"alg":"HS256"},"pay":{"iss":"i","n":5,"scope":["a","b","c"]}}`},
		{"an empty one stays", hs(`{"iss":"i","scope":""}`), `{"head":{"alg":"HS256"},"pay":{"iss":"i","scope":""}}`},
		{"why it failed", forged(`{"iss":"i"}`), `{"why":{"code":26,"message":"Jwt verification fails"}}`},
		{"no payload of what is not verified", hs(`{"iss":"i","exp":5}`), `{"why":{"code":3,"message":"Jwt is expired"}}`},
	} {
		a := request(filterOf(of(0), p), "/", bearer(c.token))
		a.outcome()
		var want map[string]any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if got := plain(a.x.Record.Dynamic[metadataKey]); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", c.rule, got, want)
		}
	}
	if a := request(filterOf(of(0), p), "/"); a.outcome() == "ok" || a.x.Record.Dynamic != nil {
		t.Error("metadata of a token that isn't there")
	}
}

func plain(s config.Struct) map[string]any {
	var out map[string]any
	if err := json.Unmarshal(telemetry.AppendValue(nil, s), &out); err != nil {
		panic(err)
	}
	return out
}

func TestRefusals(t *testing.T) {
	need, long := of(0), "/"+strings.Repeat("y", 400)
	for _, c := range []struct {
		rule, path, want string
		lines            []string
		strip            bool
	}{
		{"missing", "/x?q=1", `Bearer realm="http://svc/x?q=1"`, nil, false},
		{"invalid", "/x", `Bearer realm="http://svc/x", error="invalid_token"`, []string{bearer("a.b.c")}, false},
		{"a long path", long, `Bearer realm="http://svc` + long[:256] + `"`, nil, false},
		{"the path before it was rewritten", "/x", `Bearer realm="http://svc/first"`, []string{"x-envoy-original-path: /first"}, false},
		{"nothing said", "/x", "", nil, true},
	} {
		f := New(&config.JWT{Providers: []config.JWTProvider{trusting("i")}, StripFailure: c.strip, StatPrefix: "foo",
			Rules: []config.JWTRule{{Match: config.RouteMatch{Path: "/"}, Requires: &need}}})
		a := request(f, c.path, c.lines...)
		a.outcome()
		h := &httpmsg.Head{}
		if a.term.reply.Headers != nil {
			a.term.reply.Headers(h)
		}
		v, _ := h.Value("www-authenticate")
		if string(v) != c.want || (a.term.reply.Body == "") != c.strip || !strings.HasPrefix(a.term.reply.Details, "jwt_authn_access_denied{Jw") {
			t.Errorf("%s: %s, %+v", c.rule, v, a.term.reply)
		}
		if n := a.x.Stats.Adjust("jwt_authn.foo.denied", 0); n != 1 {
			t.Errorf("%s: denied %d", c.rule, n)
		}
	}
}

func TestRemoteKeys(t *testing.T) {
	set := []byte(`{"keys":[{"kty":"oct","k":"` + b64(ring().hmac) + `"}]}`)
	p := trusting("i")
	p.Keys, p.Remote, p.ClearRoute = nil, &config.RemoteJWKS{Cluster: "c", Host: "h", Path: "/k", Timeout: time.Second, Cache: time.Minute}, true
	f := filterOf(of(0), p)
	line := bearer(hs(`{"iss":"i"}`))
	start := func() *ask {
		a := request(f, "/", line)
		if got := a.outcome(); got != "parked" {
			t.Fatalf("%s, want it parked", got)
		}
		return a
	}
	for _, bad := range []struct {
		code int
		body string
	}{{0, ""}, {500, string(set)}, {204, ""}, {200, "junk"}} {
		a := start()
		a.term.answer(bad.code, []byte(bad.body))
		if a.term.resumed || a.term.reply == nil || a.term.reply.Body != "Jwks remote fetch is failed" || a.term.reply.Status != 401 {
			t.Errorf("%v: %+v", bad, a.term)
		}
	}
	gone := start()
	f.Done(gone.x, &gone.slot)
	if gone.term.cancels != 1 {
		t.Error("the fetch of a request that is over goes on")
	}
	a := start()
	a.term.answer(200, set)
	if !a.term.resumed || a.term.reply != nil || !a.term.rerouted || a.x.Stats.Adjust("jwt_authn.jwks_fetch_success", 0) != 1 {
		t.Errorf("%+v", a.term)
	}
	if f.Done(a.x, &a.slot); a.term.cancels != 0 {
		t.Error("a fetch that is over was cancelled")
	}
	b := request(f, "/", line)
	if got := b.outcome(); got != "ok" || len(b.term.asked) != 0 {
		t.Errorf("%s with keys that are there, fetches %v", got, b.term.asked)
	}
	late := request(f, "/", line)
	late.x.Record.Wall = late.x.Record.Wall.Add(time.Minute)
	if got := late.outcome(); got != "parked" {
		t.Errorf("%s with keys of a minute ago", got)
	}
	if n := request(f, "/"); n.outcome() != "401 Jwt is missing" || len(n.term.asked) != 0 {
		t.Error("keys are fetched for no token")
	}
	at := request(filterOf(of(0), p), "/", line)
	at.term.at = func(done func(int, []byte)) { done(200, set) }
	if got := at.outcome(); got != "ok" || at.term.resumed {
		t.Errorf("%s when the answer is there at once", got)
	}
}

var _ filter.Routed = (*Filter)(nil)
