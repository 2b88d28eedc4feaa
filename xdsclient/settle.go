package xdsclient

import (
	"maps"

	"sluice/xdsclient/link"
)

// settle notes that endpoints have answered for every cluster that takes them
// from one of these assignments.
func (c *Client) settle(assignments map[string]bool) {
	for a := range assignments {
		for _, name := range c.usersOf(a) {
			if x := c.cluster(name); x != nil {
				c.accepted.Settled[link.EndpointsOf(x)] = true
			}
		}
	}
}

// settleRefused ends the wait for what a response brought and isn't taken, as
// Envoy does: who names it enters without, or with the last good one, and runs
// better when a good one comes. named is all that the response speaks of.
func (c *Client) settleRefused(k *kindState, named map[string]bool, good []decoded, whole bool) {
	if k.kind.wildcard() || whole && len(named) == len(good) {
		return
	}
	bad := maps.Clone(named)
	if whole {
		for _, d := range good {
			delete(bad, d.name)
		}
	}
	if bad[""] { // without a name it may be any of those asked for
		bad = k.names
	}
	for name := range bad {
		if k.names[name] {
			c.settleName(k.kind, name)
		}
	}
}

func (c *Client) settleName(k kind, name string) {
	switch k {
	case eds:
		c.settle(map[string]bool{name: true})
	case rds:
		c.accepted.Settled[link.Part{Kind: link.KindRoutes, Name: name}] = true
	case sds:
		c.accepted.Settled[link.Part{Kind: link.KindSecrets, Name: name}] = true
	case ecds:
		c.accepted.Settled[link.Part{Kind: link.KindExtensions, Name: name}] = true
	}
}

// refused counts secrets that came by other ways than ADS and can't be used, and
// ends the wait for them.
func (c *Client) refused(names ...string) {
	more := false
	for _, name := range names {
		c.count("sds."+name+".update_rejected", 1)
		p := link.Part{Kind: link.KindSecrets, Name: name}
		more = more || !c.accepted.Settled[p]
		c.accepted.Settled[p] = true
	}
	if more {
		c.relink()
		c.flush()
	}
}
