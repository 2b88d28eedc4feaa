package identity_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"sluice/internal/identity"
)

// pod gives the inputs of an injected pod.
func pod(extra ...string) identity.Inputs {
	files := map[string]string{
		"./etc/istio/pod/labels": "app=\"a\"\npod-template-hash=\"f59d7dc8d\"\nversion=\"v1\"\nservice.istio.io/canonical-name=\"a\"\n" +
			"topology.istio.io/locality=\"r1/z1/s1\"\n",
		"./etc/istio/pod/annotations": "istio.io/rev=\"default\"\nquoted=\"a \\\"b\\\"\"\n",
	}
	return identity.Inputs{
		Version: "1.31.0",
		Environ: append([]string{
			"CA_ADDR=istiod.istio-system.svc:15012", "INSTANCE_IP=10.244.0.11", "ISTIO_CPU_LIMIT=2", "ISTIO_META_APP_CONTAINERS=app",
			"ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_INTERCEPTION_MODE=REDIRECT", "ISTIO_META_MESH_ID=cluster.local",
			"ISTIO_META_NODE_NAME=node-1", "ISTIO_META_OWNER=kubernetes://apis/apps/v1/namespaces/demo/deployments/a-v1",
			"ISTIO_META_POD_PORTS=[\n    {\"containerPort\":8080,\"protocol\":\"TCP\"}\n]", "ISTIO_META_WORKLOAD_NAME=a-v1",
			"POD_NAME=a-v1-f59d7dc8d-btss7", "POD_NAMESPACE=demo", "PROXY_CONFIG={}\n", "SERVICE_ACCOUNT=a", "TRUST_DOMAIN=cluster.local",
		}, extra...),
		ReadFile: func(name string) ([]byte, error) {
			if s, ok := files[name]; ok {
				return []byte(s), nil
			}
			return nil, errors.Join(os.ErrNotExist)
		},
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.11"), netip.MustParseAddr("fe80::1")},
	}
}

func TestNodeIsWhatIstiodExpects(t *testing.T) {
	a, err := identity.NewAgent(pod())
	if err != nil {
		t.Fatal(err)
	}
	if want := "sidecar~10.244.0.11~a-v1-f59d7dc8d-btss7.demo~demo.svc.cluster.local"; a.Node.ID != want {
		t.Errorf("id %q, want %q", a.Node.ID, want)
	}
	if a.Node.Cluster != "a.demo" || a.Node.Region != "r1" || a.Node.Zone != "z1" || a.Node.SubZone != "s1" {
		t.Errorf("cluster %q, locality %q/%q/%q", a.Node.Cluster, a.Node.Region, a.Node.Zone, a.Node.SubZone)
	}
	if got := a.SPIFFE(); got != "spiffe://cluster.local/ns/demo/sa/a" {
		t.Errorf("identity %q", got)
	}
	// The metadata of Istio's own agent for such a pod.
	const want = `{
 "ANNOTATIONS": {"istio.io/rev": "default", "quoted": "a \"b\""},
 "APP_CONTAINERS": "app", "CLUSTER_ID": "Kubernetes", "ENVOY_PROMETHEUS_PORT": 15090, "ENVOY_SKIP_DEPRECATED_LOGS": "true",
 "ENVOY_STATUS_PORT": 15021, "INSTANCE_IPS": "10.244.0.11", "INTERCEPTION_MODE": "REDIRECT", "ISTIO_VERSION": "1.31.0",
 "LABELS": {"app": "a", "service.istio.io/canonical-name": "a", "topology.istio.io/locality": "r1/z1/s1", "version": "v1"},
 "MESH_ID": "cluster.local", "METADATA_DISCOVERY": "false", "NAME": "a-v1-f59d7dc8d-btss7", "NAMESPACE": "demo", "NODE_NAME": "node-1",
 "OWNER": "kubernetes://apis/apps/v1/namespaces/demo/deployments/a-v1", "PILOT_SAN": ["istiod.istio-system.svc"],
 "POD_PORTS": "[{\"containerPort\":8080,\"protocol\":\"TCP\"}]",
 "PROXY_CONFIG": {"binaryPath": "/usr/local/bin/envoy", "concurrency": 2, "configPath": "./etc/istio/proxy",
  "controlPlaneAuthPolicy": "MUTUAL_TLS", "discoveryAddress": "istiod.istio-system.svc:15012", "drainDuration": "45s", "proxyAdminPort": 15000,
  "serviceCluster": "istio-proxy", "statNameLength": 189, "statusPort": 15020, "terminationDrainDuration": "5s"},
 "SERVICE_ACCOUNT": "a", "WORKLOAD_IDENTITY_SOCKET_FILE": "socket", "WORKLOAD_NAME": "a-v1"}`
	got, err := json.Marshal(a.Node.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	var g, w any
	if err := errors.Join(json.Unmarshal(got, &g), json.Unmarshal([]byte(want), &w)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("metadata %s\nwant %s", got, want)
	}
}

func TestProxyConfigLayersReplaceFields(t *testing.T) {
	in := pod("PROXY_CONFIG={\"discoveryAddress\":\"env:15012\",\"concurrency\":4}")
	read := in.ReadFile
	in.MeshConfig = "mesh"
	in.ReadFile = func(name string) ([]byte, error) {
		switch name {
		case "mesh":
			return []byte("defaultConfig: {drainDuration: 10s, discoveryAddress: mesh:15012}"), nil
		case "./etc/istio/pod/annotations":
			return []byte("status.sidecar.istio.io/port=\"15555\"\nproxy.istio.io/config=\"terminationDrainDuration: 7s\"\n"), nil
		}
		return read(name)
	}
	a, err := identity.NewAgent(in)
	if err != nil {
		t.Fatal(err)
	}
	if a.Text("discoveryAddress") != "env:15012" || a.Text("drainDuration") != "10s" || a.Text("terminationDrainDuration") != "7s" ||
		a.Number("statusPort", 0) != 15555 || a.Number("concurrency", 0) != 4 {
		t.Errorf("proxy configuration %v", a.ProxyConfig)
	}
}

func TestABrokenEnvironmentIsAnErrorThatNamesTheVariable(t *testing.T) {
	for _, broken := range []string{"PROXY_CONFIG={", "INSTANCE_IP=10.244.0"} {
		name, _, _ := strings.Cut(broken, "=")
		if _, err := identity.NewAgent(pod(broken)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", broken, err)
		}
	}
}

func TestMetadataThatIsNoJSONObjectIsLeftOutAndNamed(t *testing.T) {
	a, err := identity.NewAgent(pod(`ISTIO_METAJSON_A={"x":`, `ISTIO_METAJSON_B={"y":{"z":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Ignored) != 1 || !strings.Contains(a.Ignored[0].Error(), "ISTIO_METAJSON_A") {
		t.Errorf("ignored: %v", a.Ignored)
	}
	if a.Node.Metadata["y"] == nil || a.Node.Metadata["x"] != nil {
		t.Errorf("metadata %v", a.Node.Metadata)
	}
}
