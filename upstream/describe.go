package upstream

import (
	"sort"

	"sluice/internal/config"
)

// ClusterStatus is what the admin page tells of a cluster.
type ClusterStatus struct {
	Config *config.Cluster
	Hosts  []HostStatus
}

// HostStatus is what the admin page tells of a host.
type HostStatus struct {
	Address       string
	Hostname      string
	Endpoint      *config.Endpoint
	Region        string
	Zone          string
	SubZone       string
	Priority      int
	EDSHealth     config.HealthStatus
	Ejected       bool // by outlier detection
	FailedActive  bool // by active health checks
	FailedByEDS   bool
	DegradedByEDS bool
}

// Describe lists the clusters with their hosts, by name. It is for the admin
// page: it takes the control side's lock.
func (c *Clusters) Describe() []ClusterStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []ClusterStatus
	c.shared.Range(func(_, x any) bool {
		out = append(out, x.(*shared).status())
		return true
	})
	sort.Slice(out, func(i, j int) bool { return out[i].Config.Name < out[j].Config.Name })
	return out
}

func (sh *shared) status() ClusterStatus {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := ClusterStatus{Config: sh.config}
	var hosts []*hostState
	if sh.inUse != nil {
		hosts = sh.hosts
	} else {
		hosts, _ = sh.expandAll(nil)
	}
	for _, h := range hosts {
		s.Hosts = append(s.Hosts, sh.describe(h))
	}
	sort.SliceStable(s.Hosts, func(i, j int) bool { return s.Hosts[i].Priority < s.Hosts[j].Priority })
	return s
}

func (sh *shared) describe(h *hostState) HostStatus {
	s := HostStatus{Address: h.name, Hostname: h.hostname, Endpoint: h.endpoint, Priority: h.priority, EDSHealth: h.endpoint.Health,
		Ejected: h.health.ejected.Load(), FailedActive: h.health.failed.Load(), FailedByEDS: !h.endpoint.Health.Usable(),
		DegradedByEDS: h.endpoint.Health == config.HealthDegraded}
	if l := sh.config.Load; l != nil && h.locality < len(l.Localities) {
		x := &l.Localities[h.locality]
		s.Region, s.Zone, s.SubZone = x.Region, x.Zone, x.SubZone
	}
	return s
}
