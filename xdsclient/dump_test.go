package xdsclient_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"sluice/internal/config"
	"sluice/internal/identity"
	"sluice/xdsclient"
	"sluice/xdsclient/translate"
)

func TestDumpShowsWhatCameAndHidesKeys(t *testing.T) {
	boot, err := translate.Default().BootstrapMessage([]byte(`
node: {id: node-1}
static_resources:
  clusters: [{name: static, load_assignment: {cluster_name: static}}]
  secrets: [{name: own, tls_certificate: {certificate_chain: {inline_string: chain}, private_key: {inline_string: very-private}}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, true)
	r.set("1", whole(t, 1001))
	r.until("a listener", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 })
	bad := whole(t, 1001)
	bad.Listeners = []types.Resource{message(t, &listener.Listener{}, `{name: in, address: {socket_address: {address: 127.0.0.1, port_value: 18080}}, filter_chains: [{filters: [{name: no-such-filter, typed_config: {"@type": type.googleapis.com/google.protobuf.Struct, value: {}}}]}]}`)}
	r.set("2", bad)
	for len(r.plane.NACKs()) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	body, code := r.client.ConfigDump(t.Context(), boot, time.Now(), xdsclient.Query{Endpoints: true})
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	var page struct {
		Configs []map[string]any `json:"configs"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	var names []string
	for _, s := range page.Configs {
		url := s["@type"].(string)
		names = append(names, url[strings.LastIndexByte(url, '.')+1:])
		compact, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(compact)
	}
	if got, want := strings.Join(names, " "), "BootstrapConfigDump ClustersConfigDump EndpointsConfigDump ListenersConfigDump ScopedRoutesConfigDump RoutesConfigDump SecretsConfigDump"; got != want {
		t.Errorf("sections %s, want %s", got, want)
	}
	for _, want := range []string{`"dynamic_active_clusters":[{"cluster":`, `"route_config_name":"r"`, `"error_state":{"details":"filter_chains[0].filters[0]: didn't find`, `"static_clusters":[`, `"cluster_name":"a"`} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%s isn't in %s", want, all.String())
		}
	}
	if strings.Contains(all.String(), "very-private") {
		t.Error("a private key shows")
	}
}

func TestDumpQueries(t *testing.T) {
	r := start(t, true)
	r.set("1", whole(t, 1001))
	r.until("a listener", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 })
	tests := []struct {
		rule string
		q    xdsclient.Query
		code int
		want string
	}{
		{"a resource comes element by element", xdsclient.Query{Resource: "dynamic_active_clusters", NameRegex: "^a$"}, 200, "ClustersConfigDump.DynamicCluster"},
		{"nothing of a resource is an empty object", xdsclient.Query{Resource: "dynamic_listeners", NameRegex: "i"}, 200, "{}\n"},
		{"an unknown resource isn't found", xdsclient.Query{Resource: "nonsense"}, 404, "nonsense not found in config dump"},
		{"a mask keeps its section", xdsclient.Query{Mask: "dynamic_route_configs"}, 200, "RoutesConfigDump"},
		{"an unknown mask is wrong", xdsclient.Query{Mask: "nonsense,worse"}, 400, "FieldMask"},
		{"a mask doesn't reach into lists", xdsclient.Query{Mask: "static_listeners.listener.name"}, 400, "FieldMask"},
		{"a broken regex is told", xdsclient.Query{NameRegex: "("}, 400, "INVALID_ARGUMENT: Error while parsing name_regex from (: missing ): ("},
	}
	for _, tt := range tests {
		body, code := r.client.ConfigDump(t.Context(), nil, time.Now(), tt.q)
		if code != tt.code || !strings.Contains(string(body), tt.want) {
			t.Errorf("%s: got %d %s", tt.rule, code, body)
		}
	}
}

func TestAgentsBootstrapIsOneWeStartFrom(t *testing.T) {
	a, err := identity.NewAgent(identity.Inputs{Version: "1.31.0", Environ: []string{
		"POD_NAME=p", "POD_NAMESPACE=demo", "SERVICE_ACCOUNT=a", "INSTANCE_IP=10.0.0.1", "ISTIO_META_CLUSTER_ID=Kubernetes",
	}, ReadFile: func(string) ([]byte, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	b, err := translate.Default().Bootstrap(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if b.Node.ID != a.Node.ID || b.Node.Metadata["CLUSTER_ID"] != "Kubernetes" || b.Admin.Port() != 15000 {
		t.Errorf("node %+v, admin %v", b.Node, b.Admin)
	}
	if b.ADS == nil || !b.ADS.Delta || !b.ADS.NodeOnce || b.ADS.CDSTimeout != 0 || b.ADS.Cluster != "xds-grpc" {
		t.Errorf("ADS %+v", b.ADS)
	}
	if len(b.Static.Listeners) != 2 || len(b.Static.Clusters) != 4 || b.StatsMatcher == nil || !b.StatsMatcher.Include {
		t.Errorf("static resources %+v", b.Static)
	}
}
