package meshtest_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/meshtest"
	"sluice/internal/meshtest/podconfig"
)

// idleLimit is the memory budget of an idle sidecar of a small mesh, in kB of
// PSS. Raise it only with the reason in the same change.
const idleLimit = 30 << 10

func TestIdleSidecarIsSmall(t *testing.T) {
	ca := newCA(t)
	plane, r := smallMesh(t, ca)
	p := startPod(t, meshtest.PodOptions{Istiod: plane.Address, Root: ca.RootPEM, Token: "good"})
	eventually(t, p.Health, "/healthz/ready", 200)
	if n := plane.NACKs(); len(n) > 0 {
		t.Fatalf("refused: %s", n[0])
	}
	time.Sleep(2 * time.Second)
	kb, all := pss(t, p.PID())
	t.Logf("%d listeners, %d clusters: %d kB PSS\n%s", len(r.Listeners), len(r.Clusters), kb, all)
	if kb > idleLimit {
		t.Errorf("an idle sidecar takes %d kB PSS, more than %d", kb, idleLimit)
	}
}

// readyLimit is how long exec to ready may take, with a control plane that
// answers at once: certificate, configuration and listeners are in it.
const readyLimit = 300 * time.Millisecond

func TestReadySoonAfterExec(t *testing.T) {
	ca := newCA(t)
	plane, _ := smallMesh(t, ca)
	binary, best := sidecar(t), time.Hour
	for range 5 { // the machine may be doing something else
		began := time.Now()
		p := startPod(t, meshtest.PodOptions{Binary: binary, Istiod: plane.Address, Root: ca.RootPEM, Token: "good"})
		for code := 0; code != 200; code, _ = get(p.Health, "/healthz/ready") {
			if time.Since(began) > 10*time.Second {
				t.Fatal("not ready in 10 s")
			}
			time.Sleep(time.Millisecond)
		}
		best = min(best, time.Since(began))
		p.Stop()
	}
	t.Logf("ready after %s", best)
	if best > readyLimit {
		t.Errorf("ready after %s, more than %s", best, readyLimit)
	}
}

// smallMesh serves twelve services to whoever comes.
func smallMesh(t *testing.T, ca *meshtest.CA) (*meshtest.Plane, meshtest.Resources) {
	t.Helper()
	m := podconfig.Mesh{Namespace: "demo", AccessLog: "/dev/stdout"}
	for i := range 12 {
		m.Services = append(m.Services, podconfig.Service{Name: "s" + itoa(i), VIP: fmt.Sprintf("10.96.0.%d", i+1), Ports: []podconfig.Port{
			{Number: 80, Target: 8080, Protocol: podconfig.HTTP}, {Number: 9000, Target: 9000, Protocol: podconfig.TCP},
		}, Workloads: []podconfig.Workload{{Name: "w", IP: fmt.Sprintf("10.244.0.%d", i+1)}}})
	}
	docs := m.For("10.244.0.1")
	ports, err := meshtest.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"virtualOutbound", "virtualInbound"} { // elsewhere than a pod's network has them
		for _, l := range docs.Listeners {
			if l["name"] == name {
				l["address"] = at(ports[i])
			}
		}
	}
	r, err := meshtest.Decode(docs)
	if err != nil {
		t.Fatal(err)
	}
	plane := startPlane(t, meshtest.Options{CA: ca, Token: "good"})
	if err := plane.Set("1", r); err != nil {
		t.Fatal(err)
	}
	return plane, r
}

func pss(t *testing.T, pid int) (kb int, all string) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kb, err = strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if kb == 0 {
		t.Fatalf("no Pss in %s", b)
	}
	return kb, string(b)
}
