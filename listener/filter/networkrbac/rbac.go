// Package networkrbac is envoy.filters.network.rbac: whether a connection of a
// TCP chain may go on. It decides once, at the client's first bytes or its FIN,
// by what the connection is; attributes of HTTP requests match nothing here.
// listener builds it for chains whose terminal isn't HTTP.
package networkrbac

import (
	"strings"

	"sluice/internal/config"
	"sluice/listener/downstream"
	"sluice/listener/filter/rbac"
)

// metadataKey is where shadow results go in dynamic metadata.
const metadataKey = "envoy.filters.network.rbac"

// Filter decides by one policy. It is immutable.
type Filter struct {
	policy        *config.RBAC
	rules, shadow *rbac.Rules
	count         func(stat string)
	// Names of statistics, joined once.
	allowed, denied, shadowAllowed, shadowDenied string
}

// New makes the filter. count is given the full name of each statistic that
// goes up, on the worker; nil: nobody counts.
func New(p *config.RBAC, count func(stat string)) *Filter {
	if count == nil {
		count = func(string) {}
	}
	base, shadow := p.StatPrefix+"rbac.", p.ShadowStatPrefix
	if shadow != "" && !strings.HasSuffix(shadow, ".") {
		shadow += "."
	}
	return &Filter{policy: p, rules: rbac.Compile(p.Rules), shadow: rbac.Compile(p.Shadow), count: count, allowed: base + "allowed", denied: base + "denied",
		shadowAllowed: base + shadow + "shadow_allowed", shadowDenied: base + shadow + "shadow_denied"}
}

// Stats are the full names of its statistics.
func (f *Filter) Stats() []string {
	return []string{f.allowed, f.denied, f.shadowAllowed, f.shadowDenied}
}

// Early is the filter for a chain whose later filters go by what shadow rules say
// before there are bytes: these are asked at once.
func (f *Filter) Early() downstream.Filter { return early{f} }

type early struct{ *Filter }

// Admit implements downstream.Filter.
func (e early) Admit(c *downstream.Connection, next func()) downstream.Admission {
	if e.shadow == nil || e.rules != nil {
		return e.Filter.Admit(c, next)
	}
	e.decide(c)
	return downstream.Pass
}

// Admit implements downstream.Filter: the word is given at the first bytes.
func (f *Filter) Admit(c *downstream.Connection, _ func()) downstream.Admission {
	c.AddGuard(f.decide)
	return downstream.Pass
}

func (f *Filter) decide(c *downstream.Connection) bool {
	s := rbac.Subject{Conn: c, Remote: c.Src, Dynamic: c.Notes().Dynamic}
	if f.shadow != nil {
		ok, policy := f.shadow.Evaluate(&s)
		f.noteShadow(c, ok, policy)
	}
	if f.rules == nil {
		return true
	}
	ok, policy := f.rules.Evaluate(&s)
	if ok {
		f.count(f.allowed)
		return true
	}
	f.count(f.denied)
	if policy == "" {
		policy = "none"
	}
	c.Note().Termination = "rbac_access_denied_matched_policy[" + policy + "]"
	return false
}

func (f *Filter) noteShadow(c *downstream.Connection, ok bool, policy string) {
	stat, result := f.shadowDenied, "denied"
	if ok {
		stat, result = f.shadowAllowed, "allowed"
	}
	f.count(stat)
	d := &c.Note().Dynamic
	if policy != "" {
		d.Set(metadataKey, f.policy.ShadowStatPrefix+"shadow_effective_policy_id", policy)
	}
	d.Set(metadataKey, f.policy.ShadowStatPrefix+"shadow_engine_result", result)
}
