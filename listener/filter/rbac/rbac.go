package rbac

import (
	"strings"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

// metadataKey is where results go in dynamic metadata.
const metadataKey = "envoy.filters.http.rbac"

// Filter is envoy.filters.http.rbac for one policy; it is safe for all workers.
type Filter struct {
	policy        *config.RBAC
	rules, shadow *Rules
	// Names of statistics, joined once.
	allowed, denied, shadowAllowed, shadowDenied string
}

// New makes the filter.
func New(p *config.RBAC) *Filter {
	own, shadow := statPrefix(p.StatPrefix), statPrefix(p.ShadowStatPrefix)
	return &Filter{policy: p, rules: Compile(p.Rules), shadow: Compile(p.Shadow),
		allowed: own + "allowed", denied: own + "denied", shadowAllowed: shadow + "shadow_allowed", shadowDenied: shadow + "shadow_denied"}
}

// statPrefix ends in a dot, whatever the configured prefix ends in.
func statPrefix(p string) string {
	if p != "" && !strings.HasSuffix(p, ".") {
		p += "."
	}
	return "rbac." + p
}

// perRule counts the verdict of a policy by its name, where that is asked for.
func (f *Filter) perRule(x *filter.Exchange, prefix, policy, verdict string) {
	if f.policy.TrackPerRule && policy != "" {
		x.Stats.Inc(statPrefix(prefix) + "policy." + policy + "." + verdict)
	}
}

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	s := Subject{Conn: x.Conn, Head: x.Request, Remote: x.Record.Remote, Dynamic: x.Record.Dynamic, Scratch: &x.Scratch}
	for _, name := range []string{f.allowed, f.denied, f.shadowAllowed, f.shadowDenied} {
		x.Stats.Touch(name)
	}
	if f.shadow != nil {
		f.tell(x, &s)
	}
	if f.rules == nil {
		return filter.Continue
	}
	ok, policy := f.rules.Evaluate(&s)
	if f.policy.Rules.Action == config.RBACLog {
		x.Record.Dynamic.Set(metadataKey, "access_log_hint", policy != "")
		x.Stats.Inc(f.allowed)
		return filter.Continue
	}
	if policy != "" {
		x.Record.Dynamic.Set(metadataKey, f.policy.StatPrefix+"enforced_effective_policy_id", policy)
	}
	x.Record.Dynamic.Set(metadataKey, f.policy.StatPrefix+"enforced_engine_result", word(ok))
	if ok {
		x.Stats.Inc(f.allowed)
		f.perRule(x, f.policy.StatPrefix, policy, "allowed")
		return filter.Continue
	}
	x.Stats.Inc(f.denied)
	f.perRule(x, f.policy.StatPrefix, policy, "denied")
	if policy == "" {
		policy = "none"
	}
	x.Reply(filter.Reply{Status: 403, Body: "RBAC: access denied", Details: "rbac_access_denied_matched_policy[" + policy + "]", GRPC: -1, Flag: telemetry.FlagNone})
	return filter.Stop
}

// tell evaluates the shadow rules, which only report, for dry runs and for
// filters that come after.
func (f *Filter) tell(x *filter.Exchange, s *Subject) {
	ok, policy := f.shadow.Evaluate(s)
	if ok {
		x.Stats.Inc(f.shadowAllowed)
		f.perRule(x, f.policy.ShadowStatPrefix, policy, "shadow_allowed")
	} else {
		x.Stats.Inc(f.shadowDenied)
		f.perRule(x, f.policy.ShadowStatPrefix, policy, "shadow_denied")
	}
	if policy != "" {
		x.Record.Dynamic.Set(metadataKey, f.policy.ShadowStatPrefix+"shadow_effective_policy_id", policy)
	}
	x.Record.Dynamic.Set(metadataKey, f.policy.ShadowStatPrefix+"shadow_engine_result", word(ok))
}

func word(ok bool) string {
	if ok {
		return "allowed"
	}
	return "denied"
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(*filter.Exchange, *filter.Slot) {}
