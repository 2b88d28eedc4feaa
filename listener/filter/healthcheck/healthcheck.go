// Package healthcheck is envoy.filters.http.health_check: it answers health checks
// for the process, or lets them through to the application until the process is
// told to fail. It checks no host; upstream does that.
package healthcheck

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct {
	policy  *config.HealthCheckFilter
	cluster []byte
	failing func() bool
}

// New makes the filter. cluster is the node's, failing says that the process is
// told to fail its health checks; nil: never.
func New(p *config.HealthCheckFilter, cluster string, failing func() bool) *Filter {
	if failing == nil {
		failing = func() bool { return false }
	}
	return &Filter{p, []byte(cluster), failing}
}

// The slot's first number says that the request is a health check.
const check = 0

// maxContent bounds what a health check may send before it is answered, bytes.
const maxContent = 1 << 20

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	for i := range f.policy.Headers {
		if !route.HeaderMatches(&f.policy.Headers[i], x.Request, &x.Scratch) {
			return filter.Continue
		}
	}
	s.N[check] = 1
	x.Record.HealthCheck = true
	if f.policy.PassThrough && !f.failing() {
		return filter.Continue
	}
	if !x.End && !x.Whole {
		x.Limit = maxContent
		return filter.Gather
	}
	r := filter.Reply{Status: 200, GRPC: -1, Flag: telemetry.FlagNone}
	if r.Details = f.judge(x); r.Details != ok && r.Details != okClusters {
		r.Status, r.Flag = 503, telemetry.LH
	}
	x.Reply(r)
	return filter.Stop
}

// The details of answers that say yes.
const (
	ok         = "health_check_ok"
	okClusters = "health_check_ok_cluster_healthy"
)

// judge gives the details of the answer: how the process is, and the clusters it
// depends on.
func (f *Filter) judge(x *filter.Exchange) string {
	if f.failing() {
		return "health_check_failed"
	}
	details := ok
	for i := range f.policy.Clusters {
		c := &f.policy.Clusters[i]
		available, total, known := x.Members(c.Cluster)
		switch {
		case !known:
			return "health_check_failed_no_cluster_found"
		case total == 0 && c.Percent.PerMillion > 0:
			return "health_check_failed_cluster_empty"
		case uint64(available)*1_000_000 < uint64(total)*uint64(c.Percent.PerMillion):
			return "health_check_failed_cluster_unhealthy"
		}
		details = okClusters
	}
	return details
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(x *filter.Exchange, s *filter.Slot) {
	if s.N[check] != 0 {
		x.Response.DelName("x-envoy-upstream-healthchecked-cluster")
		x.Response.AddName("x-envoy-upstream-healthchecked-cluster", f.cluster)
	}
	if f.failing() {
		x.Response.SetString(httpmsg.XEnvoyImmediateHealthCheckFail, "true")
	}
}
