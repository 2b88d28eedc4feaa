package httpproxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	filters "sluice/listener/filter/chain"
)

const all = 1_000_000

func (b *bench) useFilters(node *config.Node) {
	b.server.opts.Filters = (&filters.Builder{Node: telemetry.NewNode(node, nil), Workers: 1}).Build
}

// startWith is start with a filter table and a listener direction.
func startWith(t *testing.T, m *config.HTTPConnectionManager, d config.Direction, node *config.Node, clusters ...*config.Cluster) *bench {
	t.Helper()
	list := m.Filters
	m.Filters = nil
	b := start(t, m, clusters...)
	b.useFilters(node)
	again := *m
	again.Filters = list
	p, err := b.server.Build(&again, &config.Listener{Meta: config.Meta{Name: "filtered"}, Direction: d, BufferLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b.listen(p)
	return b
}

func TestFaultsDelayAndAbort(t *testing.T) {
	m := hcm(to("/", "a"))
	m.Filters = []config.HTTPFilter{{Name: "fault", Policy: &config.Fault{
		Headers: []config.HeaderMatch{{Name: "x-fault", Present: true}},
		Delay:   &config.FaultDelay{Fixed: 60 * time.Millisecond, Percent: config.Percent{PerMillion: all}},
		Abort:   &config.FaultAbort{HTTPStatus: 418, GRPCStatus: -1, Percent: config.Percent{PerMillion: all}}}}}
	b := startWith(t, m, config.Outbound, &config.Node{}, static("a", origin(t, echo)))
	if got := b.get("/none"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("%q without the header", got)
	}
	began := time.Now()
	if got := b.raw("GET /x HTTP/1.1\r\nhost: s\r\nx-fault: 1\r\n\r\n", "GET")[0]; got != "418 fault filter abort" {
		t.Errorf("%q", got)
	}
	if d := time.Since(began); d < 55*time.Millisecond {
		t.Errorf("answered after %v, want a delay of 60 ms", d)
	}
	if l := b.logged(2)[1]; l != "GET /x 418 DI,FI fault_filter_abort 0" {
		t.Error(l)
	}
	if n := b.stat("http.in.fault.active_faults"); n != 0 {
		t.Errorf("%d faults still active", n)
	}
}

func TestCORSPreflightAndSimpleRequest(t *testing.T) {
	yes := true
	m := hcm(to("/", "a"))
	m.Filters = []config.HTTPFilter{{Name: "cors", Policy: &config.CORS{Origins: []config.StringMatch{{Value: "http://good"}},
		Methods: "GET", MaxAge: "5", Expose: "x-e", Credentials: &yes, Enabled: config.Percent{PerMillion: all}}}}
	b := startWith(t, m, config.Outbound, &config.Node{}, static("a", origin(t, echo)))
	ask := func(method, origin string, more ...string) *http.Response {
		req, err := http.NewRequest(method, "http://"+b.addr+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("origin", origin)
		for i := 0; i+1 < len(more); i += 2 {
			req.Header.Set(more[i], more[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if h := ask("OPTIONS", "http://good", "access-control-request-method", "GET").Header; h.Get("access-control-allow-origin") != "http://good" ||
		h.Get("access-control-allow-methods") != "GET" || h.Get("access-control-max-age") != "5" || h.Get("access-control-allow-credentials") != "true" {
		t.Errorf("preflight: %v", h)
	}
	if h := ask("GET", "http://good").Header; h.Get("access-control-allow-origin") != "http://good" || h.Get("access-control-expose-headers") != "x-e" {
		t.Errorf("simple: %v", h)
	}
	if h := ask("GET", "http://bad").Header; h.Get("access-control-allow-origin") != "" {
		t.Errorf("foreign origin: %v", h)
	}
	http.DefaultClient.CloseIdleConnections()
}

func testNode(name string) *config.Node {
	return &config.Node{ID: "sidecar~" + name, Metadata: config.Struct{"WORKLOAD_NAME": name, "NAMESPACE": "ns", "CLUSTER_ID": "c1",
		"LABELS": config.Struct{"app": name, "service.istio.io/canonical-name": name}}}
}

func TestPeersTellWhoTheyAreAndRequestsAreCounted(t *testing.T) {
	stats := config.HTTPFilter{Name: "istio.stats", Policy: &config.IstioStats{}}
	byHeaders := []config.PeerMethod{config.PeerByHeaders}
	in := hcm(to("/", "app"))
	in.Filters = []config.HTTPFilter{{Name: "mx", Policy: &config.PeerMetadata{DownstreamDiscovery: byHeaders, DownstreamPropagation: true}}, stats}
	app := static("app", origin(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "leaked=%v", r.Header.Get("X-Envoy-Peer-Metadata") != "")
	}))
	app.Metadata = config.Pack(config.Metadata{"istio": {"services": config.List{config.Struct{"host": "svc.ns", "name": "svc", "namespace": "ns"}}}})
	server := startWith(t, in, config.Inbound, testNode("server"), app)

	out := hcm(to("/", "svc"))
	out.Filters = []config.HTTPFilter{{Name: "mx", Policy: &config.PeerMetadata{UpstreamDiscovery: byHeaders, UpstreamPropagation: true}}, stats}
	svc := static("svc", server.addr)
	svc.Metadata = app.Metadata
	client := startWith(t, out, config.Outbound, testNode("client"), svc)

	if got := client.get("/x"); got != "200 leaked=false" {
		t.Fatal(got)
	}
	for _, c := range []struct {
		b    *bench
		want map[string]string
	}{
		{server, map[string]string{"reporter": "destination", "source_workload": "client", "destination_workload": "server",
			"destination_service": "svc.ns", "response_code": "200", "request_protocol": "http", "connection_security_policy": "none"}},
		{client, map[string]string{"reporter": "source", "source_workload": "client", "destination_workload": "server",
			"destination_service_name": "svc", "connection_security_policy": "unknown", "source_principal": "unknown"}},
	} {
		found := false
		for _, m := range c.b.registry.Gather(c.b.ctx) {
			if m.Name != "istio_requests_total" {
				continue
			}
			found = true
			labels := map[string]string{}
			for _, l := range m.Labels {
				labels[l.Name] = l.Value
			}
			for k, v := range c.want {
				if labels[k] != v {
					t.Errorf("%s: %q, want %q", k, labels[k], v)
				}
			}
		}
		if !found {
			t.Error("no istio_requests_total")
		}
	}
}

func TestAnUnknownPolicyIsRefused(t *testing.T) {
	b := start(t, hcm(to("/", "a")), static("a", closed(t)))
	b.useFilters(&config.Node{})
	m := hcm(to("/", "a"))
	m.Filters = []config.HTTPFilter{{Name: "odd", Policy: &config.EnabledFilter{}}} // that is for routes only
	if p, err := b.server.Build(m, &config.Listener{}); err == nil || p != nil {
		t.Error("a chain with a filter that has no behaviour was built")
	}
}
