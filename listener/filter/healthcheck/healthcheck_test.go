package healthcheck

import (
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/upstream/call"
)

// terminal notes the reply of a filter and has clusters of 2 hosts, one of which is
// available, and of none.
type terminal struct{ reply *filter.Reply }

func (t *terminal) Reply(r filter.Reply)                          { t.reply = &r }
func (t *terminal) Resume()                                       {}
func (t *terminal) ClearRoute()                                   {}
func (t *terminal) Call(*call.Request, func(*call.Answer)) func() { return nil }
func (t *terminal) Cluster(string) *config.Cluster                { return nil }
func (t *terminal) Members(cluster string) (available, total int, ok bool) {
	switch cluster {
	case "half":
		return 1, 2, true
	case "empty":
		return 0, 0, true
	}
	return 0, 0, false
}

func TestHealthChecks(t *testing.T) {
	needs := func(cluster string, percent uint32) []config.MinHealthy {
		return []config.MinHealthy{{Cluster: cluster, Percent: config.Percent{PerMillion: percent * 10_000}}}
	}
	for _, c := range []struct {
		rule    string
		policy  config.HealthCheckFilter
		path    string
		failing bool
		want    string // details, "": goes on
	}{
		{"another request", config.HealthCheckFilter{}, "/x", true, ""},
		{"answered", config.HealthCheckFilter{}, "/healthz", false, "health_check_ok"},
		{"answered when failing", config.HealthCheckFilter{}, "/healthz", true, "health_check_failed"},
		{"passed through", config.HealthCheckFilter{PassThrough: true}, "/healthz", false, ""},
		{"not when failing", config.HealthCheckFilter{PassThrough: true}, "/healthz", true, "health_check_failed"},
		{"cluster well", config.HealthCheckFilter{Clusters: needs("half", 50)}, "/healthz", false, "health_check_ok_cluster_healthy"},
		{"cluster not well", config.HealthCheckFilter{Clusters: needs("half", 51)}, "/healthz", false, "health_check_failed_cluster_unhealthy"},
		{"cluster empty", config.HealthCheckFilter{Clusters: needs("empty", 1)}, "/healthz", false, "health_check_failed_cluster_empty"},
		{"cluster that may be empty", config.HealthCheckFilter{Clusters: needs("empty", 0)}, "/healthz", false, "health_check_ok_cluster_healthy"},
		{"no cluster", config.HealthCheckFilter{Clusters: needs("none", 0)}, "/healthz", false, "health_check_failed_no_cluster_found"},
	} {
		c.policy.Headers = []config.HeaderMatch{{Name: ":path", String: &config.StringMatch{Value: "/healthz"}}}
		f, term, s := New(&c.policy, "node", func() bool { return c.failing }), &terminal{}, &filter.Slot{}
		x := &filter.Exchange{Request: &httpmsg.Head{}, Response: &httpmsg.Head{}, Record: &telemetry.Record{}, End: true}
		x.Bind(term)
		x.Request.SetPath([]byte(c.path))
		got := ""
		if f.Decode(x, s) == filter.Stop {
			got = term.reply.Details
			if (term.reply.Status == 503) != (term.reply.Flag == telemetry.LH) {
				t.Errorf("%s: status %d, flag %v", c.rule, term.reply.Status, term.reply.Flag)
			}
		}
		f.Encode(x, s)
		node, _ := x.Response.Value("x-envoy-upstream-healthchecked-cluster")
		if check := c.path == "/healthz"; got != c.want || x.Record.HealthCheck != check || (string(node) == "node") != check ||
			x.Response.Has(httpmsg.XEnvoyImmediateHealthCheckFail) != c.failing {
			t.Errorf("%s: %q, want %q; answer of %q", c.rule, got, c.want, node)
		}
	}
}
