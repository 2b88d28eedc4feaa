package xdsclient

import (
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice/internal/config"
	"sluice/xdsclient/translate"
)

func packed(tb testing.TB, m proto.Message) *anypb.Any {
	tb.Helper()
	a, err := anypb.New(m)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func bigClusters(tb testing.TB, n int) *answer {
	out := &answer{url: translate.ClusterURL, version: "1", nonce: "c"}
	for i := range n {
		name := fmt.Sprintf("outbound|80||svc-%d.demo.svc.cluster.local", i)
		out.resources = append(out.resources, received{name: name, version: "1", body: packed(tb, &clusterv3.Cluster{
			Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &core.ConfigSource{ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}},
		})})
	}
	return out
}

func bigEndpoints(tb testing.TB, n int, version string, port uint32) *answer {
	out := &answer{url: translate.EndpointURL, version: version, nonce: "e" + version}
	for i := range n {
		name := fmt.Sprintf("outbound|80||svc-%d.demo.svc.cluster.local", i)
		load := &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{}}}
		for e := range 5 {
			load.Endpoints[0].LbEndpoints = append(load.Endpoints[0].LbEndpoints, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
				Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
					Address: fmt.Sprintf("10.%d.%d.%d", e, i/256, i%256), PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
				}}},
			}}})
		}
		out.resources = append(out.resources, received{name: name, version: version, body: packed(tb, load)})
	}
	return out
}

func TestPushOfManyEndpointsIsAppliedWithinASecond(t *testing.T) {
	const n = 10000
	c := New(Options{ADS: &config.ADS{Delta: true, Cluster: "x", CDS: true}, Translate: translate.Default()})
	c.answer(bigClusters(t, n))
	c.answer(bigEndpoints(t, n, "1", 80))
	if got := len(c.snapshot.Clusters); got != n || !c.facts.Clusters {
		t.Fatalf("%d clusters in, facts %+v, %d waiting", got, c.facts, len(c.waiting))
	}
	push := bigEndpoints(t, 1, "2", 81)
	began := time.Now()
	for i := range 10 {
		push.nonce = fmt.Sprint(i)
		c.answer(push)
	}
	if took := time.Since(began) / 10; took > time.Second {
		t.Errorf("one endpoint's push took %v among %d clusters", took, n)
	} else {
		t.Logf("one endpoint's push: %v", took)
	}
	all := bigEndpoints(t, n, "3", 82)
	began = time.Now()
	c.answer(all)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a push of %d assignments took %v", n, took)
	} else {
		t.Logf("a push of %d assignments of 5: %v", n, took)
	}
	if got := c.snapshot.Cluster("outbound|80||svc-7.demo.svc.cluster.local").Load.Localities[0].Endpoints[0].Address.IP.Port(); got != 82 {
		t.Errorf("port %d", got)
	}
}

func TestSameBadBytesAreNotTranslatedAgain(t *testing.T) {
	c := New(Options{ADS: &config.ADS{Delta: true, Cluster: "x", CDS: true}, Translate: translate.Default()})
	bad := &answer{url: translate.ClusterURL, version: "1", nonce: "1", resources: []received{{name: "a", version: "1", body: packed(t, &clusterv3.Cluster{
		Name: "a", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
	})}}}
	c.answer(bad)
	first := c.kinds[cds].kept["a"].failed.err
	c.answer(bad)
	if again := c.kinds[cds].kept["a"].failed.err; again != first {
		t.Error("translated again")
	}
	if c.kinds[cds].rejected != 2 || c.kinds[cds].refusal == "" {
		t.Errorf("two responses, %d refusals %q", c.kinds[cds].rejected, c.kinds[cds].refusal)
	}
}

func TestAnswerToClustersWaitsForWarmingOnceStarted(t *testing.T) {
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%v", delta), func(t *testing.T) {
			c := New(Options{ADS: &config.ADS{Delta: delta, Cluster: "x", CDS: true, LDS: true, NodeOnce: true}, Translate: translate.Default()})
			c.conn = &conn{out: make(chan request, 64), cancel: func() {}}
			c.subscribe(c.kinds[cds])
			told := func() (out []string) {
				for len(c.conn.out) > 0 {
					r := <-c.conn.out
					k, _ := kindOf(r.url)
					switch {
					case r.failure != nil:
						out = append(out, k.String()+" nack")
					case r.nonce != "" && (delta || len(r.names) == 0 || r.nonce == c.kinds[k].nonce):
						out = append(out, k.String()+" ack")
					default:
						out = append(out, k.String()+" subscribe")
					}
				}
				return out
			}
			expect := func(what string, want ...string) {
				t.Helper()
				if got := told(); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: told %v, want %v", what, got, want)
				}
			}
			expect("at first", "CDS subscribe")
			one := bigClusters(t, 1)
			one.full = !delta
			c.answer(one)
			expect("initial clusters", "EDS subscribe", "CDS ack")
			load := bigEndpoints(t, 1, "1", 80)
			load.full = !delta
			c.answer(load)
			expect("their endpoints", "LDS subscribe", "EDS ack")
			two := bigClusters(t, 2)
			two.full, two.nonce = !delta, "c2"
			c.answer(two)
			if got := told(); len(got) != 1 || got[0] == "CDS ack" {
				t.Errorf("a new cluster: told %v, want its EDS subscription only", got)
			}
			loads := bigEndpoints(t, 2, "2", 80)
			loads.full = !delta
			c.answer(loads)
			expect("its endpoints", "CDS ack", "EDS ack")
		})
	}
}

func TestNameTableComesWithoutAName(t *testing.T) {
	info := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "10.0.0.1")
	info = protowire.AppendString(protowire.AppendTag(info, 2, protowire.BytesType), "Kubernetes")
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "A.demo.svc.cluster.local")
	entry = protowire.AppendBytes(protowire.AppendTag(entry, 2, protowire.BytesType), info)
	body := &anypb.Any{TypeUrl: translate.NameTableURL, Value: protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), entry)}
	c := New(Options{ADS: &config.ADS{Delta: true, Cluster: "x"}, Translate: translate.Default(), NameTable: true})
	c.answer(&answer{url: translate.NameTableURL, version: "1", nonce: "1", resources: []received{{version: "1", body: body}}})
	got := c.snapshot.Names
	if got == nil || got.Hosts["a.demo.svc.cluster.local"].Registry != "Kubernetes" || got.Hosts["a.demo.svc.cluster.local"].IPs[0].String() != "10.0.0.1" {
		t.Fatalf("name table %+v", got)
	}
	body.Value = append(body.Value, 0xff)
	c.answer(&answer{url: translate.NameTableURL, version: "2", nonce: "2", resources: []received{{version: "2", body: body}}})
	if c.snapshot.Names != got || c.kinds[nds].refusal == "" {
		t.Errorf("a broken table replaced the good one: %q", c.kinds[nds].refusal)
	}
}

func TestUnchangedPushIsTakenWithoutTranslatingIt(t *testing.T) {
	for _, whole := range []bool{true, false} {
		c := New(Options{ADS: &config.ADS{Delta: !whole, Cluster: "x", CDS: true}, Translate: translate.Default()})
		push := bigClusters(t, 3)
		push.full = whole
		if whole {
			for i := range push.resources {
				push.resources[i].name = ""
			}
		}
		c.answer(push)
		before := c.accepted.Clusters["outbound|80||svc-1.demo.svc.cluster.local"]
		c.opts.Translate = nil // whoever translates now panics
		push.version, push.nonce = "2", "2"
		c.answer(push)
		if c.kinds[cds].refusal != "" || c.kinds[cds].successes != 2 || c.accepted.Clusters[before.Name] != before {
			t.Errorf("whole=%v: %q, %d successes", whole, c.kinds[cds].refusal, c.kinds[cds].successes)
		}
		if got := c.kinds[cds].kept[before.Name].version; whole && got != "2" {
			t.Errorf("version %q of an unchanged cluster", got)
		}
	}
}
