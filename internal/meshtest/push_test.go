package meshtest_test

import (
	"strconv"
	"testing"

	"sluice/internal/meshtest"
	"sluice/internal/meshtest/podconfig"
)

func itoa(n int) string { return strconv.Itoa(n) }

// push gives everybody a small mesh.
func push(t *testing.T, p *meshtest.Plane, version string) {
	t.Helper()
	m := podconfig.Mesh{Namespace: "demo", Services: []podconfig.Service{{
		Name: "b", VIP: "10.96.0.12", Ports: []podconfig.Port{{Number: 80, Target: 8080, Protocol: podconfig.HTTP}},
		Workloads: []podconfig.Workload{{Name: "b-1", IP: "10.244.0.21"}},
	}}}
	r, err := meshtest.Decode(m.For("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	r.Listeners = nil // they would all want the ports of a pod's network
	if err := p.Set(version, r); err != nil {
		t.Fatal(err)
	}
}
