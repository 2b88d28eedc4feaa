package rbac

import (
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/downstream"
)

// tenantRules want a header's value each; the last policy takes any request.
func tenantRules(n int) *config.RBACRules {
	r := &config.RBACRules{}
	for i := range n {
		p := header("x-tenant", exact(fmt.Sprintf("tenant-%04d", i)))
		if i == n-1 {
			p = anyExpr
		}
		r.Policies = append(r.Policies, policy(fmt.Sprintf("policy-%04d", i), p, anyExpr))
	}
	return r
}

// istioRules are what istiod makes of one rule for each service account: methods,
// paths and a port.
func istioRules(n int) *config.RBACRules {
	r := &config.RBACRules{}
	for i := range n {
		permission := and(or(header(":method", exact("GET")), header(":method", exact("POST"))), or(path(kind(config.MatchPrefix, "/api/"))), or(port(8080, 8081)))
		account := exact(fmt.Sprintf("spiffe://cluster.local/ns/demo/sa/client-%d", i))
		r.Policies = append(r.Policies, policy(fmt.Sprintf("ns[demo]-policy[allow]-rule[%d]", i), permission, and(or(principal(account)))))
	}
	return r
}

// pathRules are one rule for each of many paths.
func pathRules(n int) *config.RBACRules {
	r := &config.RBACRules{}
	for i := range n {
		p := kind(config.MatchPrefix, fmt.Sprintf("/api/thing-%d/", i))
		if i == n-1 {
			p.Value = "/api/things"
		}
		r.Policies = append(r.Policies, policy(fmt.Sprintf("ns[demo]-policy[allow]-rule[%d]", i), and(or(path(p))), and(anyExpr)))
	}
	return r
}

// namespaceRules are one rule for each namespace; the last is the caller's.
func namespaceRules(n int) *config.RBACRules {
	r := &config.RBACRules{}
	for i := range n {
		name := fmt.Sprintf("team-%d", i)
		if i == n-1 {
			name = "demo"
		}
		r.Policies = append(r.Policies, policy(fmt.Sprintf("ns[demo]-policy[allow]-rule[%d]", i), and(anyExpr), and(or(principal(regex(".*/ns/"+name+"/.*"))))))
	}
	return r
}

// oneRule is for n service accounts at once.
func oneRule(n int) *config.RBACRules {
	account := or()
	for i := range n {
		account.Sub = append(account.Sub, principal(exact(fmt.Sprintf("spiffe://cluster.local/ns/demo/sa/client-%d", i))))
	}
	return &config.RBACRules{Policies: []config.RBACPolicy{policy("ns[demo]-policy[allow]-rule[0]", and(anyExpr), and(account))}}
}

// caller is a GET of /api/things by service account i.
func caller(i int) *Subject {
	h := &httpmsg.Head{}
	h.SetMethod([]byte("GET"))
	h.SetPath([]byte("/api/things?id=7"))
	h.SetAuthority([]byte("b.demo.svc.cluster.local"))
	for _, f := range [][2]string{{"user-agent", "python-requests/2.32.3"}, {"accept", "*/*"}, {"x-request-id", "6a9ab3f2-b8a4-4c5a-9f4b-0a6b5c4d3e2f"}, {"x-forwarded-proto", "http"}} {
		h.Add([]byte(f[0]), []byte(f[1]))
	}
	from := netip.MustParseAddrPort("10.1.1.1:5")
	return &Subject{Head: h, Remote: from, Scratch: new([]byte), Conn: &downstream.Connection{Src: from, Dst: netip.MustParseAddrPort("10.2.2.2:8080"), SNI: "b.demo",
		TLS: &downstream.TLS{PeerURIs: []string{fmt.Sprintf("spiffe://cluster.local/ns/demo/sa/client-%d", i)}, PeerDNS: []string{"client.demo"}, PeerSubject: "CN=client"}}}
}

// BenchmarkEvaluate is of requests that the last policy or account allows.
func BenchmarkEvaluate(b *testing.B) {
	for _, shape := range []struct {
		name  string
		rules func(n int) *config.RBACRules
	}{{"tenant", tenantRules}, {"istio", istioRules}, {"path", pathRules}, {"namespace", namespaceRules}, {"one", oneRule}} {
		for _, n := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", shape.name, n), func(b *testing.B) {
				r, s := Compile(shape.rules(n)), caller(n-1)
				b.ReportAllocs()
				for b.Loop() {
					if ok, _ := r.Evaluate(s); !ok {
						b.Fatal("denied")
					}
				}
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	rules := istioRules(1000)
	b.ReportAllocs()
	for b.Loop() {
		Compile(rules)
	}
}
