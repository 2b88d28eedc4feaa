package xdsclient

import (
	"context"
	"errors"
	"strings"
	"time"

	"sluice/internal/config"
	"sluice/xdsclient/link"
)

// Status is what admin pages and metrics show of the client.
type Status struct {
	Facts
	Types   []TypeStatus
	Waiting []link.Waiting
	// Stats are counters and gauges by their Envoy names.
	Stats map[string]uint64
}

// TypeStatus is one resource type's.
type TypeStatus struct {
	Type       string // CDS, EDS, ...
	URL        string
	Version    string // last accepted, of the state-of-the-world form
	Resources  int    // in force
	Subscribed []string
	Refusal    string // of the last response, "" when it was taken
	RefusedAt  time.Time
	Refused    []RefusedResource
}

// RefusedResource is a resource whose newest version isn't in force.
type RefusedResource struct {
	Name, Version, Why string
	At                 time.Time
	Serving            string // the version in force, "" for none
}

// errEnded is what a query gets when the client has ended or isn't running.
var errEnded = errors.New("the xDS client isn't running")

// query runs f on the owner's goroutine.
func (c *Client) query(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case c.queries <- func() { f(); close(done) }:
	case <-c.quit:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// Status gives the present status. It is safe to call from any goroutine while
// Run runs.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var out Status
	err := c.query(ctx, func() { out = c.status() })
	return out, err
}

func (c *Client) status() Status {
	out := Status{Facts: c.facts, Waiting: append([]link.Waiting(nil), c.waiting...), Stats: c.statistics()}
	for _, k := range c.kinds {
		t := TypeStatus{
			Type: k.kind.String(), URL: k.kind.url(), Version: k.version, Subscribed: sorted(k.names),
			Refusal: k.refusal, RefusedAt: k.refusedAt,
		}
		for name, x := range k.kept {
			if x.body != nil {
				t.Resources++
			}
			if f := x.failed; f != nil {
				t.Refused = append(t.Refused, RefusedResource{Name: name, Version: f.version, Why: f.why, At: f.at, Serving: x.version})
			}
		}
		out.Types = append(out.Types, t)
	}
	return out
}

// statistics gives the counters and gauges under the names Envoy has for them.
func (c *Client) statistics() map[string]uint64 {
	out := map[string]uint64{
		"cluster_manager.cluster_modified": 0, "cluster_manager.cluster_removed": 0, "cluster_manager.cluster_updated": 0,
		"listener_manager.listener_modified": 0, "listener_manager.listener_removed": 0, "listener_manager.listener_in_place_updated": 0,
	}
	c.resourceStats(out)
	for name, v := range c.stats {
		out[name] = v
	}
	for k, prefix := range map[kind]string{cds: "cluster_manager.cds.", lds: "listener_manager.lds."} {
		s := c.kinds[k]
		out[prefix+"update_attempt"] = s.attempts
		out[prefix+"update_success"] = s.successes
		out[prefix+"update_rejected"] = s.rejected
	}
	clusters, listeners := map[string]bool{}, map[string]bool{}
	for _, w := range c.waiting {
		if w.Cluster {
			clusters[w.Resource] = true
		} else {
			listeners[w.Resource] = true
		}
	}
	out["cluster_manager.warming_clusters"] = uint64(len(clusters))
	out["listener_manager.total_listeners_warming"] = uint64(len(listeners))
	if c.snapshot != nil {
		out["cluster_manager.active_clusters"] = uint64(len(c.snapshot.Whole().Clusters))
		out["listener_manager.total_listeners_active"] = uint64(len(c.snapshot.Listeners))
	}
	out["cluster_manager.cluster_added"] += uint64(len(c.accepted.Static.Clusters))
	out["listener_manager.listener_added"] += uint64(len(c.accepted.Static.Listeners))
	out["control_plane.connected_state"] = 0
	if c.facts.Connected {
		out["control_plane.connected_state"] = 1
	}
	return out
}

// resourceStats gives the counters of single clusters, route tables, secrets and
// filter configs. A refusal counts for every subscriber of the type.
func (c *Client) resourceStats(out map[string]uint64) {
	add := func(k *kindState, prefix, name, reload string) {
		u := k.updated(name)
		out[prefix+"update_attempt"] = k.attempts
		out[prefix+"update_success"] = u.success
		out[prefix+"update_rejected"] = k.rejected
		out[prefix+reload] = u.reload
	}
	c.eachCluster(func(x *config.Cluster) {
		if x.Type == config.EDS {
			k := c.kinds[eds]
			prefix := "cluster." + x.Name + "."
			add(k, prefix, x.EDSName, "update_rebuild")
			u := k.updated(x.EDSName)
			out[prefix+"update_no_rebuild"] = u.success - u.reload
			for _, zero := range [...]string{"update_failure", "update_empty", "assignment_stale", "init_fetch_timeout"} {
				out[prefix+zero] = 0
			}
		}
	})
	c.eachListener(func(x *config.Listener) {
		for _, m := range link.Managers(x) {
			if m.RouteName != "" {
				prefix := "http." + m.StatPrefix + ".rds." + m.RouteName + "."
				add(c.kinds[rds], prefix, m.RouteName, "config_reload")
				out[prefix+"init_fetch_timeout"] = c.late[m.RouteName]
			}
			for _, f := range m.Filters {
				if f.Discovery != nil {
					prefix := "extension_config_discovery.http_filter." + f.Name + "."
					out[prefix+"config_reload"] = c.kinds[ecds].updated(f.Name).reload
					out[prefix+"config_fail"] = c.kinds[ecds].rejected
					out[prefix+"config_conflict"] = 0
				}
			}
		}
	})
	for name := range c.kinds[sds].names {
		add(c.kinds[sds], "sds."+name+".", name, "config_reload")
	}
}

// State is Envoy's word for how far initialisation has come.
func (f Facts) State() string {
	switch {
	case f.Live:
		return "LIVE"
	case f.Clusters:
		return "INITIALIZING"
	}
	return "PRE_INITIALIZING"
}

// Missing lists what readiness still waits for, in words.
func (f Facts) Missing() string {
	if f.Live {
		return ""
	}
	var out []string
	if !f.CDS {
		out = append(out, "no clusters received (CDS)")
	}
	if !f.LDS {
		out = append(out, "no listeners received (LDS)")
	}
	if f.CDS && f.LDS {
		out = append(out, "the first configuration is still incomplete")
	}
	return strings.Join(out, ", ")
}
