package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/admin"
	"sluice/internal/config"
)

// settings are what a run is told, whichever command line it came from.
type settings struct {
	boot    *config.Bootstrap
	text    []byte // the bootstrap as given, for config_dump
	log     *slog.Logger
	level   *slog.LevelVar
	plane   planeOptions
	options map[string]any
}

// process is one running proxy: the data plane, the control path that feeds it,
// and the pages that show both.
type process struct {
	settings
	plane *plane
	began time.Time
	state atomic.Int32
	quit  context.CancelFunc
	dump  dumper
}

// run is the whole of a proxy's life: apply what is static, let the control
// path feed the rest, serve until told to stop, drain, and leave nothing behind.
func run(ctx context.Context, h host, s settings) error {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	p := &process{settings: s, began: time.Now(), quit: quit}
	p.setState(admin.PreInitializing)
	var err error
	if p.plane, err = newPlane(h, s.log, s.plane); err != nil {
		return err
	}
	planeCtx, stopPlane := context.WithCancel(context.WithoutCancel(ctx))
	planeDone := make(chan error, 1)
	go func() { planeDone <- p.plane.Run(planeCtx) }()
	defer stopPlane()

	pages, err := p.servePages(ctx)
	if err != nil {
		return err
	}
	p.setState(admin.Initializing)
	if err := p.plane.Apply(ctx, &s.boot.Static); err != nil {
		stopPlane()
		return errors.Join(err, <-planeDone)
	}
	p.setState(admin.Live)
	select {
	case <-ctx.Done():
	case err := <-planeDone:
		return fmt.Errorf("a worker ended: %w", err)
	}
	p.setState(admin.Draining)
	stopPlane()
	err = <-planeDone
	pages()
	return err
}

func (p *process) setState(s admin.State) { p.state.Store(int32(s)) }

// servePages serves the admin port. The function it returns stops it and waits.
func (p *process) servePages(ctx context.Context) (stop func(), err error) {
	node, err := json.Marshal(map[string]any{"id": p.boot.Node.ID, "cluster": p.boot.Node.Cluster, "metadata": p.boot.Node.Metadata})
	if err != nil {
		return nil, fmt.Errorf("writing the node as JSON: %w", err)
	}
	a := &admin.Admin{
		Version: "sluice/" + version, Began: p.began, State: func() admin.State { return admin.State(p.state.Load()) }, Metrics: p.plane.metrics,
		Clusters: p.dump.clusters, Listeners: p.dump.listeners, ConfigDump: p.dump.config, Certs: p.dump.certs, InitDump: p.dump.waiting,
		Options: p.options, Node: node, Logging: &admin.Logging{Level: p.level},
		Drain: func(inboundOnly, _, _ bool) { _ = p.plane.listeners.Drain(ctx, inboundOnly) },
		Quit:  p.quit,
	}
	p.dump.process = p
	p.stats()
	if !p.boot.Admin.IsValid() {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", p.boot.Admin.String())
	if err != nil {
		return nil, fmt.Errorf("opening the admin port: %w", err)
	}
	return serveHTTP(l, a.Handler()), nil
}

// serveHTTP serves on a goroutine until the returned function has stopped it.
func serveHTTP(l net.Listener, h http.Handler) (stop func()) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	return func() {
		_ = srv.Close()
		wg.Wait()
	}
}

// firstAddress is this machine's first address that isn't loopback or link-local.
func firstAddress() netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}
