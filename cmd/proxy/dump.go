package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/listener"
)

// dumper writes the admin pages that show state of several parts.
type dumper struct{ process *process }

func (d *dumper) listeners(ctx context.Context, w io.Writer, asJSON bool) error {
	type status struct {
		Name    string `json:"name"`
		Address any    `json:"local_address"`
	}
	var list []status
	seen := map[string]bool{}
	err := d.process.plane.listeners.Visit(ctx, func(_ int, c *config.Listener, _ listener.Counters) {
		if seen[c.Name] {
			return
		}
		seen[c.Name] = true
		for _, a := range d.process.plane.listeners.Bound(c.Name) {
			list = append(list, status{c.Name, map[string]any{"socket_address": map[string]any{"address": a.Addr().String(), "port_value": a.Port()}}})
			if !asJSON {
				fmt.Fprintf(w, "%s::%s\n", c.Name, a)
			}
		}
	})
	if err != nil || !asJSON {
		return err
	}
	return json.NewEncoder(w).Encode(map[string]any{"listener_statuses": list})
}

func (d *dumper) clusters(ctx context.Context, w io.Writer, asJSON bool) error {
	for _, name := range d.process.plane.clusters.Names() {
		fmt.Fprintf(w, "%s::observability_name::%s\n", name, name)
	}
	return ctx.Err()
}

func (d *dumper) config(_ context.Context, w io.Writer, _ admin.DumpQuery) error {
	_, err := io.WriteString(w, "{\"configs\":[]}\n")
	return err
}

func (d *dumper) certs(w io.Writer) error {
	_, err := io.WriteString(w, "{\"certificates\":[]}\n")
	return err
}

func (d *dumper) waiting(w io.Writer) error {
	_, err := io.WriteString(w, "{}\n")
	return err
}
