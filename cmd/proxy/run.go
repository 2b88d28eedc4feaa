package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/xdsclient"
	"sluice/xdsclient/translate"
)

// settings are what a run is told, whichever command line it came from.
type settings struct {
	boot     *config.Bootstrap
	text     []byte // the bootstrap as given, for config_dump
	registry *translate.Registry
	log      *slog.Logger
	level    *slog.LevelVar
	plane    planeOptions
	options  map[string]any // the command line, for server_info
	dial     xdsclient.Dialer
	pod      *podSide // nil: not in a pod
}

// process is one running proxy: the data plane, the control path that feeds it,
// and the pages that show both.
type process struct {
	settings
	plane  *plane
	client *xdsclient.Client
	began  time.Time
	state  atomic.Int32
	applyE chan error // the first static configuration's error
	quit   context.CancelFunc
	atOnce atomic.Bool     // no drain on the way out
	life   context.Context // of the data plane
	later  sync.WaitGroup  // of drains that end later
	admin  *admin.Admin
	names  atomic.Pointer[config.NameTable]
}

// run is the whole of a proxy's life: start the workers, let the control path
// feed them, show both, serve until told to stop, drain, and leave nothing
// behind. Whatever is started here is waited for here.
func run(ctx context.Context, h host, s settings) error {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	p := &process{settings: s, began: time.Now(), quit: quit, applyE: make(chan error, 1)}
	p.setState(admin.PreInitializing)
	limitMemory(s.log, memlimit.FromCgroup)
	var err error
	if p.plane, err = newPlane(h, s.log, s.plane); err != nil {
		return err
	}
	p.log.Info("starting", "version", version, "workers", s.plane.workers, "node", s.boot.Node.ID, "admin", s.boot.Admin.String())
	// The data plane outlives the control path: requests go on while it drains.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.life = inner
	var wg sync.WaitGroup
	failed := make(chan error, 8)
	start := func(what string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(inner); err != nil && inner.Err() == nil {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	defer wg.Wait()
	defer p.later.Wait()
	defer stop()
	start("data plane", p.plane.Run)

	p.client = xdsclient.New(p.clientOptions(inner))
	pages, err := p.servePages(ctx)
	if err != nil {
		return err
	}
	defer pages()
	start("configuration", p.client.Run)
	if s.pod != nil && s.pod.source != nil {
		start("identity", s.pod.source.Run)
	}
	if s.pod != nil && s.pod.dns != nil {
		start("DNS", s.pod.dns.Run)
	}
	select {
	case <-ctx.Done():
	case err := <-failed:
		return err
	case err := <-p.applyE:
		return err
	}
	p.log.Info("ending", "because", context.Cause(ctx))
	p.terminate(inner)
	p.plane.deliver(inner)
	p.log.Info("exiting")
	return nil
}

// terminate is SIGTERM's way out: in a pod connections get time to end.
func (p *process) terminate(ctx context.Context) {
	p.setState(admin.Draining)
	if p.pod != nil && !p.atOnce.Load() {
		p.pod.terminate(ctx, p)
	}
}

func (p *process) setState(s admin.State) { p.state.Store(int32(s)) }

// clientOptions feed the control path's snapshots to the data plane.
func (p *process) clientOptions(ctx context.Context) xdsclient.Options {
	first := true
	o := xdsclient.Options{
		Node: p.boot.Node, ADS: p.boot.ADS, Static: &p.boot.Static, Translate: p.registry, Dial: p.dial,
		Logf: warner(p.log),
		Apply: func(s *config.Snapshot) {
			if p.names.Swap(s.Names) != s.Names && p.pod != nil {
				p.pod.named(s.Names)
			}
			err := p.plane.Apply(ctx, s)
			if err != nil && ctx.Err() == nil {
				if first && p.boot.ADS == nil {
					p.setState(admin.Draining) // it isn't to be called live, nor in force
					p.applyE <- err
				} else {
					p.log.Error("applying configuration", "error", err)
				}
			}
			first = false
		},
		Changed: p.changed,
	}
	if p.pod != nil {
		if o.NameTable = p.pod.dns != nil; p.pod.source != nil {
			o.Secrets = p.pod.source.Secrets()
		}
		o.StaticFirst, o.Peer = true, p.pod.agent.Text("discoveryAddress")
	}
	return o
}

// changed follows how far the control path has come.
func (p *process) changed(f xdsclient.Facts) {
	if admin.State(p.state.Load()) == admin.Draining {
		return
	}
	switch f.State() {
	case "LIVE":
		if admin.State(p.state.Swap(int32(admin.Live))) != admin.Live {
			p.log.Info("the configuration is in force", "after", time.Since(p.began).Round(time.Millisecond).String())
			p.plane.untrimmed.Store(true)
		}
	case "INITIALIZING":
		p.setState(admin.Initializing)
	}
	if p.pod != nil {
		p.pod.changed(f)
	}
}

// drain is /drain_listeners: inbound listeners, or all, tell their clients to go.
// They stop at once, or when graceful after the drain time, or with skipExit never.
// Outbound ones serve the application while inbound ones drain.
func (p *process) drain(inboundOnly, graceful, skipExit bool) {
	if err := p.plane.listeners.Drain(p.life, inboundOnly); err != nil {
		p.log.Error("draining", "error", err)
	}
	if skipExit {
		return
	}
	stop := func() {
		if err := p.plane.listeners.Close(p.life, inboundOnly); err != nil && p.life.Err() == nil {
			p.log.Error("closing listeners", "error", err)
		}
	}
	if !graceful {
		stop()
		return
	}
	p.later.Go(func() {
		t := time.NewTimer(p.settings.plane.drain)
		defer t.Stop()
		select {
		case <-t.C:
			stop()
		case <-p.life.Done():
		}
	})
}

// quitNow ends the process without a drain.
func (p *process) quitNow() {
	p.atOnce.Store(true)
	p.quit()
}

// serveHTTP serves on goroutines until the returned function has stopped it.
func serveHTTP(listeners []netListener, h http.Handler) (stop func()) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				slog.Error("serving pages", "error", err)
			}
		})
	}
	return func() {
		// Whoever asked for the end gets its answer.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		wg.Wait()
	}
}
