package upstream

import (
	"net/netip"
	"time"

	"sluice/internal/config"
	"sluice/internal/worker"
	"sluice/upstream/pool"
)

// originalDst holds the hosts of an ORIGINAL_DST cluster on one worker: they
// appear as clients name them and go when unused.
type originalDst struct {
	cluster *Cluster
	hosts   map[netip.AddrPort]*Host
	timer   worker.Timer
	every   time.Duration
}

func newOriginalDst(c *Cluster) *originalDst {
	d := &originalDst{cluster: c, hosts: make(map[netip.AddrPort]*Host), every: c.Config.CleanupInterval}
	if d.every <= 0 {
		d.every = 5 * time.Second
	}
	d.timer.Fire = d.clean
	return d
}

func (d *originalDst) pick(q *Query) *Host {
	c := d.cluster
	dst := q.OriginalDst
	if o := &c.Config.OriginalDst; o.UseHeader && q.DstHeader != "" {
		a, err := netip.ParseAddrPort(q.DstHeader)
		if err != nil {
			c.Stats[pool.OriginalDstHostInvalid]++
			return nil
		}
		dst = a
	}
	if !dst.IsValid() || dst.Port() == 0 {
		c.Stats[pool.CxNoneHealthy]++
		return nil
	}
	if p := c.Config.OriginalDst.PortOverride; p != 0 {
		dst = netip.AddrPortFrom(dst.Addr(), p)
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	h := d.hosts[dst]
	if h == nil {
		s := hostState{endpoint: &config.Endpoint{Address: config.Address{IP: dst}, Weight: 1}, addr: dst, name: dst.String()}
		h = c.newHost(s.ready(time.Now()))
		d.hosts[dst] = h
		if !d.timer.Active() {
			c.local.worker.Start(&d.timer, d.every)
		}
	}
	h.used = c.local.worker.Now()
	return h
}

// clean drops hosts that nobody asked for since the last time and that have no
// connection.
func (d *originalDst) clean() {
	w := d.cluster.local.worker
	for k, h := range d.hosts {
		if w.Now()-h.used >= int64(d.every) && h.Conns() == 0 && h.Active == 0 {
			delete(d.hosts, k)
		}
	}
	if len(d.hosts) > 0 {
		w.Start(&d.timer, d.every)
	}
}

func (d *originalDst) drain() {
	d.cluster.local.worker.Stop(&d.timer)
	for _, h := range d.hosts {
		h.drain()
	}
}
