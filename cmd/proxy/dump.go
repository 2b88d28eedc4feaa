package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"

	"sluice/internal/config"
	"sluice/upstream"
	"sluice/xdsclient"
)

// dumper writes the admin pages that show state of several parts.
type dumper struct{ process *process }

func (d *dumper) listeners(_ context.Context, w io.Writer, q url.Values) error {
	asJSON := q.Get("format") == "json"
	type status struct {
		Name    string `json:"name"`
		Address any    `json:"local_address"`
	}
	list := []status{}
	for _, name := range d.process.plane.listeners.Names() {
		for _, a := range d.process.plane.listeners.Bound(name) {
			list = append(list, status{name, map[string]any{"socket_address": map[string]any{"address": a.Addr().String(), "port_value": a.Port()}}})
			if !asJSON {
				fmt.Fprintf(w, "%s::%s\n", name, a)
			}
		}
	}
	if !asJSON {
		return nil
	}
	return json.NewEncoder(w).Encode(map[string]any{"listener_statuses": list})
}

func (d *dumper) clusters(ctx context.Context, w io.Writer, q url.Values) error {
	list := d.process.plane.clusters.Describe()
	if f := q.Get("filter"); f != "" {
		re, err := regexp.Compile(f)
		if err != nil {
			return fmt.Errorf("reading the filter: %w", err)
		}
		list = slices.DeleteFunc(list, func(c upstream.ClusterStatus) bool { return !re.MatchString(c.Config.Name) })
	}
	if q.Get("format") == "json" {
		return json.NewEncoder(w).Encode(map[string]any{"cluster_statuses": clusterStatuses(list)})
	}
	for _, c := range list {
		name := c.Config.Name
		fmt.Fprintf(w, "%[1]s::observability_name::%[1]s\n", name)
		for i, priority := range [...]string{"default_priority", "high_priority"} {
			b := &c.Config.Breakers[i]
			for _, x := range [...]struct {
				name string
				max  uint32
			}{{"max_connections", b.Connections}, {"max_pending_requests", b.Pending}, {"max_requests", b.Requests}, {"max_retries", b.Retries}} {
				fmt.Fprintf(w, "%s::%s::%s::%d\n", name, priority, x.name, x.max)
			}
		}
		if c.Config.Outlier != nil {
			for _, k := range [...]string{"success_rate", "local_origin_success_rate"} {
				fmt.Fprintf(w, "%[1]s::outlier::%[2]s_average::-1\n%[1]s::outlier::%[2]s_ejection_threshold::-1\n", name, k)
			}
		}
		for i := range c.Hosts {
			h := &c.Hosts[i]
			fmt.Fprintf(w, "%[1]s::%[2]s::health_flags::%[3]s\n%[1]s::%[2]s::weight::%[4]d\n%[1]s::%[2]s::hostname::%[5]s\n%[1]s::%[2]s::priority::%[6]d\n"+
				"%[1]s::%[2]s::success_rate::-1\n%[1]s::%[2]s::local_origin_success_rate::-1\n",
				name, h.Address, healthFlags(h), h.Endpoint.Weight, h.Hostname, h.Priority)
		}
	}
	return ctx.Err()
}

func healthFlags(h *upstream.HostStatus) string {
	flags := ""
	for _, f := range []struct {
		set  bool
		name string
	}{{h.Ejected, "/failed_outlier_check"}, {h.FailedActive, "/failed_active_hc"}, {h.FailedByEDS && h.EDSHealth != config.HealthDraining, "/failed_eds_health"}, {h.EDSHealth == config.HealthDraining, "/eds_status_draining"}, {h.DegradedByEDS, "/degraded_eds_health"}} {
		if f.set {
			flags += f.name
		}
	}
	if flags == "" {
		return "healthy"
	}
	return flags
}

// clusterStatuses is the shape of envoy.admin.v3.Clusters that istioctl reads.
func clusterStatuses(list []upstream.ClusterStatus) []any {
	out := []any{}
	for _, c := range list {
		hosts := []any{}
		for i := range c.Hosts {
			h := &c.Hosts[i]
			health := map[string]any{"eds_health_status": edsHealth(h.EDSHealth)}
			if h.Ejected {
				health["failed_outlier_check"] = true
			}
			hosts = append(hosts, map[string]any{"address": addressJSON(h.Address), "health_status": health, "weight": h.Endpoint.Weight,
				"hostname": h.Hostname, "priority": h.Priority, "locality": map[string]string{"region": h.Region, "zone": h.Zone, "sub_zone": h.SubZone}})
		}
		out = append(out, map[string]any{"name": c.Config.Name, "observability_name": c.Config.Name, "host_statuses": hosts})
	}
	return out
}

func edsHealth(h config.HealthStatus) string {
	switch h {
	case config.HealthUnhealthy, config.HealthTimeout:
		return "UNHEALTHY"
	case config.HealthDraining:
		return "DRAINING"
	case config.HealthDegraded:
		return "DEGRADED"
	}
	return "HEALTHY"
}

func addressJSON(address string) any {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return map[string]any{"socket_address": map[string]any{"address": a.Addr().String(), "port_value": a.Port()}}
	}
	return map[string]any{"pipe": map[string]any{"path": address}}
}

// config is the dump as the control path holds it: what came, as it came.
func (d *dumper) config(ctx context.Context, q url.Values) (body []byte, status int) {
	boot, err := d.process.registry.BootstrapMessage(d.process.text)
	if err != nil {
		return []byte("parsing the bootstrap: " + err.Error()), http.StatusInternalServerError
	}
	return d.process.client.ConfigDump(ctx, boot, d.process.began, xdsclient.Query{
		Resource: q.Get("resource"), Mask: q.Get("mask"), NameRegex: q.Get("name_regex"), Endpoints: q.Has("include_eds"),
	})
}

// waiting lists what linking still waits for.
func (d *dumper) waiting(w io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	s, err := d.process.client.Status(ctx)
	if err != nil {
		return err
	}
	type unready struct {
		Name  string   `json:"name"`
		Names []string `json:"target_names"`
	}
	if len(s.Waiting) == 0 {
		_, err := io.WriteString(w, "{}\n")
		return err
	}
	var list []unready
	for _, x := range s.Waiting {
		list = append(list, unready{x.Resource, []string{x.Part.Kind.String() + " " + x.Part.Name}})
	}
	return json.NewEncoder(w).Encode(map[string]any{"unready_targets_dumps": list})
}
