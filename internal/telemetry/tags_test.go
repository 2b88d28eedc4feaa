package telemetry

import (
	"fmt"
	"regexp"
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
