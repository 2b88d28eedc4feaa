package xdsclient

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice/internal/config"
	"sluice/internal/meshtest"
	"sluice/xdsclient/translate"
)

const forEver = `{ads: {}, initial_fetch_timeout: 0s, resource_api_version: V3}`

// needy drives a client without a stream, with a clock of its own.
type needy struct {
	*Client
	t    *testing.T
	now  time.Time
	pair string
	n    int
}

// idle is a client that has received nothing.
func idle(t *testing.T) *needy {
	t.Helper()
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	d := &needy{t: t, now: time.Now(), pair: inlinePair(t, ca)}
	d.Client = New(Options{ADS: &config.ADS{Delta: true, Cluster: "x", CDS: true, LDS: true}, Translate: translate.Default(),
		Now: func() time.Time { return d.now }, ReleaseAfter: time.Minute})
	return d
}

// steps bring all that serving has, by the names of what comes.
func (d *needy) steps(but string, instead func()) {
	for _, s := range []struct {
		name string
		push func()
	}{
		{"a", func() { d.cluster("a", "s1", "own1") }},
		{"own1", func() { d.secret("own1") }},
		{"s1", func() { d.load("s1", 80) }},
		{"l", func() { d.listener("r1", "cert1") }},
		{"r1", func() { d.table("r1") }},
		{"cert1", func() { d.secret("cert1") }},
		{"e", func() { d.filter("e", 1) }},
	} {
		if s.name == but {
			instead()
		} else {
			s.push()
		}
	}
}

// serving is a client that is live: listener l with a certificate and a
// discovered filter leads by a route table to cluster a, which has a certificate
// and an assignment.
func serving(t *testing.T) *needy {
	t.Helper()
	d := idle(t)
	d.steps("", nil)
	if !d.facts.Live || len(d.snapshot.Listeners) != 1 || len(d.waiting) != 0 {
		t.Fatalf("not live: %+v, waiting %+v", d.facts, d.waiting)
	}
	return d
}

// push takes one resource in the incremental form; bytes are those of m.
func (d *needy) push(url, name string, m proto.Message, yaml string) {
	d.t.Helper()
	d.send(url, name, fromYAML(d.t, m, yaml))
}

func (d *needy) send(url, name string, body []byte) {
	d.n++
	v := fmt.Sprint(d.n)
	d.answer(&answer{url: url, version: v, nonce: v, resources: []received{{name: name, version: v, body: &anypb.Any{TypeUrl: url, Value: body}}}})
}

func (d *needy) cluster(name, assignment, secret string) {
	d.push(translate.ClusterURL, name, &clusterv3.Cluster{}, fmt.Sprintf(`
name: %s
type: EDS
eds_cluster_config: {service_name: %s, eds_config: %s}
transport_socket:
  name: tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    common_tls_context: {tls_certificate_sds_secret_configs: [{name: %s, sds_config: %[3]s}]}
`, name, assignment, forEver, secret))
}

func (d *needy) load(name string, port int) {
	d.push(translate.EndpointURL, name, &endpoint.ClusterLoadAssignment{}, fmt.Sprintf(
		`{cluster_name: %s, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}`, name, port))
}

func (d *needy) listener(table, secret string) {
	d.push(translate.ListenerURL, "l", &listenerv3.Listener{}, fmt.Sprintf(`
name: l
address: {socket_address: {address: 127.0.0.1, port_value: 18080}}
filter_chains:
- transport_socket:
    name: tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
      common_tls_context: {tls_certificate_sds_secret_configs: [{name: %[3]s, sds_config: %[2]s}]}
  filters:
  - name: hcm
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: in
      rds: {route_config_name: %[1]s, config_source: %[2]s}
      http_filters:
      - {name: e, config_discovery: {config_source: %[2]s, type_urls: [type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer]}}
      - {name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
`, table, forEver, secret))
}

func (d *needy) table(name string) {
	d.push(translate.RouteURL, name, &routev3.RouteConfiguration{}, fmt.Sprintf(
		`{name: %s, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: a}}]}]}`, name))
}

func (d *needy) filter(name string, bytes int) {
	d.push(translate.ExtensionURL, name, &core.TypedExtensionConfig{}, fmt.Sprintf(
		`{name: %s, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: %d}}`, name, bytes))
}

func (d *needy) secret(name string) {
	d.push(translate.SecretURL, name, &tlsv3.Secret{}, fmt.Sprintf(`{name: %s, tls_certificate: %s}`, name, d.pair))
}

// later is after everything that lingers has been let go, unrelated clusters
// having come.
func (d *needy) later() {
	for i := range 3 {
		d.push(translate.ClusterURL, "other", &clusterv3.Cluster{}, fmt.Sprintf(`{name: other, type: STATIC, connect_timeout: %ds}`, i+1))
		d.now = d.now.Add(2 * time.Minute)
		d.fire()
	}
}

// served gives the port that cluster a has, 0 for none.
func (d *needy) served() int {
	x := d.snapshot.Cluster("a")
	if x == nil || x.Load == nil || len(x.Load.Localities) == 0 {
		return 0
	}
	return int(x.Load.Localities[0].Endpoints[0].Address.IP.Port())
}

func TestWhatServesKeepsWhatItNamesUntilItsNextVersionIsWhole(t *testing.T) {
	tests := map[string]struct {
		kind       kind
		old, fresh string
		change     func(*needy) // names fresh in place of old
		arrives    func(*needy)
	}{
		"the assignment of a cluster": {eds, "s1", "s2",
			func(d *needy) { d.cluster("a", "s2", "own1") }, func(d *needy) { d.load("s2", 81) }},
		"the secret of a cluster": {sds, "own1", "own2",
			func(d *needy) { d.cluster("a", "s1", "own2"); d.load("s1", 81) }, func(d *needy) { d.secret("own2") }},
		"the route table of a listener": {rds, "r1", "r2",
			func(d *needy) { d.listener("r2", "cert1") }, func(d *needy) { d.table("r2") }},
		"the secret of a listener": {sds, "cert1", "cert2",
			func(d *needy) { d.listener("r1", "cert2") }, func(d *needy) { d.secret("cert2") }},
	}
	for rule, tt := range tests {
		t.Run(rule, func(t *testing.T) {
			d := serving(t)
			holds := func(when, name string, want bool) {
				t.Helper()
				k := d.kinds[tt.kind]
				held := d.accepted.Loads[name] != nil || d.snapshot.Routes[name] != nil || d.snapshot.Secrets[name] != nil
				if held != want || k.names[name] != want {
					t.Errorf("%s: %s held: %v, subscribed: %v; want %v", when, name, held, k.names[name], want)
				}
			}
			tt.change(d)
			d.later()
			if len(d.waiting) == 0 || d.served() == 0 {
				t.Errorf("while %s is awaited the cluster has port %d; waiting %+v", tt.fresh, d.served(), d.waiting)
			}
			holds("while the next version waits", tt.old, true)
			tt.arrives(d)
			if len(d.waiting) != 0 {
				t.Fatalf("waiting %+v", d.waiting)
			}
			holds("once it is whole", tt.fresh, true)
			d.later()
			holds("once nothing names it", tt.old, false)
		})
	}
}

func TestEndpointsReachTheClusterThatServesWhileItsNextVersionWaits(t *testing.T) {
	d := serving(t)
	d.cluster("a", "s2", "own1")
	d.load("s1", 90)
	if d.served() != 90 || !d.warming() {
		t.Errorf("port %d, warming %v", d.served(), d.warming())
	}
	d.load("s2", 91)
	if d.served() != 91 || d.warming() {
		t.Errorf("port %d, warming %v", d.served(), d.warming())
	}
}

func TestAssignmentThatWasGivenUpIsWaitedForAgain(t *testing.T) {
	d := serving(t)
	for i, s := range []string{"s2", "s1", "s2"} {
		d.cluster("a", s, "own1")
		if d.served() != 80+i || !d.warming() {
			t.Errorf("%s named: port %d, warming %v", s, d.served(), d.warming())
		}
		d.load(s, 81+i)
		if d.served() != 81+i || d.warming() {
			t.Errorf("%s came: port %d, warming %v", s, d.served(), d.warming())
		}
	}
}

func TestVersionThatServesIsTakenBackWithoutAWait(t *testing.T) {
	d := serving(t)
	d.cluster("a", "s2", "own1")
	d.cluster("a", "s1", "own1")
	if d.served() != 80 || d.warming() || d.kinds[eds].names["s2"] {
		t.Errorf("port %d, warming %v, subscribed %v", d.served(), d.warming(), sorted(d.kinds[eds].names))
	}
}

func TestRemovedClusterTakesItsNamesAlongWhileItWaits(t *testing.T) {
	d := serving(t)
	d.cluster("a", "s2", "own1")
	d.answer(&answer{url: translate.ClusterURL, version: "gone", nonce: "gone", removed: []string{"a"}})
	if got := sorted(d.kinds[eds].names); len(got) != 0 || d.snapshot.Cluster("a") != nil || len(d.accepted.Loads) != 0 {
		t.Errorf("subscribed %v, loads %d", got, len(d.accepted.Loads))
	}
	d.cluster("a", "s1", "own1")
	if !d.warming() || !slices.Equal(sorted(d.kinds[eds].names), []string{"s1"}) {
		t.Errorf("the same cluster again: warming %v, subscribed %v", d.warming(), sorted(d.kinds[eds].names))
	}
}

// inlinePair is a certificate and its key as a message holds them.
func inlinePair(t *testing.T, ca *meshtest.CA) string {
	t.Helper()
	c, err := ca.Workload("spiffe://cluster.local/ns/demo/sa/a")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{certificate_chain: {inline_string: %q}, private_key: {inline_string: %q}}`,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}
