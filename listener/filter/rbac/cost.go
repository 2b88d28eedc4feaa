package rbac

import "sluice/internal/config"

// indexCost is what reading through alternatives must cost for an index to be
// quicker. The unit is a comparison with a string, some 5 ns.
const indexCost = 12

// indexOf makes the index of alternatives that are worth one.
func indexOf(list []config.RBACExpr, from int) *index {
	if len(list) < 2 || costOf(list) < from {
		return nil
	}
	return newIndex(list)
}

func costOf(list []config.RBACExpr) (sum int) {
	for i := range list {
		sum += cost(&list[i])
	}
	return sum
}

func cost(e *config.RBACExpr) int {
	m := e.String
	if e.Op == config.RBACHeader {
		m = e.Header.String
	}
	switch {
	case m != nil && m.Kind == config.MatchRegex:
		return 100
	case e.Op == config.RBACHeader:
		return 3 // it is looked for first
	case e.Op == config.RBACAnd, e.Op == config.RBACOr, e.Op == config.RBACNot:
		return costOf(e.Sub)
	}
	return 1
}
