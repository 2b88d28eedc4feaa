package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
)

// mesh is a snapshot of n clusters with one endpoint each, at a port.
func mesh(n int, hash uint64, port uint16) *config.Snapshot {
	s := &config.Snapshot{Clusters: map[string]*config.Cluster{}}
	for i := range n {
		c := &config.Cluster{Meta: config.Meta{Name: fmt.Sprint("c", i), Hash: hash}, ClusterOptions: &config.ClusterOptions{Type: config.EDS}, Load: &config.LoadAssignment{
			Meta: config.Meta{Hash: uint64(port)}, Localities: []config.Locality{{Endpoints: []config.Endpoint{{
				Address: config.Address{IP: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)}, Weight: 1}}}}}}
		s.Clusters[c.Name] = c
	}
	return s
}

// quiet is clusters without statistics on n running workers.
func quiet(t *testing.T, n int) *Clusters {
	t.Helper()
	o := Options{Keep: func(string) bool { return false }}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range n {
		w, err := worker.New(worker.Options{Index: i, VisibleWait: true})
		if err != nil {
			t.Fatal(err)
		}
		o.Workers, o.Sets = append(o.Workers, w), append(o.Sets, telemetry.NewSet())
		wg.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return New(o)
}

// on runs f on a worker and waits.
func (c *Clusters) on(worker int, f func(*Local)) {
	done := make(chan struct{})
	c.locals[worker].worker.Post(func() { f(c.locals[worker]); close(done) })
	<-done
}

// port is where a worker's part of a cluster leads, 0 when there is none.
func (c *Clusters) port(worker int, name string) (port uint16) {
	c.on(worker, func(l *Local) {
		if k := l.Get(name); k != nil {
			port = k.Pick(&Query{}).Addr.Port()
		}
	})
	return port
}

func TestADormantClusterIsMadeByItsFirstUserAndFollowsFromThen(t *testing.T) {
	c := quiet(t, 2)
	parts := func() (n int) {
		for i := range c.locals {
			c.on(i, func(l *Local) { n += len(l.clusters) })
		}
		return n
	}
	step := func(what string, s *config.Snapshot, wantParts int, want uint16) {
		t.Helper()
		if err := c.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if n := parts(); n != wantParts {
			t.Errorf("%s: %d parts on workers, want %d", what, n, wantParts)
		}
		if p := c.port(0, "c1"); p != want {
			t.Errorf("%s: port %d, want %d", what, p, want)
		}
	}
	step("nobody has used it", mesh(3, 1, 80), 0, 80)
	if got := c.addresses("c2"); len(got) != 1 || got[0] != "192.0.2.1:80" {
		t.Errorf("a dormant cluster is described with hosts %v", got)
	}
	step("its endpoints change", mesh(3, 1, 81), 1, 81)
	step("it is another cluster", mesh(3, 2, 82), 1, 82)
	step("the other worker's is none", mesh(3, 2, 83), 1, 83)
	if p := c.port(1, "c1"); p != 83 {
		t.Errorf("the second worker's first use: port %d", p)
	}
	step("both follow", mesh(3, 2, 84), 2, 84)
	step("it is gone", mesh(1, 2, 85), 0, 0)
	step("it is back", mesh(3, 3, 86), 0, 86)
	if p := c.port(1, "unknown"); p != 0 {
		t.Errorf("an unknown cluster leads to port %d", p)
	}
}

func TestFirstUseWhileClustersChange(t *testing.T) {
	c := quiet(t, 2)
	if err := c.Apply(t.Context(), mesh(50, 1, 1)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 2000 {
				if c.port(w, fmt.Sprint("c", i%50)) == 0 {
					t.Error("a cluster was missing while it changed")
					return
				}
			}
		})
	}
	for i := range 200 {
		if err := c.Apply(t.Context(), mesh(50, uint64(1+i/20), uint16(2+i))); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	for w := range 2 {
		for i := range 50 {
			if p := c.port(w, fmt.Sprint("c", i)); p != 201 {
				t.Fatalf("worker %d cluster %d leads to port %d", w, i, p)
			}
		}
	}
}

func TestAChangeOfOneClusterLooksAtThatOne(t *testing.T) {
	for _, n := range []int{10, 2000} {
		c := quiet(t, 1)
		whole := mesh(n, 1, 80)
		if err := c.Apply(t.Context(), whole); err != nil {
			t.Fatal(err)
		}
		c.port(0, "c1")
		changed := mesh(2, 1, 81)
		delete(changed.Clusters, "c0")
		changed.Base = whole
		if err := c.Apply(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		if p, other := c.port(0, "c1"), c.port(0, "c0"); p != 81 || other != 80 {
			t.Errorf("of %d clusters the changed leads to port %d, another to %d", n, p, other)
		}
		if allocs := testing.AllocsPerRun(20, func() {
			if err := c.Apply(t.Context(), changed); err != nil {
				t.Error(err)
			}
		}); allocs > 10 {
			t.Errorf("applying a change of one of %d clusters allocates %v times", n, allocs)
		}
	}
}

// TestBytesOfADormantCluster is what a cluster takes here beside its
// configuration. Raise the ceiling only with a reason in the same change.
func TestBytesOfADormantCluster(t *testing.T) {
	const n = 5000
	c, s := quiet(t, 1), mesh(n, 1, 80)
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	if err := c.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	bytes := (live() - before) / n
	t.Logf("a dormant cluster takes %d bytes", bytes)
	if bytes > 260 {
		t.Errorf("a dormant cluster takes %d bytes, more than 260", bytes)
	}
	runtime.KeepAlive(c)
}
