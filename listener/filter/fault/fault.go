// Package fault is the HTTP fault filter: it delays or aborts a share of the
// requests, for tests of what depends on them. It limits no response rate.
package fault

import (
	"strconv"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct{ policy *config.Fault }

// New makes the filter.
func New(p *config.Fault) *Filter { return &Filter{policy: p} }

// The slot's first number says that the request counts as an active fault.
const active = 0

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	p := f.policy
	if !f.applies(x) {
		return filter.Continue
	}
	d, ok := f.delay(x)
	if !ok {
		return f.abort(x, s)
	}
	if !f.admit(x, s) {
		return filter.Continue
	}
	x.Stats.Touch("fault.faults_overflow")
	x.Record.Flags.Set(telemetry.DI)
	if !p.NoStats {
		x.Stats.Inc("fault.delays_injected")
	}
	s.Timer.Fire = func() {
		if f.abort(x, s) == filter.Continue {
			x.Resume()
		}
	}
	x.Worker.Start(&s.Timer, d)
	return filter.Park
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(*filter.Exchange, *filter.Slot) {}

// Done implements filter.Destroyer.
func (f *Filter) Done(x *filter.Exchange, s *filter.Slot) {
	if s.N[active] != 0 {
		x.Stats.Adjust("fault.active_faults", -1)
	}
}

// applies reports whether the request is one of those the policy is about.
func (f *Filter) applies(x *filter.Exchange) bool {
	p := f.policy
	if p.UpstreamCluster != "" && (x.Route == nil || x.Route.Action == nil || x.Route.Action.Cluster != p.UpstreamCluster) {
		return false
	}
	for i := range p.Headers {
		if !route.HeaderMatches(&p.Headers[i], x.Request, &x.Scratch) {
			return false
		}
	}
	if len(p.DownstreamNodes) == 0 {
		return true
	}
	node := x.Request.Get(httpmsg.XEnvoyDownstreamServiceNode)
	for _, n := range p.DownstreamNodes {
		if string(node) == n {
			return true
		}
	}
	return false
}

// admit counts the request as an active fault, unless there are too many.
func (f *Filter) admit(x *filter.Exchange, s *filter.Slot) bool {
	if s.N[active] != 0 {
		return true
	}
	if m := f.policy.MaxActive; m > 0 && x.Stats.Adjust("fault.active_faults", 0) >= uint64(m) {
		x.Stats.Inc("fault.faults_overflow")
		return false
	}
	s.N[active] = 1
	x.Stats.Adjust("fault.active_faults", 1)
	return true
}

func (f *Filter) delay(x *filter.Exchange) (time.Duration, bool) {
	c := f.policy.Delay
	if c == nil {
		return 0, false
	}
	if !c.FromHeader {
		return c.Fixed, c.Fixed > 0 && hit(x, c.Percent, nil)
	}
	n, ok := number(x, "x-envoy-fault-delay-request")
	if !ok {
		return 0, false
	}
	share, _ := x.Request.Value("x-envoy-fault-delay-request-percentage")
	return time.Duration(n) * time.Millisecond, n > 0 && hit(x, c.Percent, share)
}

func (f *Filter) abort(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	status, grpc, ok := f.abortStatus(x)
	if !ok || !f.admit(x, s) {
		return filter.Continue
	}
	if !f.policy.NoStats {
		x.Stats.Inc("fault.aborts_injected")
	}
	x.Reply(filter.Reply{Status: status, Body: "fault filter abort", Details: "fault_filter_abort", Flag: telemetry.FI, GRPC: grpc})
	return filter.Stop
}

func (f *Filter) abortStatus(x *filter.Exchange) (status, grpc int, ok bool) {
	c := f.policy.Abort
	if c == nil {
		return 0, 0, false
	}
	if !c.FromHeader {
		if c.GRPCStatus >= 0 && c.HTTPStatus == 0 {
			return 200, c.GRPCStatus, hit(x, c.Percent, nil)
		}
		return c.HTTPStatus, -1, hit(x, c.Percent, nil)
	}
	share, _ := x.Request.Value("x-envoy-fault-abort-request-percentage")
	if n, found := number(x, "x-envoy-fault-abort-grpc-request"); found {
		return 200, n, hit(x, c.Percent, share)
	}
	n, found := number(x, "x-envoy-fault-abort-request")
	return n, -1, found && n >= 200 && n < 600 && hit(x, c.Percent, share)
}

func number(x *filter.Exchange, name string) (int, bool) {
	v, ok := x.Request.Value(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(string(v))
	return n, err == nil && n >= 0
}

// hit draws lots: share, a header's percentage, can only lower the policy's.
func hit(x *filter.Exchange, p config.Percent, share []byte) bool {
	if len(share) > 0 {
		if n, err := strconv.ParseUint(string(share), 10, 32); err == nil {
			p.PerMillion = uint32(min(uint64(p.PerMillion), n*10_000))
		}
	}
	return x.Chance(p)
}
