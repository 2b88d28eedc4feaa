package upstream

import (
	"slices"

	"sluice/internal/config"
)

// A sidecar knows every cluster of the mesh and talks to few. A cluster that no
// worker has used yet is dormant: it has neither hosts nor limits nor a part on
// any worker, only its configuration. Get makes a worker's part at its first
// use, and from then on Apply keeps it up to date.

// wakeful says that a cluster can't be dormant: statistics, look-ups of names
// and the age of hosts begin with the cluster.
func (c *Clusters) wakeful(cfg *config.Cluster) bool {
	kept := len(c.opts.Sets) > 0 && (c.opts.Keep == nil || c.opts.Keep(cfg.Name))
	return kept || cfg.SlowStart != nil || cfg.Type != config.EDS && cfg.Type != config.Static
}

// named says that endpoints are host names to resolve.
func (sh *shared) named() bool {
	return sh.config.Type == config.StrictDNS || sh.config.Type == config.LogicalDNS
}

// enter puts sh in place of have (nil: none). The workers that have that one
// get sh; it is the caller who tells them.
func (c *Clusters) enter(sh, have *shared) *shared {
	switch {
	case have != nil:
		c.retire(have, sh)
	case c.wakeful(sh.config):
		c.awake(sh, c.locals)
		c.shared.Store(sh.name, sh)
	default:
		c.shared.Store(sh.name, sh)
	}
	return sh
}

// retire ends sh and puts next in its place (nil: nothing). It gives the workers
// that have a part of sh. Who finds sh later finds it gone and looks again.
func (c *Clusters) retire(sh, next *shared) []*Local {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.gone = true
	c.forget(sh.config)
	c.timed.Delete(sh)
	var users []*Local
	if sh.inUse != nil {
		users = sh.users
	}
	if next == nil {
		c.shared.Delete(sh.name)
		return users
	}
	if c.wakeful(next.config) {
		users = c.locals
	}
	if len(users) > 0 {
		c.awake(next, users)
	}
	c.shared.Store(next.name, next)
	return users
}

// awake gives a cluster its limits and outlier detection; hosts come with list.
// It holds sh.mu, or nobody else has sh yet.
func (c *Clusters) awake(sh *shared, users []*Local) {
	sh.inUse = &inUse{users: slices.Clip(users)}
	for i := range sh.breakers {
		b := sh.config.Breakers[i]
		if b == (config.Breaker{}) { // built by hand: Envoy's defaults
			b = config.Breaker{Connections: 1024, Pending: 1024, Requests: 1024, Retries: 3, Pools: config.Unlimited,
				PerHostConnections: config.Unlimited}
		}
		sh.breakers[i].Configure(&b)
	}
	if sh.config.Outlier != nil {
		sh.outlier = &outlier{config: sh.config.Outlier}
	}
	if sh.outlier != nil || sh.named() {
		c.timed.Store(sh, nil)
	}
}

// firstUse makes the worker's part of a cluster, nil when there is none of that
// name.
func (l *Local) firstUse(name string) *Cluster {
	for {
		x, ok := l.all.shared.Load(name)
		if !ok {
			return nil
		}
		sh := x.(*shared)
		hosts, weights, cfg := sh.join(l)
		if cfg != nil {
			l.set(name, sh, cfg, hosts, weights)
			if sh.outlier != nil {
				l.all.poke()
			}
			return l.clusters[name]
		}
		if again, _ := l.all.shared.Load(name); again == x {
			return nil // it is under way to this worker
		}
	}
}

// join makes l a user of sh and gives what it is to have; no configuration when
// sh is gone, or Apply has made l a user already.
func (sh *shared) join(l *Local) ([]*hostState, []uint32, *config.Cluster) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.gone || sh.inUse != nil && slices.Contains(sh.users, l) {
		return nil, nil, nil
	}
	if sh.inUse == nil {
		l.all.awake(sh, nil)
		sh.list()
	}
	sh.users = append(slices.Clip(sh.users), l)
	return sh.hosts, sh.weights, sh.config
}
