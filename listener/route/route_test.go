package route

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

func head(method, authority, path string, kv ...string) *httpmsg.Head {
	h := &httpmsg.Head{}
	h.SetMethod([]byte(method))
	h.SetAuthority([]byte(authority))
	h.SetPath([]byte(path))
	for i := 0; i+1 < len(kv); i += 2 {
		h.Add([]byte(kv[i]), []byte(kv[i+1]))
	}
	return h
}

func prefix(p, name string) *config.Route {
	return &config.Route{Name: name, Match: config.RouteMatch{Path: p}, Action: &config.RouteAction{Cluster: name}, RetryBufferLimit: -1}
}

func TestDomainsPrecedence(t *testing.T) {
	vh := func(name string, domains ...string) *config.VirtualHost {
		return &config.VirtualHost{Name: name, Domains: domains, Routes: []*config.Route{prefix("/", name)}}
	}
	tab := Compile(&config.RouteConfiguration{IgnorePortInHost: true, VirtualHosts: []*config.VirtualHost{
		vh("any", "*"), vh("suffix", "*.example.com"), vh("longer", "*.a.example.com"), vh("exact", "x.a.example.com"), vh("prefix", "pre.*"),
	}})
	for _, c := range []struct{ host, want string }{
		{"x.a.example.com", "exact"}, {"X.A.Example.COM:8080", "exact"}, {"y.a.example.com", "longer"}, {"y.example.com", "suffix"},
		{".example.com", "any"}, {"pre.x", "prefix"}, {"pre.", "any"}, {"other", "any"}, {"[::1]:80", "any"}, {"x.a.example.com:", "exact"},
	} {
		q := Request{Head: head("GET", c.host, "/")}
		r, _ := tab.Match(&q)
		if r == nil || r.Config.Name != c.want {
			t.Errorf("%s: got %v, want %s", c.host, r, c.want)
		}
	}
}

func TestHeaderMatcherOnAbsentHeader(t *testing.T) {
	str := &config.StringMatch{Value: "v"}
	for _, c := range []struct {
		name string
		m    config.HeaderMatch
		want bool
	}{
		{"inverted value matcher does not match what is absent", config.HeaderMatch{Name: "x", String: str, Invert: true}, false},
		{"missing as empty, inverted", config.HeaderMatch{Name: "x", String: str, Invert: true, TreatMissingAsEmpty: true}, true},
		{"absent", config.HeaderMatch{Name: "x", Absent: true}, true},
		{"not absent", config.HeaderMatch{Name: "x", Absent: true, Invert: true}, false},
		{"not present", config.HeaderMatch{Name: "x", Present: true, Invert: true}, true},
		{"present or missing", config.HeaderMatch{Name: "x", Present: true, TreatMissingAsEmpty: true}, true},
		{"range", config.HeaderMatch{Name: "x", Range: &[2]int64{1, 2}, Invert: true}, false},
	} {
		q := Request{Head: head("GET", "h", "/")}
		if got := q.HeaderMatches(&c.m); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestRepeatedHeaderMatchesJoined(t *testing.T) {
	q := Request{Head: head("GET", "h", "/", "x", "a", "x", "b")}
	if !q.HeaderMatches(&config.HeaderMatch{Name: "x", String: &config.StringMatch{Value: "a,b"}}) {
		t.Error("a,b does not match")
	}
}

func TestQueryNamesAreDecodedValuesAreNot(t *testing.T) {
	for _, c := range []struct {
		query, name, value string
		want               bool
	}{
		{"a%20b=1", "a b", "1", false}, {"a=x%20y", "a", "x y", false}, {"a=x%20y", "a", "x%20y", true}, {"a=w&a=v", "a", "v", false},
		{"&&a=v", "a", "v", true}, {"A=v", "a", "v", false}, {"a", "a", "", true}, {"b;a=v", "a", "v", false},
	} {
		got := queryMatches(&config.QueryMatch{Name: c.name, String: &config.StringMatch{Value: c.value}}, []byte(c.query))
		if got != c.want {
			t.Errorf("%s: %v", c.query, got)
		}
	}
}

func TestLocation(t *testing.T) {
	for _, c := range []struct {
		name, host, path string
		kind             config.PathKind
		match            string
		d                config.Redirect
		want             string
	}{
		{"host", "svc:8080", "/host/x?q=1", config.PathPrefix, "/host", config.Redirect{Host: "other.test"}, "http://other.test/host/x?q=1"},
		{"path keeps the query", "svc", "/p?q=1", config.PathExact, "/p", config.Redirect{Path: "/n"}, "http://svc/n?q=1"},
		{"path with its own query", "svc", "/p?q=1", config.PathExact, "/p", config.Redirect{Path: "/n?own=1"}, "http://svc/n?own=1"},
		{"strip", "svc", "/p?q=1", config.PathExact, "/p", config.Redirect{Path: "/n", StripQuery: true}, "http://svc/n"},
		{"prefix", "svc", "/pfxtail?q", config.PathPrefix, "/pfx", config.Redirect{PrefixRewrite: "/xyz"}, "http://svc/xyztail?q"},
		{"separated", "svc", "/sep/x", config.PathSeparated, "/sep", config.Redirect{PrefixRewrite: "/"}, "http://svc//x"},
		{"https drops 80", "svc:80", "/h", config.PathExact, "/h", config.Redirect{HTTPS: true}, "https://svc/h"},
		{"https keeps 8080", "svc:8080", "/h", config.PathExact, "/h", config.Redirect{HTTPS: true}, "https://svc:8080/h"},
		{"new port", "[fd00::1]:8080", "/h", config.PathExact, "/h", config.Redirect{Port: 8443}, "http://[fd00::1]:8443/h"},
		{"full URL is a path", "svc", "/h", config.PathExact, "/h", config.Redirect{Path: "https://x.test/y"}, "http://svc/https://x.test/y"},
	} {
		r := &Route{Config: &config.Route{Match: config.RouteMatch{Kind: c.kind, Path: c.match}, Redirect: &c.d}}
		if got := string(r.Location(nil, head("GET", c.host, c.path), false)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestMutationsOverwriteBeforeTheyAdd(t *testing.T) {
	lit := func(s string) *config.Format { return &config.Format{Items: []config.FormatItem{{Text: s}}} }
	m := compileMutations([]config.HeaderMutation{
		{Name: "x", Value: lit("added")}, {Name: "x", Value: lit("over"), Action: config.OverwriteOrAdd},
		{Name: "y", Value: lit(""), Action: config.OverwriteOrAdd}, {Name: "z", Value: lit("1"), Action: config.AddIfAbsent}, {Remove: "gone"},
	})
	h := head("GET", "h", "/", "x", "old", "y", "kept", "z", "0", "gone", "1")
	m.Apply(h, nil, &Scratch{})
	var got []string
	for i := range h.Len() {
		if _, k, v, ok := h.Field(i); ok {
			got = append(got, string(k)+"="+string(v))
		}
	}
	if s := strings.Join(got, " "); s != "y=kept z=0 x=over x=added" {
		t.Error(s)
	}
}

// slow is the obvious matcher: domains by kind and length, then routes in order.
func slow(c *config.RouteConfiguration, q *Request) *config.Route {
	host := strings.ToLower(string(q.Head.Authority()))
	var best *config.VirtualHost
	rank := -1
	for _, v := range c.VirtualHosts {
		for _, d := range v.Domains {
			score := -1
			switch {
			case d == "*":
				score = 0
			case strings.HasPrefix(d, "*"):
				if strings.HasSuffix(host, d[1:]) && len(host) > len(d)-1 {
					score = 10000 + len(d)
				}
			case strings.HasSuffix(d, "*"):
				if strings.HasPrefix(host, d[:len(d)-1]) && len(host) > len(d)-1 {
					score = 1000 + len(d)
				}
			case d == host:
				score = 100000
			}
			if score > rank {
				best, rank = v, score
			}
		}
	}
	if best == nil {
		return nil
	}
	path, query := SplitPath(q.Head.Path())
	for _, r := range best.Routes {
		one := &Route{Config: r}
		if one.pathMatches(q, path) && one.restMatches(q, query) {
			return r
		}
	}
	return nil
}

func randomConfig(rnd *rand.Rand) *config.RouteConfiguration {
	c := &config.RouteConfiguration{}
	seen := map[string]bool{}
	segs := []string{"", "a", "b", "ab", "abc", "A"}
	for i := range 4 {
		v := &config.VirtualHost{Name: fmt.Sprint(i)}
		for range 2 {
			d := []string{"*", "a.b", "*.b", "*b", "a.*", "a*", "x.a.b", "*.a.b"}[rnd.IntN(8)]
			if !seen[d] {
				seen[d] = true
				v.Domains = append(v.Domains, d)
			}
		}
		for j := range 4 + rnd.IntN(20) {
			r := prefix("/"+segs[rnd.IntN(6)]+[]string{"", "/", "/c"}[rnd.IntN(3)], fmt.Sprintf("%d-%d", i, j))
			r.Match.Kind = []config.PathKind{config.PathPrefix, config.PathExact, config.PathSeparated, config.PathRegex}[rnd.IntN(4)]
			if r.Match.Kind == config.PathRegex {
				r.Match.Regex = regexp.MustCompile("^(?:" + r.Match.Path + "[a-c]?)$")
			}
			r.Match.IgnoreCase = rnd.IntN(5) == 0
			if rnd.IntN(3) == 0 {
				r.Match.Headers = []config.HeaderMatch{{Name: "k", String: &config.StringMatch{Value: "1"}}}
			}
			v.Routes = append(v.Routes, r)
		}
		c.VirtualHosts = append(c.VirtualHosts, v)
	}
	return c
}

func checkAgainstSlow(t *testing.T, seed uint64, authority, path, value string) {
	t.Helper()
	c := randomConfig(rand.New(rand.NewPCG(seed, 1)))
	q := Request{Head: head("GET", authority, path, "k", value)}
	got, _ := Compile(c).Match(&q)
	want := slow(c, &q)
	switch {
	case got == nil && want == nil:
	case got == nil || want == nil || got.Config != want:
		t.Fatalf("seed %d %s %s: table and slow matcher disagree: %v, %v", seed, authority, path, got, want)
	}
}

func TestMatchAgreesWithSlowMatcher(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for i := range 4000 {
		host := []string{"a.b", "x.a.b", "b", ".b", "ab", "a.x", "A.B", "zz"}[rnd.IntN(8)]
		path := "/" + []string{"", "a", "ab/", "abc/c", "b/c?x", "A", "a/b"}[rnd.IntN(7)]
		checkAgainstSlow(t, uint64(i%50), host, path, fmt.Sprint(rnd.IntN(2)))
	}
}

func FuzzMatch(f *testing.F) {
	f.Add(uint64(1), "a.b", "/a/c?q", "1")
	f.Fuzz(func(t *testing.T, seed uint64, authority, path, value string) {
		checkAgainstSlow(t, seed%200, authority, path, value)
	})
}

func TestMatchDoesNotAllocate(t *testing.T) {
	tab := Compile(randomConfig(rand.New(rand.NewPCG(3, 1))))
	q := Request{Head: head("GET", "X.A.b", "/abc/c?a=b", "k", "1", "k", "2")}
	tab.Match(&q)
	if n := testing.AllocsPerRun(200, func() { tab.Match(&q) }); n != 0 {
		t.Fatalf("%v allocations a match, want 0", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	tab := Compile(randomConfig(rand.New(rand.NewPCG(3, 1))))
	q := Request{Head: head("GET", "x.a.b", "/abc/c?a=b", "k", "1")}
	b.ReportAllocs()
	for b.Loop() {
		tab.Match(&q)
	}
}
