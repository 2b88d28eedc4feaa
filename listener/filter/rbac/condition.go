package rbac

import "sluice/internal/config"

// condition is an expression as it is evaluated. Where one of many alternatives
// is enough, an index finds those that a subject can match without a look at the
// others; nil: all are looked at.
type condition struct {
	*config.RBACExpr
	sub   []condition
	index *index
}

func newConditions(list []config.RBACExpr, indexFrom int) []condition {
	if len(list) == 0 {
		return nil
	}
	out := make([]condition, len(list))
	for i := range list {
		out[i] = newCondition(&list[i], indexFrom)
	}
	return out
}

// newCondition makes the condition of e. What has one member only is that member:
// istiod wraps everything twice.
func newCondition(e *config.RBACExpr, indexFrom int) condition {
	for (e.Op == config.RBACAnd || e.Op == config.RBACOr) && len(e.Sub) == 1 {
		e = &e.Sub[0]
	}
	c := condition{RBACExpr: e, sub: newConditions(e.Sub, indexFrom)}
	if e.Op == config.RBACOr {
		c.index = indexOf(e.Sub, indexFrom)
	}
	return c
}

// first gives the first alternative that matches, -1 if none does.
func (c *condition) first(s *Subject) int {
	if c.index != nil {
		var l candidates
		if c.index.find(s, &l) {
			return c.firstOf(&l, s)
		}
	}
	for i := range c.sub {
		if c.sub[i].match(s) {
			return i
		}
	}
	return -1
}

func (c *condition) firstOf(l *candidates, s *Subject) int {
	for i, ok := l.next(); ok; i, ok = l.next() {
		if c.sub[i].match(s) {
			return int(i)
		}
	}
	return -1
}

func (c *condition) all(s *Subject) bool {
	for i := range c.sub {
		if !c.sub[i].match(s) {
			return false
		}
	}
	return true
}
