package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"sluice/internal/admin"
)

type netListener = net.Listener

// servePages opens the admin port and, in a pod, the status port. The function
// it returns stops both and waits.
func (p *process) servePages(ctx context.Context) (stop func(), err error) {
	node, err := json.Marshal(map[string]any{"id": p.boot.Node.ID, "cluster": p.boot.Node.Cluster, "metadata": p.boot.Node.Metadata, "user_agent_name": "envoy",
		"locality": map[string]string{"region": p.boot.Node.Region, "zone": p.boot.Node.Zone, "sub_zone": p.boot.Node.SubZone}})
	if err != nil {
		return nil, fmt.Errorf("writing the node as JSON: %w", err)
	}
	d := &dumper{p}
	a := &admin.Admin{
		Version: "sluice/" + version, Began: p.began, State: func() admin.State { return admin.State(p.state.Load()) }, Metrics: p.plane.metrics,
		Clusters: d.clusters, Listeners: d.listeners, ConfigDump: d.config, Certs: d.certs, InitDump: d.waiting, Runtime: d.runtime,
		Options: p.options, Node: node, Logging: &admin.Logging{Level: p.level},
		Drain: p.drain, Quit: p.quitNow, ReopenLogs: p.plane.files.Reopen,
	}
	p.admin = a
	p.plane.admin.Store(a)
	p.stats()
	stops := []func(){}
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	if p.boot.Admin.IsValid() {
		l, err := net.Listen("tcp", p.boot.Admin.String())
		if err != nil {
			return nil, fmt.Errorf("opening the admin port: %w", err)
		}
		log, err := newAdminLog(p.plane, p.boot.AdminLogs)
		if err != nil {
			return nil, err
		}
		stops = append(stops, serveHTTP([]net.Listener{l}, log.around(a.Handler())))
	}
	if p.pod != nil {
		f, err := p.pod.servePages(ctx, p)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, f)
	}
	return stop, nil
}

// addresses are this machine's, without loopback and link-local ones.
func addresses() []netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.Addr())
		}
	}
	return out
}

func firstAddress() netip.Addr {
	if a := addresses(); len(a) > 0 {
		return a[0]
	}
	return netip.Addr{}
}
