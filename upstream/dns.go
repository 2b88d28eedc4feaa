package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/config"
)

// ResolveFunc gives the addresses of a host name.
type ResolveFunc func(ctx context.Context, network, name string) ([]netip.Addr, error)

func systemResolve(ctx context.Context, network, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, network, name)
}

// resolution is what is known of one name of a DNS cluster.
type resolution struct {
	addrs   []netip.Addr
	due     time.Time
	running bool
	failed  int
}

// resolveDue starts the look-ups of sh that are due and says when the next is.
func (c *Clusters) resolveDue(ctx context.Context, sh *shared, now time.Time) time.Duration {
	if sh.resolved == nil {
		sh.resolved = make(map[string]*resolution)
	}
	next := time.Hour
	if sh.config.Load == nil {
		return next
	}
	for _, l := range sh.config.Load.Localities {
		for i := range l.Endpoints {
			name := l.Endpoints[i].Address.Hostname
			if name == "" {
				continue
			}
			r := sh.resolved[name]
			if r == nil {
				r = &resolution{}
				sh.resolved[name] = r
			}
			switch {
			case r.running:
			case !now.Before(r.due):
				r.running = true
				c.busy.Add(1)
				go c.resolve(ctx, sh, &sh.config.DNS, name, r) // a changed cluster has options of its own
			default:
				next = min(next, r.due.Sub(now))
			}
		}
	}
	return next
}

func (c *Clusters) resolve(ctx context.Context, sh *shared, options *config.DNSOptions, name string, r *resolution) {
	defer c.busy.Done()
	addrs, err := c.lookUp(ctx, name, options)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.running = false
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		addrs, err = nil, nil // the name is gone: so are its hosts
	}
	r.due = time.Now().Add(r.pause(&sh.config.DNS, err))
	defer c.poke()
	if err != nil {
		sh.stats.failures.Add(1)
		c.opts.Log.Debug("resolving failed", "cluster", sh.config.Name, "name", name, "err", err)
		return
	}
	if slices.Equal(addrs, r.addrs) {
		sh.stats.updates.Add(1)
		return
	}
	r.addrs = addrs
	sh.stats.updates.Add(1)
	if !sh.gone {
		c.rebuild(sh, nil)
	}
}

// pause is the time until the next look-up: never a busy loop.
func (r *resolution) pause(o *config.DNSOptions, err error) time.Duration {
	refresh := o.Refresh
	if refresh <= 0 {
		refresh = 5 * time.Second
	}
	if err == nil {
		r.failed = 0
		return max(refresh, time.Second)
	}
	base, top := o.FailureBase, o.FailureMax
	if base <= 0 {
		base = refresh
	}
	if top < base {
		top = base * 10
	}
	d := min(top, base<<min(r.failed, 10))
	r.failed++
	return max(d, time.Second)
}

func (c *Clusters) lookUp(ctx context.Context, name string, o *config.DNSOptions) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	network := "ip"
	switch {
	case o.V4Only:
		network = "ip4"
	case o.V6Only:
		network = "ip6"
	}
	addrs, err := c.opts.Resolve(ctx, network, name)
	if err != nil {
		return nil, err
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	return preferred(addrs, o), nil
}

// preferred keeps one family, IPv6 unless the options say otherwise, as Envoy's
// AUTO does; All keeps both.
func preferred(addrs []netip.Addr, o *config.DNSOptions) []netip.Addr {
	slices.SortFunc(addrs, func(a, b netip.Addr) int { return a.Compare(b) })
	if o.All {
		return addrs
	}
	var four, six []netip.Addr
	for _, a := range addrs {
		if a.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	if o.V4Preferred && len(four) > 0 || len(six) == 0 {
		return four
	}
	return six
}
