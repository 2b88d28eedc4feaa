package rbac

import "sluice/internal/config"

// keyCounts says how many conditions of all alternatives each key stands for.
type keyCounts map[key]int

// count adds the conditions that alternatives can be found by.
func (n keyCounts) count(list []config.RBACExpr) {
	for i := range list {
		e := &list[i]
		if e.Op == config.RBACAnd || e.Op == config.RBACOr {
			n.count(e.Sub)
		} else if k, ok := keyOf(e); ok {
			n[k]++
		}
	}
}

// of gives keys of which one holds whenever e matches; ok is false if there are
// none to tell by. No keys, and ok, is what never matches.
func (n keyCounts) of(e *config.RBACExpr) (keys []key, ok bool) {
	switch e.Op {
	case config.RBACAnd:
		return n.ofAll(e.Sub)
	case config.RBACOr:
		return n.ofAny(e.Sub)
	case config.RBACFilterState: // nobody sets it: it never matches
		return nil, true
	}
	k, ok := keyOf(e)
	return []key{k}, ok
}

// ofAny needs keys of every alternative.
func (n keyCounts) ofAny(list []config.RBACExpr) (keys []key, ok bool) {
	if len(list) == 1 {
		return n.of(&list[0])
	}
	for i := range list {
		more, ok := n.of(&list[i])
		if !ok {
			return nil, false
		}
		keys = append(keys, more...)
	}
	return keys, true
}

// ofAll takes the keys of the condition that tells most.
func (n keyCounts) ofAll(list []config.RBACExpr) (keys []key, ok bool) {
	for i := range list {
		if more, found := n.of(&list[i]); found && (!ok || n.better(more, keys)) {
			keys, ok = more, true
		}
	}
	return keys, ok
}

// better says whether a leads to fewer alternatives than b: its most common key is
// rarer. What must be equal tells more than what must begin with something.
func (n keyCounts) better(a, b []key) bool {
	commonA, looseA := n.worst(a)
	commonB, looseB := n.worst(b)
	if commonA != commonB {
		return commonA < commonB
	}
	if looseA != looseB {
		return looseB
	}
	return len(a) < len(b)
}

func (n keyCounts) worst(keys []key) (common int, loose bool) {
	for i := range keys {
		common = max(common, n[keys[i]])
		loose = loose || keys[i].kind != config.MatchExact
	}
	return common, loose
}
