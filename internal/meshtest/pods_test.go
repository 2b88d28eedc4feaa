package meshtest

import (
	"testing"

	"sluice/internal/meshtest/podconfig"
)

func testMesh() *podconfig.Mesh {
	return &podconfig.Mesh{Namespace: "demo", AccessLog: "/dev/stdout", Services: []podconfig.Service{{
		Name: "b", VIP: "10.96.0.12",
		Ports: []podconfig.Port{
			{Number: 80, Target: 8080, Protocol: podconfig.HTTP}, {Number: 7070, Target: 7070, Protocol: podconfig.HTTP2},
			{Number: 9000, Target: 9000, Protocol: podconfig.TCP}, {Number: 9443, Target: 9443, Protocol: podconfig.TLS},
			{Number: 8100, Target: 8100, Protocol: podconfig.Auto},
		},
		Workloads: []podconfig.Workload{{Name: "b-1", IP: "10.244.0.21"}, {Name: "b-2", IP: "10.244.0.22"}},
	}}}
}

func TestEveryResourceOfAMeshIsValidProtobuf(t *testing.T) {
	for _, ip := range []string{"10.244.0.11", "10.244.0.21"} {
		for _, strict := range []bool{false, true} {
			m := testMesh()
			m.Strict = strict
			r, err := Decode(m.For(ip))
			if err != nil {
				t.Errorf("pod %s, strict %v: %v", ip, strict, err)
			}
			if len(r.Listeners) == 0 || len(r.Clusters) == 0 {
				t.Errorf("pod %s has %d listeners and %d clusters", ip, len(r.Listeners), len(r.Clusters))
			}
		}
	}
}
