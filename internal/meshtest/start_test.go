package meshtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"sluice/internal/meshtest"
)

const lostADS = `
node: {id: one, cluster: two}
dynamic_resources:
  ads_config: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: nowhere}}]}
  cds_config: {ads: {}, resource_api_version: V3}
  lds_config: {ads: {}, resource_api_version: V3}
`

func TestBootstrapWhoseADSNamesNoClusterIsRefused(t *testing.T) {
	file := t.TempDir() + "/bootstrap.yaml"
	if err := os.WriteFile(file, []byte(lostADS), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"serve", "validate"} {
		c := exec.Command(sidecar(t), "-c", file, "--mode", mode)
		out, err := c.CombinedOutput()
		first, _, _ := strings.Cut(string(out), "\n")
		if first != "Unknown gRPC client cluster 'nowhere'" {
			t.Errorf("%s: the first line is %q", mode, first)
		}
		if err == nil || c.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: exit status %d, want 1", mode, c.ProcessState.ExitCode())
		}
	}
}

// waitsBecause checks that a sidecar that can't start is up, and says why on
// both probe ports.
func waitsBecause(t *testing.T, p *meshtest.Pod, why ...string) {
	t.Helper()
	eventually(t, p.Status, "/healthz/ready", 503, append(why, "waiting for configuration", "no clusters received (CDS)")...)
	eventually(t, p.Health, "/healthz/ready", 503, why...)
	eventually(t, p.Admin, "/stats?filter=control_plane", 200, "control_plane.connected_state: 0")
	if code, body := get(p.Admin, "/ready"); code != 503 || body != "PRE_INITIALIZING\n" {
		t.Errorf("/ready: %d %q", code, body)
	}
	if _, err := p.Wait(0); err == nil {
		t.Error("the process has ended")
	}
}

func TestUnreachableControlPlaneIsWaitedFor(t *testing.T) {
	ports, err := meshtest.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	ca := newCA(t)
	at := "127.0.0.1:" + itoa(ports[0])
	p := startPod(t, meshtest.PodOptions{Istiod: at, Root: ca.RootPEM, Token: "good"})
	waitsBecause(t, p, "istiod: connection refused: "+at)
	// It comes, and nothing needs to be restarted.
	plane := startPlane(t, meshtest.Options{Listen: at, CA: ca, Token: "good"})
	push(t, plane, "1")
	eventually(t, p.Status, "/healthz/ready", 200)
	eventually(t, p.Health, "/healthz/ready", 200)
	eventually(t, p.Admin, "/stats?filter=control_plane", 200, "control_plane.connected_state: 1")
	// Ready stays ready when it goes again.
	plane.Close()
	eventually(t, p.Admin, "/stats?filter=control_plane", 200, "control_plane.connected_state: 0")
	if code, body := get(p.Health, "/healthz/ready"); code != 200 {
		t.Errorf("after the control plane went: %d %s", code, body)
	}
}

func TestRejectedTokenIsTold(t *testing.T) {
	ca := newCA(t)
	plane := startPlane(t, meshtest.Options{CA: ca, Token: "good"})
	p := startPod(t, meshtest.PodOptions{Istiod: plane.Address, Root: ca.RootPEM, Token: "stale"})
	waitsBecause(t, p, "istiod: token rejected: authentication failure", "waiting for identity: token rejected: authentication failure")
}

func TestUntrustedControlPlaneIsTold(t *testing.T) {
	plane := startPlane(t, meshtest.Options{CA: newCA(t), Token: "good"})
	p := startPod(t, meshtest.PodOptions{Istiod: plane.Address, Root: newCA(t).RootPEM, Token: "good"})
	waitsBecause(t, p, "istiod: certificate of "+plane.Address+" not trusted", "x509:")
}

func TestMissingRootIsTold(t *testing.T) {
	plane := startPlane(t, meshtest.Options{CA: newCA(t), Token: "good"})
	p := startPod(t, meshtest.PodOptions{Istiod: plane.Address, Token: "good"})
	waitsBecause(t, p, "reading the control plane's root", "root-cert.pem")
}
