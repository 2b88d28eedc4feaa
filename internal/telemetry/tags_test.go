package telemetry

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/config"
)

func TestTagsBecomeLabels(t *testing.T) {
	list := []config.StatsTag{{Name: "fixed.one", Fixed: "x"}}
	for _, x := range [][2]string{
		{"cluster_name", `^cluster(\.(.+);)`}, {"response_code", `_rq(_(\d{3}))$`}, {"response_code_class", `_rq(_(\dxx))$`},
		{"authz", `rbac(\.(allowed|denied))`}, {"whole", `^odd(\.[a-z]+)`},
	} {
		list = append(list, config.StatsTag{Name: x[0], Regex: regexp.MustCompile(x[1])})
	}
	for _, c := range []struct{ name, prom, want string }{
		{"cluster.xds-grpc;.upstream_cx_active", "envoy_cluster_x", "envoy_cluster_upstream_cx_active [{fixed_one x} {cluster_name xds-grpc}]"},
		{"cluster.outbound|80||a.b.svc;.upstream_rq_503", "envoy_x", "envoy_cluster_upstream_rq [{fixed_one x} {cluster_name outbound|80||a.b.svc} {response_code 503}]"},
		{"cluster.a;.upstream_rq_2xx", "envoy_x", "envoy_cluster_upstream_rq [{fixed_one x} {cluster_name a} {response_code_class 2xx}]"},
		{"http.in;.rbac.allowed", "envoy_x", "envoy_http_in__rbac [{fixed_one x} {authz allowed}]"},
		{"odd.one.two", "envoy_x", "envoy_odd_two [{fixed_one x} {whole .one}]"},
		{"istio_requests_total", "istio_requests_total", "istio_requests_total []"},
	} {
		tags := NewTags(list)
		for range 2 { // the second time from memory
			m := Metric{Name: c.name, Prom: c.prom}
			tags.apply(&m)
			if got := fmt.Sprint(m.Prom, " ", m.Labels); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
	}
}

// The order of a scrape is by dotted name, then by the labels that the tags gave.
// Each metric's key is made once: that of a large mesh took seconds.
func TestGatherSortsTaggedMetricsOnce(t *testing.T) {
	s := NewSet()
	for i := range 200 {
		s.Add("cluster", fmt.Sprintf("c%d;", (i*37)%200), []Stat{{Name: "b"}, {Name: "a"}})
	}
	r := &Registry{Tags: NewTags([]config.StatsTag{{Name: "cluster_name", Regex: regexp.MustCompile(`^cluster(\.(.+);)`)}})}
	r.Register(func(f func()) { f() }, s)
	list := r.Gather(t.Context())
	if len(list) != 400 || !slices.IsSortedFunc(list, func(a, b Metric) int { return strings.Compare(a.key(), b.key()) }) {
		t.Errorf("%d metrics, sorted otherwise", len(list))
	}
	if m := list[0]; m.Name != "cluster.c0;.a" || fmt.Sprint(m.Labels) != "[{cluster_name c0}]" {
		t.Errorf("first is %s %v", m.Name, m.Labels)
	}
	r.Gather(t.Context()) // the tags are from memory now: what is left are the keys
	if n := testing.AllocsPerRun(5, func() { r.Gather(t.Context()) }); n > 400*12 {
		t.Errorf("%v allocations for 400 metrics", n)
	}
}
