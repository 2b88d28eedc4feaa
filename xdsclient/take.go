package xdsclient

import (
	"errors"
	"fmt"
	"slices"

	"sluice/internal/config"
	"sluice/xdsclient/link"
	"sluice/xdsclient/translate"
)

// decoded is a received resource with its translation.
type decoded struct {
	received
	value any // nil: the bytes are those in force
	hash  uint64
}

// take accepts what is good in a response and gives the text of the refusal, ""
// for none. A malformed resource refuses the whole response, one that can't be
// built only itself.
func (c *Client) take(k *kindState, a *answer) string {
	c.endpointsOnly = nil
	bad := refusals{kind: k.kind}
	good, named, whole := c.decode(k, a, &bad)
	c.settleRefused(k, named, good, whole)
	if !whole {
		return bad.String()
	}
	if k.kind == nds {
		c.takeNames(k, good, a)
		return bad.String()
	}
	answered := make(map[string]bool, len(good))
	for _, d := range good {
		if c.accept(k, d, a) {
			answered[d.name] = true
		}
	}
	c.remove(k, a, named, answered)
	if k.kind == eds {
		c.settle(answered)
		c.endpointsOnly = answered
	}
	return bad.String()
}

// decode translates each resource. whole is false when nothing of the response
// may be taken. named are the names the response speaks of.
func (c *Client) decode(k *kindState, a *answer, bad *refusals) (good []decoded, named map[string]bool, whole bool) {
	named = make(map[string]bool, len(a.resources))
	whole = true
	checks := c.checks(k, a)
	for _, r := range a.resources {
		d, err := c.decodeOne(k, r, a)
		if err == nil && named[d.name] {
			if k.kind != cds && k.kind != lds {
				continue // Envoy takes the first
			}
			err = &malformed{fmt.Errorf("duplicate %s found", d.name)}
		}
		named[d.name] = true
		if err == nil {
			err = checks(d)
		}
		if err == nil {
			good = append(good, d)
			continue
		}
		bad.add(d.name, err)
		if isMalformed(err) {
			whole = false
			continue
		}
		version := r.version
		if a.full {
			version = a.version
		}
		if k.kind == cds && c.cluster(d.name) == nil {
			c.count("cluster_manager.cluster_added", 1) // Envoy counts the attempt
		}
		k.hold(d.name).failed = &failed{body: r.body, version: version, why: err.Error(), at: c.opts.Now(), hash: d.hash, err: err}
	}
	return good, named, whole
}

type malformed struct{ error }

func isMalformed(err error) bool {
	var m *malformed
	var r *translate.Refusal
	return errors.As(err, &m) || errors.As(err, &r) && r.Malformed
}

func (c *Client) decodeOne(k *kindState, r received, a *answer) (decoded, error) {
	d := decoded{received: r}
	if r.body == nil {
		return d, &malformed{errors.New("no resource")}
	}
	if r.body.TypeUrl != k.kind.url() {
		return d, &malformed{fmt.Errorf("type URL %s, want %s", r.body.TypeUrl, k.kind.url())}
	}
	d.hash = translate.Hash(r.body.Value)
	if d.name == "" {
		d.name = k.named[d.hash]
	}
	if old := k.kept[d.name]; d.name != "" && old != nil && old.body != nil && old.hash == d.hash {
		return d, nil // as it is in force
	}
	if f := k.refusedBefore(r.name, d.hash); f != nil {
		d.name = r.name
		return d, f.err
	}
	value, name, err := c.translate(k.kind, r.body.Value)
	if name != "" {
		d.name = name
	}
	if v, ok := value.(*config.LoadAssignment); ok {
		if x := c.cluster(name); x != nil {
			v.Name, d.name = x.Name, x.Name // one string of a cluster and its endpoints
		}
	}
	if err != nil {
		return d, err
	}
	if d.name == "" && k.kind != nds {
		return d, &malformed{errors.New("no name")}
	}
	if old := k.kept[d.name]; old == nil || old.body == nil || old.hash != d.hash {
		d.value = value
	}
	return d, nil
}

func (c *Client) translate(k kind, b []byte) (value any, name string, err error) {
	if k == rds {
		return c.opts.Translate.Routes(b, func(name string) *config.RouteConfiguration { return c.accepted.Routes[name] })
	}
	return c.opts.Translate.Resource(k.url(), b)
}

// accept puts one good resource in force. Names nobody asked for are left out,
// and unchanged bytes keep the value there is.
func (c *Client) accept(k *kindState, d decoded, a *answer) bool {
	if !k.kind.wildcard() && !k.names[d.name] {
		return false
	}
	x := k.hold(d.name)
	x.failed = nil
	if !k.kind.wildcard() { // of those only the whole type is counted
		u := k.updated(d.name)
		u.success++
		if d.value != nil {
			u.reload++
		}
	}
	version := d.version
	if a.full {
		version = a.version
	}
	x.version = version
	if d.value != nil {
		delete(k.named, x.hash)
		x.body, x.hash, x.at = k.archive.pack(d.body.Value), d.hash, c.opts.Now()
		if a.full {
			k.named[d.hash] = d.name
		}
	}
	c.put(d, version)
	return true
}

// put stores a new value.
func (c *Client) put(d decoded, version string) {
	switch v := d.value.(type) {
	case *config.Cluster:
		if c.accepted.Static.Clusters[d.name] != nil {
			return // Envoy doesn't let CDS change a static cluster
		}
		v.Version = version
		c.countChange("cluster_manager.cluster", c.accepted.Clusters[d.name] != nil)
		c.accepted.Clusters[d.name] = v
		c.newRefs = true
	case *config.LoadAssignment:
		v.Version = version
		c.accepted.Loads[d.name] = v
	case *config.Listener:
		v.Version = version
		c.putListener(v)
	case *config.RouteConfiguration:
		v.Version = version
		c.accepted.Routes[d.name] = v
	case *config.Secret:
		v.Version = version
		c.accepted.Secrets[d.name] = v
	case *translate.Extension:
		c.accepted.Extensions[d.name] = v.Policy
	}
}

func (c *Client) countChange(name string, was bool) {
	if was {
		c.count(name+"_modified", 1)
	} else {
		c.count(name+"_added", 1)
	}
}

func (c *Client) putListener(v *config.Listener) {
	for _, s := range c.accepted.Static.Listeners {
		if s.Name == v.Name {
			return
		}
	}
	c.newRefs = true
	i := slices.IndexFunc(c.accepted.Listeners, func(x *config.Listener) bool { return x.Name == v.Name })
	c.countChange("listener_manager.listener", i >= 0)
	if i >= 0 && c.accepted.Listeners[i].ShellHash == v.ShellHash {
		c.count("listener_manager.listener_in_place_updated", 1)
	}
	// A new slice: the last one may be in somebody's hands.
	c.accepted.Listeners = slices.Clone(c.accepted.Listeners)
	if i >= 0 {
		c.accepted.Listeners[i] = v
		return
	}
	c.accepted.Listeners = append(c.accepted.Listeners, v)
}

// remove takes out what is gone: for clusters and listeners what a whole state
// doesn't name, and what an increment removes. Assignments, route tables and
// secrets that are gone stay in use, as in Envoy.
func (c *Client) remove(k *kindState, a *answer, named, answered map[string]bool) {
	switch {
	case a.full && k.kind.wildcard():
		for _, name := range c.dynamicNames(k) {
			if !named[name] {
				c.drop(k, name)
			}
		}
	case !a.full:
		for _, name := range a.removed {
			if k.names[name] {
				k.updated(name).success++ // Envoy counts what it was told of a name
			}
			if k.kind == eds && k.names[name] {
				answered[name] = true // it doesn't exist: its cluster need not wait
				continue
			}
			c.drop(k, name)
		}
	}
}

func (c *Client) dynamicNames(k *kindState) []string {
	var out []string
	for name := range k.kept {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (c *Client) drop(k *kindState, name string) {
	switch k.kind {
	case cds:
		if c.accepted.Clusters[name] != nil {
			delete(c.accepted.Clusters, name)
			c.newRefs = true
			c.count("cluster_manager.cluster_removed", 1)
		}
		delete(k.kept, name)
	case lds:
		n := len(c.accepted.Listeners)
		c.accepted.Listeners = slices.DeleteFunc(slices.Clone(c.accepted.Listeners), func(x *config.Listener) bool { return x.Name == name })
		if len(c.accepted.Listeners) < n {
			c.count("listener_manager.listener_removed", 1)
		}
		delete(k.kept, name)
	case ecds:
		if _, ok := c.accepted.Extensions[name]; ok {
			delete(c.accepted.Extensions, name)
			k.updated(name).reload++
		}
		// Who runs with it goes on without, and answers 500 if it has no default.
		c.accepted.Settled[link.Part{Kind: link.KindExtensions, Name: name}] = true
		delete(k.kept, name)
	}
}

// takeNames puts a name table in force; its resource has no name.
func (c *Client) takeNames(k *kindState, good []decoded, a *answer) {
	for _, d := range good {
		v, ok := d.value.(*config.NameTable)
		if !ok {
			continue
		}
		v.Version = a.version
		c.accepted.Names = v
		*k.hold("") = kept{body: k.archive.pack(d.body.Value), version: d.version, hash: d.hash, at: c.opts.Now()}
	}
}

// checks gives the checks of a resource against the others, which translate
// can't make.
func (c *Client) checks(k *kindState, a *answer) func(decoded) error {
	switch k.kind {
	case lds:
		taken := c.boundBesides(a)
		return func(d decoded) error { return c.checkListener(d, taken) }
	case rds:
		return func(d decoded) error {
			if r, ok := d.value.(*config.RouteConfiguration); ok {
				return c.checkClusters(r)
			}
			return nil
		}
	case ecds:
		return c.checkExtension
	case sds:
		return func(d decoded) error {
			if s, ok := d.value.(*config.Secret); ok {
				return c.checkSecret(d.name, s)
			}
			return nil
		}
	}
	return func(decoded) error { return nil }
}

// boundBesides gives the addresses that listeners outside of a response hold: a
// whole state frees those of all dynamic ones, an increment those it speaks of.
func (c *Client) boundBesides(a *answer) map[string]string {
	taken := map[string]string{}
	for _, x := range c.accepted.Static.Listeners {
		taken[bindKey(x)] = x.Name
	}
	if a.full {
		return taken
	}
	freed := map[string]bool{}
	for _, n := range a.removed {
		freed[n] = true
	}
	for _, r := range a.resources {
		freed[r.name] = true
	}
	for _, x := range c.accepted.Listeners {
		if !freed[x.Name] {
			taken[bindKey(x)] = x.Name
		}
	}
	return taken
}

func bindKey(x *config.Listener) string {
	if !x.BindToPort || x.Internal {
		return x.Name
	}
	return x.Address.String()
}

func (c *Client) checkListener(d decoded, taken map[string]string) error {
	x, ok := d.value.(*config.Listener)
	if !ok { // unchanged
		i := slices.IndexFunc(c.accepted.Listeners, func(x *config.Listener) bool { return x.Name == d.name })
		if i < 0 {
			return nil
		}
		x = c.accepted.Listeners[i]
	}
	key := bindKey(x)
	if other, ok := taken[key]; ok && other != x.Name && !(x.Address.IP.IsValid() && x.Address.IP.Port() == 0) {
		return fmt.Errorf("error adding listener: '%s' has duplicate address '%s' as existing listener '%s'", x.Name, key, other)
	}
	taken[key] = x.Name
	for _, m := range link.Managers(x) {
		if m.Routes != nil && d.value != nil {
			if err := c.checkClusters(m.Routes); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkClusters refuses a table that asks to have its clusters checked and names
// one that isn't there.
func (c *Client) checkClusters(r *config.RouteConfiguration) error {
	if !r.ValidateClusters {
		return nil
	}
	for _, name := range translate.RouteClusters(r) {
		if c.cluster(name) == nil {
			return fmt.Errorf("route: unknown cluster '%s'", name)
		}
	}
	return nil
}

// checkExtension refuses a filter config of a type that a user of it doesn't
// take.
func (c *Client) checkExtension(d decoded) error {
	x, ok := d.value.(*translate.Extension)
	if !ok {
		return nil
	}
	var err error
	c.eachListener(func(l *config.Listener) {
		for _, m := range link.Managers(l) {
			for _, f := range m.Filters {
				if f.Name == d.name && f.Discovery != nil && !slices.Contains(f.Discovery.TypeURLs, x.URL) {
					err = fmt.Errorf("type URL %s doesn't match allowed type URLs %v", x.URL, f.Discovery.TypeURLs)
				}
			}
		}
	})
	return err
}
