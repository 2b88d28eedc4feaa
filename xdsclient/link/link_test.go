package link_test

import (
	"fmt"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/xdsclient/link"
)

func accepted() *link.Accepted {
	return &link.Accepted{
		Static: &config.Snapshot{}, Clusters: map[string]*config.Cluster{}, Loads: map[string]*config.LoadAssignment{},
		Routes: map[string]*config.RouteConfiguration{}, Secrets: map[string]*config.Secret{},
		Extensions: map[string]config.HTTPPolicy{}, Settled: map[link.Part]bool{},
	}
}

func cluster(name string, hash uint64) *config.Cluster {
	return &config.Cluster{Meta: config.Meta{Name: name, Hash: hash}, EDSName: name, ClusterOptions: &config.ClusterOptions{Type: config.EDS, EDSTimeout: 15 * time.Second}}
}

func load(name string, hash uint64) *config.LoadAssignment {
	return &config.LoadAssignment{Meta: config.Meta{Name: name, Hash: hash}, Localities: []config.Locality{{}}}
}

func listener(name string, hash uint64, m *config.HTTPConnectionManager, secrets ...string) *config.Listener {
	c := &config.FilterChain{Filters: []config.NetworkFilter{m}}
	for _, s := range secrets {
		if c.TLS == nil {
			c.TLS = &config.DownstreamTLS{}
		}
		c.TLS.Certificates = append(c.TLS.Certificates, config.SecretRef{Name: s, Source: config.SecretADS, Wait: time.Second})
	}
	return &config.Listener{Meta: config.Meta{Name: name, Hash: hash}, Chains: []*config.FilterChain{c}}
}

func settled(c *config.Cluster) link.Part {
	return link.EndpointsOf(c)
}

func TestClusterWaitsForItsEndpointsWhileTheOldOneServes(t *testing.T) {
	a := accepted()
	v1 := cluster("a", 1)
	a.Clusters["a"] = v1
	s, waiting := link.Next(nil, a)
	if len(s.Clusters) != 0 || len(waiting) != 1 || waiting[0].Part != settled(v1) || waiting[0].Timeout != 15*time.Second {
		t.Fatalf("a new cluster enters without endpoints: %+v, waiting %+v", s.Clusters, waiting)
	}
	a.Loads["a"] = load("a", 1)
	a.Settled[settled(v1)] = true
	s, waiting = link.Next(s, a)
	if len(waiting) != 0 || s.Clusters["a"].Load != a.Loads["a"] || v1.Load != nil {
		t.Fatalf("linked %+v, waiting %+v", s.Clusters["a"], waiting)
	}
	v2 := cluster("a", 2)
	a.Clusters["a"] = v2
	a.Loads["a"] = load("a", 2)
	s, waiting = link.Next(s, a)
	if got := s.Clusters["a"]; len(waiting) != 1 || got.Hash != 1 || got.Load != a.Loads["a"] {
		t.Fatalf("while version 2 warms: %+v, waiting %+v", got, waiting)
	}
	a.Settled[settled(v2)] = true
	if s, _ = link.Next(s, a); s.Clusters["a"].Hash != 2 {
		t.Fatalf("got %+v", s.Clusters["a"])
	}
}

func TestWaitThatRanOutEntersWithNothing(t *testing.T) {
	a := accepted()
	c := cluster("a", 1)
	a.Clusters["a"] = c
	a.Settled[settled(c)] = true
	s, waiting := link.Next(nil, a)
	if len(waiting) != 0 || s.Clusters["a"].Load == nil || len(s.Clusters["a"].Load.Localities) != 0 {
		t.Fatalf("got %+v, waiting %+v", s.Clusters["a"], waiting)
	}
	again, _ := link.Next(s, a)
	if again.Clusters["a"] != s.Clusters["a"] {
		t.Error("an unchanged cluster got a new pointer")
	}
}

func TestListenerWaitsForEveryPart(t *testing.T) {
	a := accepted()
	m := &config.HTTPConnectionManager{RouteName: "r", RDSInitialTimeout: 0, Filters: []config.HTTPFilter{{Name: "e", Discovery: &config.Discovery{Timeout: time.Second}}}}
	a.Listeners = []*config.Listener{listener("l", 1, m, "cert")}
	parts := []struct {
		part  link.Part
		bring func()
	}{
		{link.Part{Kind: link.KindRoutes, Name: "r"}, func() { a.Routes["r"] = &config.RouteConfiguration{Meta: config.Meta{Name: "r"}} }},
		{link.Part{Kind: link.KindSecrets, Name: "cert"}, func() { a.Secrets["cert"] = &config.Secret{} }},
		{link.Part{Kind: link.KindExtensions, Name: "e"}, func() { a.Extensions["e"] = &config.Buffer{MaxBytes: 1} }},
	}
	for i, p := range parts {
		s, waiting := link.Next(nil, a)
		if len(s.Listeners) != 0 || len(waiting) != len(parts)-i {
			t.Fatalf("step %d: %d listeners, waiting %+v", i, len(s.Listeners), waiting)
		}
		found := false
		for _, w := range waiting {
			found = found || w.Part == p.part && w.Resource == "l" && !w.Cluster
		}
		if !found {
			t.Errorf("%v isn't waited for: %+v", p.part, waiting)
		}
		p.bring()
	}
	s, waiting := link.Next(nil, a)
	if len(s.Listeners) != 1 || len(waiting) != 0 {
		t.Fatalf("whole, but %d listeners, waiting %+v", len(s.Listeners), waiting)
	}
	got := link.Managers(s.Listeners[0])[0].Filters[0].Policy
	if got != a.Extensions["e"] || m.Filters[0].Policy != nil {
		t.Errorf("discovered policy %v; the accepted value may not change", got)
	}
	again, _ := link.Next(s, a)
	if again.Listeners[0] != s.Listeners[0] {
		t.Error("an unchanged listener got a new pointer")
	}
	a.Extensions["e"] = &config.Buffer{MaxBytes: 2}
	if changed, _ := link.Next(again, a); changed.Listeners[0] == s.Listeners[0] {
		t.Error("a new filter config left the listener as it was")
	}
}

func TestFilterConfigReachesTheListenerThatServesWhileItsNextVersionWaits(t *testing.T) {
	a := accepted()
	m := &config.HTTPConnectionManager{Filters: []config.HTTPFilter{{Name: "e", Discovery: &config.Discovery{}}}}
	a.Extensions["e"] = &config.Buffer{MaxBytes: 1}
	a.Listeners = []*config.Listener{listener("l", 1, m)}
	s, _ := link.Next(nil, a)
	a.Listeners = []*config.Listener{listener("l", 2, &config.HTTPConnectionManager{RouteName: "r", Filters: m.Filters})}
	waits, waiting := link.Next(s, a)
	if len(waiting) != 1 || waits.Listeners[0] != s.Listeners[0] {
		t.Fatalf("the next version waits, yet %+v serves; waiting %+v", waits.Listeners[0], waiting)
	}
	a.Extensions["e"] = &config.Buffer{MaxBytes: 2}
	fresh, waiting := link.Next(waits, a)
	if got := fresh.Listeners[0]; len(waiting) != 1 || got.Hash != 1 || link.Managers(got)[0].Filters[0].Policy != a.Extensions["e"] {
		t.Errorf("%+v serves, waiting %+v", got, waiting)
	}
}

func TestDefaultOfADiscoveredFilterServesAtOnceWhenItMay(t *testing.T) {
	a := accepted()
	def := &config.Buffer{MaxBytes: 1}
	m := &config.HTTPConnectionManager{Filters: []config.HTTPFilter{{Name: "e", Discovery: &config.Discovery{Default: def, WithoutWarming: true}}}}
	a.Listeners = []*config.Listener{listener("l", 1, m)}
	s, waiting := link.Next(nil, a)
	if len(waiting) != 0 || link.Managers(s.Listeners[0])[0].Filters[0].Policy != config.HTTPPolicy(def) {
		t.Errorf("waiting %+v", waiting)
	}
}

func TestRouteToAnUnknownClusterDoesNotWait(t *testing.T) {
	a := accepted()
	a.Routes["r"] = &config.RouteConfiguration{Meta: config.Meta{Name: "r"}, VirtualHosts: []*config.VirtualHost{{Routes: []*config.Route{{Action: &config.RouteAction{Cluster: "nowhere"}}}}}}
	a.Listeners = []*config.Listener{listener("l", 1, &config.HTTPConnectionManager{RouteName: "r"})}
	if s, waiting := link.Next(nil, a); len(s.Listeners) != 1 || len(waiting) != 0 {
		t.Errorf("waiting %+v", waiting)
	}
}

func TestStaticNamesCanNotBeOverridden(t *testing.T) {
	a := accepted()
	static := &config.Cluster{Meta: config.Meta{Name: "a", Hash: 1}, ClusterOptions: &config.ClusterOptions{}}
	a.Static = &config.Snapshot{Clusters: map[string]*config.Cluster{"a": static}}
	a.Clusters["a"] = &config.Cluster{Meta: config.Meta{Name: "a", Hash: 2}, ClusterOptions: &config.ClusterOptions{}}
	if s, _ := link.Next(nil, a); s.Clusters["a"] != static {
		t.Error("a received cluster replaced a static one")
	}
}

func TestEndpointsLieOverTheCompleteSnapshotUntilTheyAreMany(t *testing.T) {
	a := accepted()
	names := []string{}
	for i := range 200 {
		c := cluster(fmt.Sprint("c", i), 1)
		a.Clusters[c.Name], a.Loads[c.Name], a.Settled[settled(c)] = c, load(c.Name, 1), true
		names = append(names, c.Name)
	}
	s, _ := link.Next(nil, a)
	whole := s
	for i, name := range names {
		a.Loads[name] = load(name, 2)
		before := s
		if s = link.Endpoints(s, a, []string{name}); s == before || s.Cluster(name).Load != a.Loads[name] || before.Cluster(name).Load == a.Loads[name] {
			t.Fatalf("change %d: %+v", i, s.Cluster(name))
		}
		if i == 0 && (s.Base != whole || len(s.Clusters) != 1) {
			t.Errorf("the first change copied %d clusters", len(s.Clusters))
		}
		if n := len(s.Clusters); s.Base != nil && n > 100 || s.Base == nil && n != 200 {
			t.Fatalf("change %d: %d clusters, complete: %v", i, n, s.Base == nil)
		}
		for _, other := range names {
			if c := s.Cluster(other); c == nil || c.Load != a.Loads[other] {
				t.Fatalf("change %d: %s has %+v", i, other, c)
			}
		}
	}
	if same := link.Endpoints(s, a, names); same != s {
		t.Error("nothing changed, yet a new snapshot")
	}
}

func TestRoutesLieOverTheCompleteSnapshot(t *testing.T) {
	a := accepted()
	c := cluster("c", 1)
	a.Clusters["c"], a.Loads["c"], a.Settled[settled(c)] = c, load("c", 1), true
	table := func(hash uint64) *config.RouteConfiguration {
		return &config.RouteConfiguration{Meta: config.Meta{Name: "r", Hash: hash}}
	}
	a.Routes["r"], a.Routes["other"] = table(1), &config.RouteConfiguration{Meta: config.Meta{Name: "other", Hash: 1}}
	whole, _ := link.Next(nil, a)
	before := a.Routes["r"]
	a.Routes["r"] = table(1)
	if s := link.Routes(whole, a); s != whole {
		t.Error("the same bytes made a new snapshot")
	}
	a.Routes["r"] = table(2)
	s := link.Routes(whole, a)
	if s.Base != whole || s.Routes["r"] != a.Routes["r"] || s.Routes["other"] != a.Routes["other"] || whole.Routes["r"] != before || s.Cluster("c") != whole.Cluster("c") {
		t.Errorf("routes over the complete snapshot: %+v", s)
	}
	a.Loads["c"] = load("c", 2)
	after := link.Endpoints(s, a, []string{"c"})
	if after.Base != whole || after.Routes["r"] != a.Routes["r"] || after.Cluster("c").Load != a.Loads["c"] {
		t.Errorf("endpoints over those: %+v", after)
	}
	a.Routes["r"] = table(3)
	if s := link.Routes(after, a); s.Base != whole || s.Routes["r"] != a.Routes["r"] || s.Cluster("c") != after.Cluster("c") {
		t.Errorf("routes over those: %+v", s)
	}
}
