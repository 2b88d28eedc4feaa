package xdsclient

import (
	"context"
	"errors"
	"strings"
	"time"

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
	out := make(map[string]uint64, len(c.stats)+24)
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
		out["cluster_manager.active_clusters"] = uint64(len(c.snapshot.Clusters))
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
	var out []string
	if !f.CDS {
		out = append(out, "no clusters received (CDS)")
	}
	if !f.LDS {
		out = append(out, "no listeners received (LDS)")
	}
	if f.CDS && f.LDS && !f.Live {
		out = append(out, "the first configuration is still incomplete")
	}
	return strings.Join(out, ", ")
}
