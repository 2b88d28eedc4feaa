package rbac

import "sluice/internal/config"

// Rules are compiled rules. They are immutable and safe for all workers.
type Rules struct {
	action   config.RBACAction
	names    []string  // of the policies
	policies condition // one of them
}

// Compile makes the Rules of r; nil has none.
func Compile(r *config.RBACRules) *Rules {
	if r == nil {
		return nil
	}
	return compile(r, indexCost)
}

func compile(r *config.RBACRules, indexFrom int) *Rules {
	c := &Rules{action: r.Action, names: make([]string, len(r.Policies))}
	all, parts := make([]config.RBACExpr, len(r.Policies)), make([]config.RBACExpr, 2*len(r.Policies))
	for i := range r.Policies {
		p, both := &r.Policies[i], parts[2*i:2*i+2]
		both[0] = config.RBACExpr{Op: config.RBACOr, Sub: p.Permissions}
		both[1] = config.RBACExpr{Op: config.RBACOr, Sub: p.Principals}
		c.names[i], all[i] = p.Name, config.RBACExpr{Op: config.RBACAnd, Sub: both}
	}
	c.policies = condition{sub: newConditions(all, indexFrom), index: indexOf(all, indexFrom)}
	return c
}

// Evaluate gives the decision and the policy that matched ("" if none did). The
// first policy that matches decides; policies are in the order of their names.
func (r *Rules) Evaluate(s *Subject) (ok bool, policy string) {
	if i := r.policies.first(s); i >= 0 {
		policy = r.names[i]
	}
	switch r.action {
	case config.RBACAllow:
		return policy != "", policy
	case config.RBACDeny:
		return policy == "", policy
	}
	return true, policy
}
