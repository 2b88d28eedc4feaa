package jwt

import (
	"strings"
	"testing"

	"sluice/internal/config"
)

// What Envoy 1.40 found in the same requests.
func TestPlaces(t *testing.T) {
	usual, own := trusting("i"), trusting("i")
	own.Headers, own.Params, own.Cookies = []config.JWTHeader{{Name: "x-a"}, {Name: "x-b", Prefix: "tok="}}, []string{"t"}, []string{"c"}
	good, bad := hs(`{"iss":"i"}`), forged(`{"iss":"i"}`)
	const none, fails = "401 Jwt is missing", "401 Jwt verification fails"
	form := "401 " + badFormat.text()
	for _, c := range []struct {
		rule  string
		p     config.JWTProvider
		path  string
		lines []string
		want  string
	}{
		{"behind the prefix", usual, "/", []string{bearer(good)}, "ok"},
		{"with more space", usual, "/", []string{"authorization: Bearer  " + good}, "ok"},
		{"in its case", usual, "/", []string{"authorization: bearer " + good}, none},
		{"of another scheme", usual, "/", []string{"authorization: Basic abc"}, none},
		{"without it", usual, "/", []string{"authorization: " + good}, none},
		{"wherever it is", usual, "/", []string{"authorization: Basic x,Bearer " + good}, "ok"},
		{"with something behind it", usual, "/", []string{bearer(good + ", x")}, "401 " + badSignatureBase64.text()},
		{"two in one line", usual, "/", []string{bearer(good + ",Bearer " + good)}, form},
		{"two lines are one", usual, "/", []string{bearer(good), bearer(good)}, form},
		{"a parameter", usual, "/?a=1&access_token=" + good, nil, "ok"},
		{"encoded", usual, "/?access_token=" + strings.ReplaceAll(good, ".", "%2E"), nil, "ok"},
		{"the first of two", usual, "/?access_token=" + good + "&access_token=" + bad, nil, "ok"},
		{"only the first", usual, "/?access_token=" + bad + "&access_token=" + good, nil, fails},
		{"an empty one is bad, not missing", usual, "/?access_token=", nil, form},
		{"nor without a value", usual, "/?access_token", nil, form},
		{"both places must be good", usual, "/?access_token=" + bad, []string{bearer(good)}, fails},
		{"either way", usual, "/?access_token=" + good, []string{bearer(bad)}, fails},
		{"and may be", usual, "/?access_token=" + good, []string{bearer(good)}, "ok"},
		{"a header as a whole", own, "/", []string{"x-a: " + good}, "ok"},
		{"each of its lines", own, "/", []string{"x-a: " + good, "x-a: " + good}, "ok"},
		{"must be good", own, "/", []string{"x-a: " + good, "x-a: " + bad}, fails},
		{"an empty one is bad", own, "/", []string{"x-a: "}, form},
		{"another prefix", own, "/", []string{"x-b: zz tok=" + good}, "ok"},
		{"which must be there", own, "/", []string{"x-b: " + good}, none},
		{"a cookie", own, "/", []string{"cookie: a=b; c=" + good}, "ok"},
		{"in quotes", own, "/", []string{`cookie: c="` + good + `"`}, "ok"},
		{"the first of two", own, "/", []string{"cookie: c=" + bad + "; c=" + good}, fails},
		{"the usual places are not its", own, "/?access_token=" + good, []string{bearer(good)}, none},
		{"a bad cookie beside a good header", own, "/", []string{"x-a: " + good, "cookie: c=" + bad}, fails},
	} {
		if got := request(filterOf(of(0), c.p), c.path, c.lines...).outcome(); got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestAPlaceIsForItsIssuers(t *testing.T) {
	p, q := trusting("i"), trusting("j")
	q.Headers, q.Params = []config.JWTHeader{{Name: "x-a"}}, nil
	f := filterOf(group(config.JWTAllowMissing), p, q)
	if got := request(f, "/", "x-a: "+hs(`{"iss":"i"}`)).outcome(); got != "401 Jwt issuer is not configured" {
		t.Errorf("i's token in j's place: %s", got)
	}
	anybody := trusting("")
	if got := request(filterOf(of(0), anybody), "/", bearer(hs(`{"iss":"x"}`))).outcome(); got != "ok" {
		t.Errorf("any issuer: %s", got)
	}
}

func TestTokensAreTakenOut(t *testing.T) {
	good := hs(`{"iss":"i"}`)
	for _, c := range []struct{ rule, path, line, wantPath, header string }{
		{"a header", "/x", bearer(good), "/x", "authorization"},
		{"a parameter", "/x?a=1&access_token=" + good + "&b=%20", "", "/x?a=1&b=%20", ""},
		{"the only one", "/x?access_token=" + good, "", "/x", ""},
		{"all of its name", "/x?access_token=" + good + "&access%5Ftoken=z&a", "", "/x?a", ""},
		{"the rest by name", "/x?b=1&c&access_token=" + good + "&a=2&a=1", "", "/x?a=2&a=1&b=1&c", ""},
	} {
		for _, forward := range []bool{false, true} {
			p := trusting("i")
			p.Forward = forward
			var lines []string
			if c.line != "" {
				lines = []string{c.line}
			}
			a := request(filterOf(of(0), p), c.path, lines...)
			if got := a.outcome(); got != "ok" {
				t.Fatalf("%s: %s", c.rule, got)
			}
			want := c.wantPath
			if forward {
				want = c.path
			}
			_, left := a.x.Request.Value("authorization")
			if got := string(a.x.Request.Path()); got != want || left != (forward && c.header != "") {
				t.Errorf("%s, forward %v: %s, the header there: %v", c.rule, forward, got, left)
			}
		}
	}
}
