package rbac

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	"sluice/internal/config"
)

var anyExpr = config.RBACExpr{Op: config.RBACAny}

func group(op config.RBACOp, sub ...config.RBACExpr) config.RBACExpr {
	return config.RBACExpr{Op: op, Sub: sub}
}

func and(sub ...config.RBACExpr) config.RBACExpr { return group(config.RBACAnd, sub...) }
func or(sub ...config.RBACExpr) config.RBACExpr  { return group(config.RBACOr, sub...) }
func not(e config.RBACExpr) config.RBACExpr      { return group(config.RBACNot, e) }

func exact(v string) *config.StringMatch  { return &config.StringMatch{Value: v} }
func folded(v string) *config.StringMatch { return &config.StringMatch{Value: v, IgnoreCase: true} }
func kind(k config.StringKind, v string) *config.StringMatch {
	return &config.StringMatch{Kind: k, Value: v}
}

func regex(p string) *config.StringMatch {
	return &config.StringMatch{Kind: config.MatchRegex, Regex: regexp.MustCompile("^(?:" + p + ")$")}
}

func header(name string, m *config.StringMatch) config.RBACExpr {
	return config.RBACExpr{Op: config.RBACHeader, Header: &config.HeaderMatch{Name: name, String: m}}
}

func path(m *config.StringMatch) config.RBACExpr {
	return config.RBACExpr{Op: config.RBACURLPath, String: m}
}

func principal(m *config.StringMatch) config.RBACExpr {
	return config.RBACExpr{Op: config.RBACAuthenticated, String: m}
}

func port(from, to uint32) config.RBACExpr {
	return config.RBACExpr{Op: config.RBACDestPortRange, Ports: [2]uint32{from, to}}
}

func address(op config.RBACOp, prefix string) config.RBACExpr {
	return config.RBACExpr{Op: op, Prefix: netip.MustParsePrefix(prefix)}
}

func policy(name string, permission, principal config.RBACExpr) config.RBACPolicy {
	return config.RBACPolicy{Name: name, Permissions: []config.RBACExpr{permission}, Principals: []config.RBACExpr{principal}}
}

func TestOnlyWhatCanMatchIsLookedAt(t *testing.T) {
	absent, account := header("x-none", exact("v")), principal(exact("spiffe://cluster.local/ns/demo/sa/client-7"))
	inverted := header("x-none", exact("v"))
	inverted.Header.Invert = true
	present := config.RBACExpr{Op: config.RBACHeader, Header: &config.HeaderMatch{Name: "x-none", Present: true}}
	number := config.RBACExpr{Op: config.RBACHeader, Header: &config.HeaderMatch{Name: "x-none", Range: &[2]int64{1, 2}}}
	for _, c := range []struct {
		name string
		e    config.RBACExpr
		want bool
	}{
		{"a header with another value", header("x-team", exact("green")), false},
		{"a header that is missing", absent, false},
		{"a header, by its second value", header("x-team", exact("Blue")), true},
		{"a header in another case", header("x-team", exact("blue")), false},
		{"a header whose case doesn't matter", header("x-team", folded("blue")), true},
		{"a header that may be empty, or missing", header("x-none", exact("")), true},
		{"an inverted match", inverted, true},
		{"presence", present, true},
		{"a number", number, true},
		{"a method", header(":method", exact("GET")), true},
		{"another method", header(":method", exact("POST")), false},
		{"a host", header("host", exact("b.demo.svc.cluster.local")), true},
		{"another host", header(":authority", folded("c.demo")), false},
		{"the path without its query", path(exact("/api/things")), true},
		{"the path with its query", path(exact("/api/things?id=7")), false},
		{"how the path begins", path(kind(config.MatchPrefix, "/api/")), true},
		{"how another path begins", path(kind(config.MatchPrefix, "/apis")), false},
		{"how the path ends", path(kind(config.MatchSuffix, "/things")), true},
		{"how a longer path ends", path(kind(config.MatchSuffix, "/a/very/much/longer/path/than/it/is")), false},
		{"what the path contains", path(kind(config.MatchContains, "none")), true},
		{"a regular expression", path(regex("[a-z]one.?")), true},
		{"a regular expression that begins otherwise", path(regex("/none/.*")), false},
		{"a regular expression that ends otherwise", path(regex(".*/none")), false},
		{"a regular expression that begins so", path(regex("/api/[a-z]*")), true},
		{"a regular expression in any case", path(regex("(?i)/none/.*")), true},
		{"a template", config.RBACExpr{Op: config.RBACURITemplate, String: regex("/none/[a-z]*")}, false},
		{"the caller's account", account, true},
		{"another account", principal(exact("spiffe://cluster.local/ns/demo/sa/client-8")), false},
		{"the caller's namespace", principal(kind(config.MatchPrefix, "spiffe://cluster.local/ns/demo/")), true},
		{"another namespace", principal(kind(config.MatchPrefix, "spiffe://cluster.local/ns/other/")), false},
		{"the caller's namespace as istiod puts it", principal(regex(".*/ns/demo/.*")), true},
		{"another namespace as istiod puts it", principal(regex(".*/ns/dem/.*")), false},
		{"an account of another namespace as istiod puts it", principal(regex("spiffe://.+/ns/other/(.+/|)sa/c(/.+)?")), false},
		{"an account with its namespace, of any domain", principal(regex(".*/ns/demo/sa/client-7")), true},
		{"another account of any domain", principal(regex("spiffe://.*/sa/d")), false},
		{"a name of the certificate", principal(exact("client.demo")), true},
		{"the certificate's subject", principal(exact("CN=client")), true},
		{"an account whose case doesn't matter", principal(folded("none")), true},
		{"anyone who has an account", principal(nil), true},
		{"the port", port(8080, 8081), true},
		{"another port", port(8081, 8082), false},
		{"a range of ports", port(1, 3), true},
		{"the server name", config.RBACExpr{Op: config.RBACServerName, String: exact("b.demo")}, true},
		{"another server name", config.RBACExpr{Op: config.RBACServerName, String: exact("c.demo")}, false},
		{"the client's address", address(config.RBACRemoteIP, "10.1.1.1/32"), true},
		{"another client's address", address(config.RBACRemoteIP, "10.1.1.2/32"), false},
		{"the peer's network", address(config.RBACDirectRemoteIP, "10.1.0.0/16"), true},
		{"another network", address(config.RBACSourceIP, "10.2.0.0/16"), false},
		{"a network that ends within a byte, by the bytes before", address(config.RBACDestIP, "10.2.240.0/20"), true},
		{"another network that ends within a byte", address(config.RBACDestIP, "10.3.240.0/20"), false},
		{"an address of the sixth version", address(config.RBACDestIP, "fd00::1/128"), false},
		{"all addresses", address(config.RBACDestIP, "0.0.0.0/0"), true},
		{"metadata", config.RBACExpr{Op: config.RBACMetadata, Metadata: &config.MetadataMatch{}}, true},
		{"anything", anyExpr, true},
		{"what isn't so", not(account), true},
		{"several of which one isn't so", and(anyExpr, absent, not(absent)), false},
		{"several that are so", and(header(":method", exact("GET")), account), true},
		{"alternatives none of which is so", or(absent, path(exact("/none"))), false},
		{"alternatives one of which is so", or(absent, account), true},
		{"alternatives one of which can't be told", or(absent, anyExpr), true},
		{"an account or filter state", or(principal(exact("none")), config.RBACExpr{Op: config.RBACFilterState}), false},
		{"no alternative at all", or(), false},
	} {
		s := caller(7)
		s.Head.Add([]byte("x-team"), []byte("red"))
		s.Head.Add([]byte("x-team"), []byte("Blue"))
		var l candidates
		got := true
		if x := newIndex([]config.RBACExpr{c.e}); x != nil {
			x.find(s, &l)
			_, got = l.next()
		}
		if got != c.want {
			t.Errorf("%s: looked at: %v", c.name, got)
		}
	}
}

// rest counts the candidates.
func (c *candidates) rest() (n int) {
	for _, ok := c.next(); ok; _, ok = c.next() {
		n++
	}
	return n
}

func TestTheRarestConditionFindsAPolicy(t *testing.T) {
	var accounts, paths []config.RBACExpr
	for i := range 100 {
		name, at := exact(fmt.Sprintf("spiffe://cluster.local/ns/demo/sa/client-%d", i)), kind(config.MatchPrefix, fmt.Sprintf("/api/thing%d", i))
		accounts = append(accounts, and(path(kind(config.MatchPrefix, "/api/")), port(8080, 8081), principal(name)))
		paths = append(paths, and(principal(exact("spiffe://cluster.local/ns/demo/sa/client-7")), port(8080, 8081), path(at)))
	}
	s := caller(7)
	s.Head.SetPath([]byte("/api/thing21"))
	for name, list := range map[string][]config.RBACExpr{"accounts": accounts, "paths": paths} {
		var l candidates
		newIndex(list).find(s, &l)
		if n := l.rest(); n == 0 || n > 2 { // thing2 and thing21
			t.Errorf("%s: %d candidates", name, n)
		}
	}
}

func TestTheFirstPolicyThatMatchesDecides(t *testing.T) {
	get, account := header(":method", exact("GET")), principal(exact("spiffe://cluster.local/ns/demo/sa/client-7"))
	never := path(regex("no[a-z]e"))
	other := []config.RBACPolicy{policy("other", never, anyExpr)}
	for range 10 {
		other = append(other, policy("other", path(exact("/other")), anyExpr))
	}
	for _, c := range []struct {
		name string
		list []config.RBACPolicy
		want string
	}{
		{"of two that keys find", []config.RBACPolicy{policy("1", get, anyExpr), policy("2", anyExpr, account)}, "1"},
		{"a key's before one that is always looked at", []config.RBACPolicy{policy("1", get, anyExpr), policy("2", anyExpr, anyExpr)}, "1"},
		{"one that is always looked at before a key's", []config.RBACPolicy{policy("1", anyExpr, anyExpr), policy("2", get, anyExpr)}, "1"},
		{"not one whose other conditions fail", []config.RBACPolicy{policy("1", get, never), policy("2", anyExpr, account)}, "2"},
		{"whatever its name is", []config.RBACPolicy{policy("z", get, anyExpr), policy("a", get, anyExpr)}, "z"},
		{"none", nil, ""},
	} {
		r := Compile(&config.RBACRules{Policies: append(other, c.list...)})
		if r.policies.index == nil {
			t.Fatalf("%s: no index", c.name)
		}
		if ok, got := r.Evaluate(caller(7)); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %v %q, want %q", c.name, ok, got, c.want)
		}
	}
}

// TestTooManyValuesAreReadThrough has more lists than can be merged, and a policy
// that only the last of them leads to.
func TestTooManyValuesAreReadThrough(t *testing.T) {
	r, s := &config.RBACRules{}, caller(7)
	for i := range 2 * maxLists {
		v := fmt.Sprint("team-", i)
		r.Policies = append(r.Policies, policy(v, header("x-team", exact(v)), port(8000, 8001)))
		s.Head.Add([]byte("x-team"), []byte(v))
	}
	r.Policies[2*maxLists-1].Principals[0] = anyExpr
	if ok, got := Compile(r).Evaluate(s); !ok || got != "team-31" {
		t.Errorf("%v %q", ok, got)
	}
}

// TestConnectionsAreFoundToo has no request and no headers to look up.
func TestConnectionsAreFoundToo(t *testing.T) {
	r, s := &config.RBACRules{}, caller(7)
	for i := range 20 {
		account := principal(exact(fmt.Sprintf("spiffe://cluster.local/ns/demo/sa/client-%d", i)))
		r.Policies = append(r.Policies, policy(fmt.Sprint(i, " http"), path(exact("/api/things")), account), policy(fmt.Sprint(i), port(8080, 8081), account))
	}
	s.Head, s.Scratch = nil, nil
	if ok, got := Compile(r).Evaluate(s); !ok || got != "7" {
		t.Errorf("%v %q", ok, got)
	}
	s.Conn.TLS = nil
	if ok, got := Compile(r).Evaluate(s); ok {
		t.Errorf("without TLS: %q", got)
	}
}

func TestEvaluateDoesNotAllocate(t *testing.T) {
	s := caller(7)
	s.Head.Add([]byte("x-team"), []byte("Blue"))
	rules := istioRules(20)
	for i := range 4 {
		v := fmt.Sprint("none", i)
		for _, e := range []config.RBACExpr{header("x-team", folded(v)), header(":method", exact(v)), path(kind(config.MatchSuffix, v)), port(uint32(i), uint32(i)+1),
			{Op: config.RBACServerName, String: exact(v)}, address(config.RBACRemoteIP, "10.9.9.9/32"), address(config.RBACDestIP, "10.9.9.9/32"),
			address(config.RBACSourceIP, "10.9.9.9/32")} {
			rules.Policies = append(rules.Policies, policy(v, e, anyExpr))
		}
	}
	r := Compile(rules)
	if n := testing.AllocsPerRun(200, func() { r.Evaluate(s) }); n != 0 {
		t.Errorf("%v allocations a request, want 0", n)
	}
}
