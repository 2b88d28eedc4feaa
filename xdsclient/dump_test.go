package xdsclient_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"sluice/internal/config"
	"sluice/internal/identity"
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
	bad.Routes = []types.Resource{table(t, "r", `safe_regex: {regex: "("}`)}
	r.set("2", bad)
	for len(r.plane.NACKs()) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	sections, err := r.client.Dump(t.Context(), boot, time.Now(), true)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	var names []string
	for _, s := range sections {
		var m struct {
			Type string `json:"@type"`
		}
		if err := json.Unmarshal(s, &m); err != nil {
			t.Fatal(err)
		}
		names = append(names, m.Type[strings.LastIndexByte(m.Type, '.')+1:])
		var b any
		if err := json.Unmarshal(s, &b); err != nil {
			t.Fatal(err)
		}
		compact, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(compact)
	}
	if got, want := strings.Join(names, " "), "BootstrapConfigDump ClustersConfigDump EcdsConfigDump EndpointsConfigDump ListenersConfigDump RoutesConfigDump SecretsConfigDump"; got != want {
		t.Errorf("sections %s, want %s", got, want)
	}
	for _, want := range []string{`"dynamic_active_clusters":[{"cluster":`, `"route_config_name":"r"`, `"error_state":{"details":"virtual_hosts[0].routes[0].match.safe_regex: invalid regex`, `"static_clusters":[`, `"cluster_name":"a"`} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%s isn't in %s", want, all.String())
		}
	}
	if strings.Contains(all.String(), "very-private") {
		t.Error("a private key shows")
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
