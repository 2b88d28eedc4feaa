package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
)

// running is clusters on one running worker.
func running(t *testing.T, resolve ResolveFunc) *Clusters {
	t.Helper()
	w, err := worker.New(worker.Options{VisibleWait: true})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Workers: []*worker.Worker{w}, Sets: []*telemetry.Set{telemetry.NewSet()}, Resolve: resolve})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{w.Run, c.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

func (c *Clusters) addresses(name string) (out []string) {
	for _, s := range c.Describe() {
		if s.Config.Name == name {
			for _, h := range s.Hosts {
				out = append(out, h.Address)
			}
		}
	}
	return out
}

func eventually(t *testing.T, c *Clusters, name string, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if got = c.addresses(name); slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("hosts %v, want %v", got, want)
}

func named(kind config.DiscoveryType) *config.Snapshot {
	c := &config.Cluster{Meta: config.Meta{Name: "dns"}, ClusterOptions: &config.ClusterOptions{Type: kind}, Load: &config.LoadAssignment{Localities: []config.Locality{{
		Endpoints: []config.Endpoint{{Address: config.Address{Hostname: "svc.test", Port: 80}, Weight: 1}}}}}}
	return &config.Snapshot{Clusters: map[string]*config.Cluster{"dns": c}}
}

func TestStrictDNSTakesEveryAddressLogicalTheFirst(t *testing.T) {
	resolve := func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")}, nil
	}
	c := running(t, resolve)
	if err := c.Apply(t.Context(), named(config.StrictDNS)); err != nil {
		t.Fatal(err)
	}
	eventually(t, c, "dns", "192.0.2.1:80", "192.0.2.2:80")
	if err := c.Apply(t.Context(), named(config.LogicalDNS)); err != nil {
		t.Fatal(err)
	}
	eventually(t, c, "dns", "192.0.2.1:80")
}

func TestAFailedLookUpKeepsTheHosts(t *testing.T) {
	r, o := &resolution{}, &config.DNSOptions{Refresh: 2 * time.Second, FailureBase: time.Second, FailureMax: 4 * time.Second}
	fail := &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if got := r.pause(o, fail); got != want {
			t.Errorf("pause %d is %v, want %v", i, got, want)
		}
	}
	if got := r.pause(o, nil); got != 2*time.Second {
		t.Errorf("pause after success is %v", got)
	}
	if got := r.pause(&config.DNSOptions{Refresh: time.Nanosecond}, nil); got < time.Second {
		t.Errorf("pause of %v: a busy loop", got)
	}
}

func TestEjectionStaysWithinItsLimits(t *testing.T) {
	for _, c := range []struct {
		name    string
		hosts   int
		percent uint32
		always  bool
		want    int
	}{
		{"a tenth of two is nobody", 2, 10, false, 0}, {"unless one always may", 2, 10, true, 1}, {"60 percent of one is nobody", 1, 60, false, 0},
		{"75 percent of five", 5, 75, false, 3}, {"all", 3, 100, false, 3},
	} {
		x := &outlier{config: &config.Outlier{Enforce5xx: 100, MaxEjectionPercent: c.percent, AlwaysEjectOne: c.always, BaseEjection: time.Second}}
		sh := &shared{config: &config.Cluster{Meta: config.Meta{Name: "x"}, ClusterOptions: &config.ClusterOptions{}}, inUse: &inUse{outlier: x}}
		all := New(Options{})
		for range c.hosts {
			x.hosts = append(x.hosts, &hostState{health: &hostHealth{}})
		}
		for _, h := range x.hosts {
			all.eject(sh, h, by5xx, nil)
		}
		if x.active != c.want {
			t.Errorf("%s: %d ejected, want %d", c.name, x.active, c.want)
		}
	}
}

func TestConnectRefusals(t *testing.T) {
	c := running(t, nil)
	s := &config.Snapshot{Clusters: map[string]*config.Cluster{"empty": {Meta: config.Meta{Name: "empty"}, ClusterOptions: &config.ClusterOptions{}}}}
	if err := c.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	c.locals[0].worker.Post(func() {
		c.Local(0).Get("empty").Connect(&Query{}, func(_ *Stream, err error) { got <- err })
	})
	var r *Refusal
	if err := <-got; !errors.As(err, &r) || r.Flag != telemetry.UH {
		t.Errorf("%v, want UH", err)
	}
}
