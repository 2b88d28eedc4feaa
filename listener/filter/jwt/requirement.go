package jwt

import "sluice/internal/config"

// node is a requirement, compiled.
type node struct {
	op        config.JWTOp
	provider  *provider
	audiences []string // nil: the provider's
	sub       []*node
	// Of config.JWTAny: what is said when all ways fail.
	allowMissing, allowFailed bool
}

func (c *common) compile(r *config.JWTRequirement) *node {
	if r == nil {
		return nil
	}
	n := &node{op: r.Op, audiences: bareAll(r.Audiences)}
	if r.Op == config.JWTOf {
		n.provider = c.providers[r.Provider]
	}
	for i := range r.Sub {
		n.add(c.compile(&r.Sub[i]))
	}
	if n.op == config.JWTAny && len(n.sub) == 0 { // nothing but permissions: the widest
		n.op = config.JWTAllowMissing
		if n.allowFailed {
			n.op = config.JWTAllowFailed
		}
	}
	return n
}

// add adds a way. What an alternative allows is a word about the others, as in
// Envoy: it looks at no token itself.
func (n *node) add(sub *node) {
	switch {
	case n.op == config.JWTAny && sub.op == config.JWTAllowMissing:
		n.allowMissing = true
	case n.op == config.JWTAny && sub.op == config.JWTAllowFailed:
		n.allowFailed = true
	default:
		n.sub = append(n.sub, sub)
	}
}

// run checks a requirement and then calls done. It may come back before that,
// when keys are fetched.
func (k *check) run(n *node, done func(status)) {
	switch n.op {
	case config.JWTAny:
		k.any(n, 0, missing, done)
	case config.JWTAll:
		k.all(n.sub, done)
	case config.JWTOf:
		k.tokens(n, n.provider.places, done)
	default:
		k.tokens(n, k.f.everywhere, done)
	}
}

func (k *check) all(list []*node, done func(status)) {
	if len(list) == 0 {
		done(ok)
		return
	}
	k.run(list[0], func(s status) {
		if s != ok {
			done(s)
			return
		}
		k.all(list[1:], done)
	})
}

// any tries the ways from i on; worst is what those before say.
func (k *check) any(n *node, i int, worst status, done func(status)) {
	if i == len(n.sub) {
		if n.allowFailed || n.allowMissing && worst == missing {
			worst = ok
		}
		done(worst)
		return
	}
	k.run(n.sub[i], func(s status) {
		if s == ok {
			done(ok)
			return
		}
		if s.tells() < worst.tells() {
			s = worst
		}
		k.any(n, i+1, s, done)
	})
}

// tokens checks all tokens of the places; each must be good.
func (k *check) tokens(n *node, at *places, done func(status)) {
	at.sanitize(k.x.Request)
	list := at.find(k.x)
	if len(list) == 0 {
		done(n.settled(missing))
		return
	}
	k.next(n, list, done)
}

// next checks the last of list and then those before it. A requirement that
// allows something looks at all of them, as in Envoy, and the first decides.
func (k *check) next(n *node, list []found, done func(status)) {
	last := len(list) - 1
	k.token(n, list[last], func(s status) {
		if last == 0 || s != ok && n.op == config.JWTOf {
			done(n.settled(s))
			return
		}
		k.next(n, list[:last], done)
	})
}

// settled is the outcome with what the requirement itself allows.
func (n *node) settled(s status) status {
	if n.op == config.JWTAllowFailed || n.op == config.JWTAllowMissing && s == missing {
		return ok
	}
	return s
}
