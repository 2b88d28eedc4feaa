package budget

import (
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/downstream"
	"sluice/listener/filter"
	"sluice/listener/filter/istiostats"
	"sluice/listener/filter/rbac"
	"sluice/listener/route"
	"sluice/upstream/balance"
)

func parts(t *testing.T) []*work {
	return []*work{
		pure("route/host-of-1000", hostOf(t, 1000)),
		pure("route/last-of-1000", lastOf(t, 1000)),
		pure("rbac/last-of-1000", lastPolicyOf(t, 1000)),
		pure("balance/round-robin", pick(t, config.RoundRobin)),
		pure("balance/least-request", pick(t, config.LeastRequest)),
		pure("telemetry/istio-metrics", metrics()),
		logging(t),
	}
}

func getHead(authority, path string) *httpmsg.Head {
	h := &httpmsg.Head{}
	h.SetMethod([]byte("GET"))
	h.SetPath([]byte(path))
	h.SetAuthority([]byte(authority))
	fields(h, [2]string{"user-agent", "python-requests/2.32.3"}, [2]string{"accept", "*/*"}, [2]string{"x-request-id", "6a9ab3f2-b8a4-4c5a-9f4b-0a6b5c4d3e2f"})
	return h
}

func routeTo(prefix string) *config.Route {
	return &config.Route{Name: prefix, Match: config.RouteMatch{Path: prefix}, Action: &config.RouteAction{Cluster: "a"}, RetryBufferLimit: -1}
}

// match finds the route named want.
func match(t *testing.T, c *config.RouteConfiguration, h *httpmsg.Head, want string) func() {
	table, q := route.Compile(c), &route.Request{Head: h}
	return func() {
		if r, outcome := table.Match(q); outcome != route.Found || r.Config.Name != want {
			t.Fatal(outcome)
		}
	}
}

// hostOf looks up one of n virtual hosts, each with the names that istiod gives it.
func hostOf(t *testing.T, n int) func() {
	c := &config.RouteConfiguration{}
	for i := range n {
		name := fmt.Sprintf("service-%d.demo", i)
		c.VirtualHosts = append(c.VirtualHosts, &config.VirtualHost{Name: name, Routes: []*config.Route{routeTo("/")}, RetryBufferLimit: -1,
			Domains: []string{name, name + ".svc", name + ".svc.cluster.local", fmt.Sprintf("10.96.%d.%d", i/250, i%250)}})
	}
	return match(t, c, getHead("service-700.demo.svc.cluster.local", "/x"), "/")
}

// lastOf finds the last of n routes.
func lastOf(t *testing.T, n int) func() {
	v := &config.VirtualHost{Name: "v", Domains: []string{"*"}, RetryBufferLimit: -1}
	for i := range n - 1 {
		v.Routes = append(v.Routes, routeTo(fmt.Sprintf("/service-%d/", i)))
	}
	v.Routes = append(v.Routes, routeTo("/"))
	return match(t, &config.RouteConfiguration{VirtualHosts: []*config.VirtualHost{v}}, getHead("a", "/some/path?with=query"), "/")
}

// lastPolicyOf allows a request by the last of n policies; the others want a tenant each.
func lastPolicyOf(t *testing.T, n int) func() {
	rules, anyone := &config.RBACRules{}, []config.RBACExpr{{Op: config.RBACAny}}
	for i := range n - 1 {
		tenant := &config.HeaderMatch{Name: "x-tenant", String: &config.StringMatch{Value: fmt.Sprintf("tenant-%04d", i)}}
		rules.Policies = append(rules.Policies, config.RBACPolicy{Permissions: []config.RBACExpr{{Op: config.RBACHeader, Header: tenant}}, Principals: anyone})
	}
	rules.Policies = append(rules.Policies, config.RBACPolicy{Name: "last", Permissions: anyone, Principals: anyone})
	compiled, s := rbac.Compile(rules), &rbac.Subject{Conn: &downstream.Connection{}, Head: getHead("a", "/some/path?with=query"), Scratch: new([]byte)}
	return func() {
		if ok, policy := compiled.Evaluate(s); !ok || policy != "last" {
			t.Fatal(ok, policy)
		}
	}
}

func pick(t *testing.T, lb config.LBPolicy) func() {
	c := &config.Cluster{ClusterOptions: &config.ClusterOptions{LB: lb, LeastRequest: config.LeastRequestOptions{Choices: 2, Bias: 1}}}
	var hosts []*balance.Host
	for i := range 10 {
		hosts = append(hosts, &balance.Host{Index: i, Weight: 1, HashKey: fmt.Sprintf("10.244.1.%d:8080", i)})
	}
	set, q := balance.New(c, hosts, nil, 7), &balance.Query{}
	return func() {
		*q = balance.Query{}
		if set.Pick(q) == nil {
			t.Fatal("no host")
		}
	}
}

// record is of a finished request.
func record() *telemetry.Record {
	var answer httpmsg.Head
	answer.Status = 200
	fields(&answer, [2]string{"content-type", "application/json"}, [2]string{"x-envoy-upstream-service-time", "3"})
	return &telemetry.Record{Conn: &telemetry.Conn{ID: 7, Local: netip.MustParseAddrPort("10.96.0.12:80"), Remote: netip.MustParseAddrPort("10.244.1.12:41234")},
		Request: getHead("b.demo.svc.cluster.local", "/api/v1/things?id=7"), Response: &answer, Protocol: telemetry.HTTP11, Code: 200, Details: "via_upstream",
		Start: 1e9, End: 1e9 + 12e6, Wall: time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC), Route: "default", Cluster: "outbound|80||b.demo.svc.cluster.local",
		ClusterRaw: "outbound|80||b.demo.svc.cluster.local", UpstreamHost: "10.244.1.13:8080", BytesOut: 1024, DownWireIn: 300, DownWireOut: 1300, Attempts: 1,
		ClusterService: &telemetry.Service{Host: "b.demo.svc.cluster.local", Name: "b", Namespace: "demo"}, UpstreamLocal: netip.MustParseAddrPort("10.244.1.12:55555")}
}

// metrics counts a request in istio_requests_total and its histograms.
func metrics() func() {
	f := istiostats.New(&config.IstioStats{}, telemetry.NewNode(&config.Node{}, nil), config.Outbound)
	r := record()
	x := &filter.Exchange{Record: r, Request: r.Request, Set: telemetry.NewSet()}
	return func() { f.Log(x, nil) }
}

// logging writes a line in Istio's format, and hands it over in each batch.
func logging(t *testing.T) *work {
	m := bootstrap(t, "istio", "@nowhere").Static.Listeners[0].Chains[0].Filters[0].(*config.HTTPConnectionManager)
	files := telemetry.NewFiles(1, time.Hour, io.Discard, io.Discard)
	log, err := files.Compile(m.AccessLogs)
	if err != nil || log == nil {
		t.Fatal("no access log", err)
	}
	w, r := &telemetry.Writer{Format: telemetry.NewFormatter(nil)}, record()
	return &work{name: "telemetry/access-log", run: func(n int) time.Duration {
		began := time.Now()
		for range n {
			w.Emit(log, r)
		}
		files.Flush()
		return time.Since(began)
	}}
}
