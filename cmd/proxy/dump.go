package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"sluice/internal/config"
	"sluice/upstream"
	"sluice/xdsclient"
)

// dumper writes the admin pages that show state of several parts.
type dumper struct{ process *process }

func (d *dumper) listeners(_ context.Context, w io.Writer, asJSON bool) error {
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

func (d *dumper) clusters(ctx context.Context, w io.Writer, asJSON bool) error {
	hosts, err := d.process.plane.clusters.Hosts(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(map[string]any{"cluster_statuses": clusterStatuses(hosts)})
	}
	last := ""
	for _, h := range hosts {
		if h.Cluster != last {
			last = h.Cluster
			fmt.Fprintf(w, "%[1]s::observability_name::%[1]s\n", h.Cluster)
		}
		if h.Address == "" {
			continue
		}
		at := h.Cluster + "::" + h.Address + "::"
		fmt.Fprintf(w, "%[1]scx_active::%[2]d\n%[1]shealth_flags::%[3]s\n%[1]sweight::%[4]d\n%[1]shostname::%[5]s\n%[1]spriority::%[6]d\n",
			at, h.Connections, healthFlags(h), h.Weight, h.Hostname, h.Priority)
	}
	return nil
}

func healthFlags(h upstream.HostStatus) string {
	switch {
	case h.Ejected:
		return "/failed_outlier_check"
	case !h.Health.Usable():
		return "/failed_eds_health"
	}
	return "healthy"
}

// clusterStatuses is the shape of envoy.admin.v3.Clusters that istioctl reads.
func clusterStatuses(hosts []upstream.HostStatus) []any {
	type status struct {
		Name  string `json:"name"`
		Hosts []any  `json:"host_statuses,omitempty"`
	}
	var list []any
	var at *status
	for _, h := range hosts {
		if at == nil || at.Name != h.Cluster {
			at = &status{Name: h.Cluster}
			list = append(list, at)
		}
		if h.Address == "" {
			continue
		}
		health := map[string]any{"eds_health_status": edsHealth(h.Health)}
		if h.Ejected {
			health["failed_outlier_check"] = true
		}
		at.Hosts = append(at.Hosts, map[string]any{"address": addressJSON(h.Address), "health_status": health, "weight": h.Weight,
			"hostname": h.Hostname, "priority": h.Priority})
	}
	return list
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

func (d *dumper) certs(w io.Writer) error {
	type certificate struct {
		Path    string              `json:"path"`
		Serial  string              `json:"serial_number"`
		SANs    []map[string]string `json:"subject_alt_names"`
		Days    string              `json:"days_until_expiration"`
		From    time.Time           `json:"valid_from"`
		Expires time.Time           `json:"expiration_time"`
	}
	var list []any
	for _, s := range d.process.plane.allSecrets() {
		if s.Certificate == nil || s.Certificate.Leaf == nil {
			continue
		}
		leaf := s.Certificate.Leaf
		c := certificate{Path: "<inline>", Serial: leaf.SerialNumber.Text(16), From: leaf.NotBefore, Expires: leaf.NotAfter,
			Days: strconv.Itoa(int(time.Until(leaf.NotAfter).Hours() / 24))}
		for _, u := range leaf.URIs {
			c.SANs = append(c.SANs, map[string]string{"uri": u.String()})
		}
		list = append(list, map[string]any{"cert_chain": []certificate{c}, "ca_cert": []any{}})
	}
	return json.NewEncoder(w).Encode(map[string]any{"certificates": list})
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
	list := []unready{}
	for _, x := range s.Waiting {
		list = append(list, unready{x.Resource, []string{x.Part.Kind.String() + " " + x.Part.Name}})
	}
	return json.NewEncoder(w).Encode(map[string]any{"unready_targets_dumps": list})
}
