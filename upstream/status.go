package upstream

import (
	"context"
	"slices"
	"strings"
	"sync"

	"sluice/internal/config"
)

// HostStatus is what the admin page shows of one host. A cluster without hosts
// has one entry with no address.
type HostStatus struct {
	Cluster, Address, Hostname string
	Health                     config.HealthStatus
	Ejected                    bool
	Weight                     uint32
	Priority                   uint32
	Connections                int // over all workers
}

// Hosts lists the hosts of all clusters, sorted. It asks every worker.
func (c *Clusters) Hosts(ctx context.Context) ([]HostStatus, error) {
	var mu sync.Mutex
	found := map[[2]string]*HostStatus{}
	var wg sync.WaitGroup
	c.each(&wg, func(l *Local) {
		mu.Lock()
		defer mu.Unlock()
		for name, cl := range l.clusters {
			if len(cl.hosts) == 0 {
				found[[2]string{name}] = &HostStatus{Cluster: name}
			}
			for _, h := range cl.hosts {
				h.status(name, found)
			}
		}
	})
	if err := waitFor(ctx, &wg); err != nil {
		return nil, err
	}
	list := make([]HostStatus, 0, len(found))
	for _, s := range found {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b HostStatus) int {
		if n := strings.Compare(a.Cluster, b.Cluster); n != 0 {
			return n
		}
		return strings.Compare(a.Address, b.Address)
	})
	return list, nil
}

func (h *Host) status(cluster string, found map[[2]string]*HostStatus) {
	k := [2]string{cluster, h.Name}
	s := found[k]
	if s == nil {
		s = &HostStatus{Cluster: cluster, Address: h.Name, Hostname: h.Hostname, Weight: 1}
		if h.Endpoint != nil {
			s.Health, s.Weight = h.Endpoint.Health, h.Endpoint.Weight
		}
		s.Priority = uint32(h.Priority)
		found[k] = s
	}
	s.Connections += h.Conns()
	s.Ejected = s.Ejected || h.state != nil && h.state.health != nil && h.state.health.ejected.Load()
}

// waitFor waits for wg or the end of ctx.
func waitFor(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { // ends when the workers have answered
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
