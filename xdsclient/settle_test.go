package xdsclient

import (
	"fmt"
	"testing"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"sluice/internal/config"
	"sluice/xdsclient/translate"
)

func TestRefusedFirstAnswerEndsTheWaitAndAGoodOneServes(t *testing.T) {
	tests := map[string]struct {
		name    string // of what is refused
		kind    kind
		bad     func(*needy)
		good    func(*needy)
		arrived func(*needy) bool
	}{
		"endpoints": {"s1", eds,
			func(d *needy) {
				d.push(translate.EndpointURL, "s1", &endpoint.ClusterLoadAssignment{}, `{cluster_name: s1, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 70000}}}}]}]}`)
			},
			func(d *needy) { d.load("s1", 80) },
			func(d *needy) bool { return d.served() == 80 }},
		"a route table": {"r1", rds,
			func(d *needy) {
				d.push(translate.RouteURL, "r1", &routev3.RouteConfiguration{}, `{name: r1, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {safe_regex: {regex: "("}}, route: {cluster: a}}]}]}`)
			},
			func(d *needy) { d.table("r1") },
			func(d *needy) bool { return d.snapshot.Routes["r1"] != nil }},
		"a cluster's secret": {"own1", sds, func(d *needy) { d.badSecret("own1") }, func(d *needy) { d.secret("own1") },
			func(d *needy) bool { return d.snapshot.Secrets["own1"] != nil }},
		"a listener's secret": {"cert1", sds, func(d *needy) { d.badSecret("cert1") }, func(d *needy) { d.secret("cert1") },
			func(d *needy) bool { return d.snapshot.Secrets["cert1"] != nil }},
		"a filter's config": {"e", ecds, func(d *needy) { d.send(translate.ExtensionURL, "e", []byte{0xff}) }, func(d *needy) { d.filter("e", 1) },
			func(d *needy) bool { return d.accepted.Extensions["e"] != nil }},
		"bytes that are no message": {"r1", rds, func(d *needy) { d.send(translate.RouteURL, "r1", []byte{0xff}) }, func(d *needy) { d.table("r1") },
			func(d *needy) bool { return d.snapshot.Routes["r1"] != nil }},
		"a whole state with something nameless": {"cert1", sds, func(d *needy) {
			d.answer(&answer{url: translate.SecretURL, version: "x", nonce: "x", full: true, resources: []received{{version: "x"}}})
		}, func(d *needy) { d.secret("cert1") },
			func(d *needy) bool { return d.snapshot.Secrets["cert1"] != nil }},
	}
	for rule, tt := range tests {
		t.Run(rule, func(t *testing.T) {
			d := idle(t)
			d.steps(tt.name, func() {})
			if d.facts.Live || len(d.waiting) == 0 {
				t.Fatalf("live %v without %s, waiting %+v", d.facts.Live, tt.name, d.waiting)
			}
			d = idle(t)
			d.steps(tt.name, func() { tt.bad(d) })
			if k := d.kinds[tt.kind]; k.rejected != 1 {
				t.Fatalf("%d refusals, the last is %q", k.rejected, k.refusal)
			}
			if !d.facts.Live || len(d.waiting) != 0 || len(d.snapshot.Listeners) != 1 || tt.arrived(d) {
				t.Errorf("once it is refused: live %v, %d listeners, waiting %+v", d.facts.Live, len(d.snapshot.Listeners), d.waiting)
			}
			if tt.good(d); !tt.arrived(d) {
				t.Error("the good one isn't in force")
			}
		})
	}
}

func TestRefusalOfWhatNobodyAskedForSettlesNothing(t *testing.T) {
	d := idle(t)
	d.badSecret("cert1")
	d.steps("cert1", func() {})
	if d.facts.Live || len(d.waiting) != 1 {
		t.Errorf("live %v, waiting %+v", d.facts.Live, d.waiting)
	}
}

func TestFileThatWasReadWithoutASecretIsNotWaitedForByWhoNamesItLater(t *testing.T) {
	c := New(Options{})
	c.files["f"], c.read["f"] = true, true
	ref := config.SecretRef{Name: "own", Source: config.SecretFile, Path: "f"}
	c.putListener(&config.Listener{Meta: config.Meta{Name: "l"}, Chains: []*config.FilterChain{{TLS: &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: []config.SecretRef{ref}}}}}})
	if c.relink(); len(c.waiting) != 1 {
		t.Fatalf("waiting %+v", c.waiting)
	}
	if c.watchSecrets(t.Context()); len(c.waiting) != 0 || len(c.snapshot.Listeners) != 1 {
		t.Errorf("waiting %+v", c.waiting)
	}
}

func TestRefusedUpdateLeavesTheLastGoodOneInForce(t *testing.T) {
	d := serving(t)
	before := d.snapshot
	d.badSecret("cert1")
	d.badSecret("own1")
	if d.snapshot.Secrets["cert1"] != before.Secrets["cert1"] || d.snapshot.Secrets["own1"] != before.Secrets["own1"] || d.kinds[sds].rejected != 2 {
		t.Errorf("secrets %v, %d refusals", d.snapshot.Secrets, d.kinds[sds].rejected)
	}
}

func (d *needy) badSecret(name string) {
	d.push(translate.SecretURL, name, &tlsv3.Secret{}, fmt.Sprintf(`{name: %s, tls_certificate: {certificate_chain: {inline_string: nothing}, private_key: {inline_string: nothing}}}`, name))
}
