package xdsclient_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"sluice/internal/config"
	"sluice/internal/identity"
	"sluice/internal/meshtest"
	"sluice/xdsclient"
	"sluice/xdsclient/translate"
)

// message parses YAML, for a test reads better than a builder.
func message[M proto.Message](t *testing.T, m M, text string) M {
	t.Helper()
	if err := translate.Message([]byte(text), m, false); err != nil {
		t.Fatal(err)
	}
	return m
}

func edsCluster(t *testing.T, name, timeout string) types.Resource {
	return message(t, &clusterv3.Cluster{}, fmt.Sprintf(
		`{name: %s, type: EDS, connect_timeout: %s, eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}}`, name, timeout))
}

func assignment(t *testing.T, name string, port int) types.Resource {
	return message(t, &endpoint.ClusterLoadAssignment{}, fmt.Sprintf(
		`{cluster_name: %s, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}`, name, port))
}

func rdsListener(t *testing.T, name string, port int, table string) types.Resource {
	return message(t, &listener.Listener{}, fmt.Sprintf(`
name: %s
address: {socket_address: {address: 127.0.0.1, port_value: %d}}
filter_chains:
- filters:
  - name: hcm
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: in
      rds: {route_config_name: %s, config_source: {ads: {}, resource_api_version: V3}}
      http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
`, name, port, table))
}

func table(t *testing.T, name, match string) types.Resource {
	return message(t, &route.RouteConfiguration{}, fmt.Sprintf(
		`{name: %s, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {%s}, route: {cluster: a}}]}]}`, name, match))
}

// rig is a plane, a client and the snapshots it applied.
type rig struct {
	t      *testing.T
	plane  *meshtest.Plane
	client *xdsclient.Client
	snaps  chan *config.Snapshot
}

func start(t *testing.T, delta bool) *rig {
	t.Helper()
	plane, err := meshtest.Start(meshtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, plane: plane, snaps: make(chan *config.Snapshot, 256)}
	r.client = xdsclient.New(xdsclient.Options{
		Node: config.Node{ID: "n", Cluster: "c"},
		ADS:  &config.ADS{Delta: delta, Cluster: "xds", CDS: true, LDS: true, NodeOnce: true},
		Dial: func(context.Context) (*grpc.ClientConn, error) {
			return grpc.NewClient("passthrough:///"+plane.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		},
		Translate: translate.Default(), Logf: t.Logf,
		Apply: func(s *config.Snapshot) { r.snaps <- s },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Error("Run doesn't end")
		}
		r.plane.Close()
	})
	return r
}

func (r *rig) set(version string, res meshtest.Resources) {
	r.t.Helper()
	if err := r.plane.Set(version, res); err != nil {
		r.t.Fatal(err)
	}
}

// until takes snapshots until one fits.
func (r *rig) until(what string, fits func(*config.Snapshot) bool) *config.Snapshot {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case s := <-r.snaps:
			if fits(s) {
				return s
			}
		case <-deadline:
			st, err := r.client.Status(context.Background())
			r.t.Fatalf("no snapshot with %s; status %+v %v", what, st, err)
		}
	}
}

func port(s *config.Snapshot, cluster string) uint16 {
	c := s.Clusters[cluster]
	if c == nil || c.Load == nil || len(c.Load.Localities) == 0 {
		return 0
	}
	return c.Load.Localities[0].Endpoints[0].Address.IP.Port()
}

func bothForms(t *testing.T, f func(*testing.T, *rig)) {
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%v", delta), func(t *testing.T) { f(t, start(t, delta)) })
	}
}

func whole(t *testing.T, endpointPort int) meshtest.Resources {
	return meshtest.Resources{
		Clusters:  []types.Resource{edsCluster(t, "a", "5s")},
		Endpoints: []types.Resource{assignment(t, "a", endpointPort)},
		Listeners: []types.Resource{rdsListener(t, "in", 18080, "r")},
		Routes:    []types.Resource{table(t, "r", "prefix: /")},
	}
}

func TestFirstConfigurationIsWholeBeforeListenersServe(t *testing.T) {
	bothForms(t, func(t *testing.T, r *rig) {
		r.set("1", whole(t, 1001))
		s := r.until("a listener", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 })
		if port(s, "a") != 1001 || s.Routes["r"] == nil {
			t.Errorf("the listener serves before its parts: %+v", s)
		}
		st, err := r.client.Status(t.Context())
		if err != nil || !st.Live || !st.Connected || st.State() != "LIVE" || st.Missing() != "" {
			t.Errorf("status %+v, %v", st.Facts, err)
		}
		if got := r.plane.Node().GetId(); got != "n" {
			t.Errorf("node id %q", got)
		}
	})
}

func TestEndpointChangeRelinksOnlyItsCluster(t *testing.T) {
	bothForms(t, func(t *testing.T, r *rig) {
		r.set("1", whole(t, 1001))
		before := r.until("a listener", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 })
		r.set("2", whole(t, 1002))
		after := r.until("the new endpoint", func(s *config.Snapshot) bool { return port(s, "a") == 1002 })
		if before.Listeners[0] != after.Listeners[0] || before.Routes["r"] != after.Routes["r"] {
			t.Error("an endpoint change made a new listener or route table")
		}
		if before.Clusters["a"] == after.Clusters["a"] || port(before, "a") != 1001 {
			t.Error("the old snapshot's cluster changed")
		}
	})
}

func TestRefusedResourceIsNamedAndTheOldOneServes(t *testing.T) {
	bothForms(t, func(t *testing.T, r *rig) {
		r.set("1", whole(t, 1001))
		good := r.until("a listener", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 })
		bad := whole(t, 1003)
		bad.Routes = []types.Resource{table(t, "r", `safe_regex: {regex: "("}`)}
		r.set("2", bad)
		s := r.until("the new endpoint", func(s *config.Snapshot) bool { return port(s, "a") == 1003 })
		deadline := time.Now().Add(5 * time.Second)
		for len(r.plane.NACKs()) == 0 && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		nacks := strings.Join(r.plane.NACKs(), "\n")
		if !strings.Contains(nacks, `RDS "r": virtual_hosts[0].routes[0].match.safe_regex: invalid regex`) {
			t.Errorf("NACK: %s", nacks)
		}
		if s.Routes["r"] != good.Routes["r"] {
			t.Error("the old route table doesn't serve")
		}
		st, err := r.client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range st.Types {
			if k.Type == "RDS" && (k.Refusal == "" || len(k.Refused) != 1 || k.Refused[0].Name != "r") {
				t.Errorf("status doesn't show the refusal: %+v", k)
			}
		}
	})
}

func TestLostControlPlaneChangesNothingAndIsFoundAgain(t *testing.T) {
	bothForms(t, func(t *testing.T, r *rig) {
		r.set("1", whole(t, 1001))
		r.until("a listener", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 })
		address := r.plane.Address
		r.plane.Close()
		for st, _ := r.client.Status(t.Context()); st.Connected; st, _ = r.client.Status(t.Context()) {
			time.Sleep(5 * time.Millisecond)
		}
		select {
		case s := <-r.snaps:
			t.Errorf("losing the control plane applied %+v", s)
		case <-time.After(100 * time.Millisecond):
		}
		plane, err := meshtest.Start(meshtest.Options{Listen: address})
		if err != nil {
			t.Fatal(err)
		}
		r.plane = plane
		r.set("2", whole(t, 1002))
		r.until("the new endpoint", func(s *config.Snapshot) bool { return port(s, "a") == 1002 && len(s.Listeners) == 1 })
	})
}

func TestRemovedClusterAndListenerGo(t *testing.T) {
	bothForms(t, func(t *testing.T, r *rig) {
		r.set("1", whole(t, 1001))
		r.until("a listener", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 })
		r.set("2", meshtest.Resources{Clusters: []types.Resource{edsCluster(t, "b", "5s")}, Endpoints: []types.Resource{assignment(t, "b", 1004)}})
		s := r.until("only the new cluster", func(s *config.Snapshot) bool {
			return len(s.Listeners) == 0 && s.Clusters["a"] == nil && port(s, "b") == 1004
		})
		if len(s.Clusters) != 1 {
			t.Errorf("clusters %v", s.Clusters)
		}
	})
}

func TestUnknownADSClusterIsRefusedInEnvoysWords(t *testing.T) {
	_, err := xdsclient.ClusterDialer(&config.Snapshot{}, "xds", nil)
	if err == nil || err.Error() != "Unknown gRPC client cluster 'xds'" {
		t.Errorf("got %v", err)
	}
}

func TestReasonForNoStreamIsTold(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	plane, err := meshtest.Start(meshtest.Options{CA: ca, Token: "good"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"token": []byte("stale"), "root": ca.RootPEM} {
		if err := os.WriteFile(dir+"/"+name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	peer := &identity.Peer{Address: plane.Address, RootFile: dir + "/root", TokenFile: dir + "/token"}
	c := xdsclient.New(xdsclient.Options{
		Node: config.Node{ID: "n"}, ADS: &config.ADS{Delta: true, Cluster: "xds-grpc", CDS: true, LDS: true},
		Dial: peer.Dial, Translate: translate.Default(), Logf: t.Logf,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	problem := func(want string) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for {
			st, err := c.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(st.Problem, want) && (want != "" || st.Problem == "" && st.Connected) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("problem %q, want %q", st.Problem, want)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	problem("token rejected: authentication failure")
	if err := os.WriteFile(dir+"/token", []byte("good"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plane.Set("1", whole(t, 1001)); err != nil {
		t.Fatal(err)
	}
	problem("")
	plane.Close()
	problem("connection refused: xds-grpc")
}
