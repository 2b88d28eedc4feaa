package main

import (
	"sluice/bench/load"
)

// scenario is one configuration under one load. Its metrics are the rows of the
// table.
type scenario struct {
	name    string
	kind    kind
	origin  string // kind of back end
	size    int    // bytes of its answers
	shape   shape
	load    load.Spec
	metrics []metric
	quick   bool     // part of bench-quick
	peers   []string // who runs it beside sluice and Envoy
	null    bool     // sluice runs against itself too: the noise floor
	two     bool     // and with two workers beside one
	halfMax bool     // the rate is half of what Envoy can do, found in this run
	mesh    int      // clusters from ADS
	rounds  int      // at most; 0: as many as the run has
	untuned bool     // Envoy's tuned column makes no difference worth its time
}

// row is a metric's name in the table.
func (s *scenario) row(m metric) string {
	if len(s.metrics) > 1 {
		return s.name + ": " + m.name
	}
	return s.name
}

type kind int

const (
	underLoad kind = iota
	idle
	start
	control // configuration from an ADS server
	spread  // connections over two workers
)

// metric is one figure of a scenario. must and goal are ratios to Envoy, lower
// is better; 0 for none.
type metric struct {
	key, name, unit string
	scale           float64 // from the raw value to unit
	must, goal      float64
}

// cpu is processor time a unit of work.
func cpu(unit string, must, goal float64) metric {
	if unit == "GB" {
		return metric{"cpu", "CPU", "ms/GB", 1e3, must, goal} // ns a byte is s/GB
	}
	return metric{"cpu", "CPU", "µs/" + unit, 1e-3, must, goal}
}

// added is the latency over the direct way at quantiles.
func added() []metric {
	return []metric{
		{"p50", "added latency p50", "µs", 1, .9, .7},
		{"p99", "added latency p99", "µs", 1, .8, .4},
		{"p999", "added latency p99.9", "µs", 1, .8, .4},
	}
}

var (
	plainHTTP = []string{"haproxy", "go", "forward"}
	noFloor   = []string{"haproxy", "go"}
)

func scenarios() []scenario {
	var all []scenario
	all = append(all, http1()...)
	all = append(all, http2()...)
	all = append(all, tcp()...)
	all = append(all, secured()...)
	all = append(all, policy()...)
	all = append(all, spreads()...)
	all = append(all, resting()...)
	return append(all, meshes()...)
}

func h1Load(conns int, rate float64) load.Spec {
	return load.Spec{Kind: "h1", Conns: conns, Size: 1024, Rate: rate}
}

func http1() []scenario {
	web, istio := shape{HTTP: true}, shape{HTTP: true, Istio: true}
	base := scenario{origin: "h1", size: 1024, shape: web, quick: true}
	with := func(name string, l load.Spec, m ...metric) scenario {
		s := base
		s.name, s.load, s.metrics = name, l, m
		return s
	}
	closed := with("HTTP/1.1 1 KB, 32 connections", h1Load(32, 0), cpu("request", .30, .18))
	closed.peers, closed.null, closed.two = plainHTTP, true, true
	shaped := with("HTTP/1.1 1 KB Istio-shaped, 32 connections", h1Load(32, 0), cpu("request", .30, .18))
	shaped.shape, shaped.peers = istio, []string{"forward"}
	slow := with("HTTP/1.1 1 KB, 1,000 rps", h1Load(32, 1000), append([]metric{cpu("request", .45, .32)}, added()...)...)
	slow.peers, slow.null = []string{"haproxy", "go", "forward", "direct"}, true
	fast := with("HTTP/1.1 1 KB, 4,000 rps", h1Load(32, 4000), append([]metric{cpu("request", .40, .26)}, added()...)...)
	fast.peers = []string{"forward", "direct"}
	half := with("HTTP/1.1 1 KB, half of Envoy's maximum", h1Load(32, 3000), append([]metric{cpu("request", .40, .26)}, added()...)...)
	half.peers, half.halfMax = []string{"forward", "direct"}, true
	istioSlow := with("HTTP/1.1 1 KB Istio-shaped, 1,000 rps", h1Load(32, 1000), append([]metric{cpu("request", .45, .32)}, added()...)...)
	istioSlow.shape, istioSlow.peers, istioSlow.quick = istio, []string{"forward", "direct"}, false
	big := with("HTTP/1.1 1 MB, 8 connections", load.Spec{Kind: "h1", Conns: 8, Size: 1 << 20}, cpu("request", .50, .35))
	big.size, big.peers = 1<<20, plainHTTP
	crowd := with("HTTP/1.1 1 KB, 1,000 rps beside 10,000 idle connections", load.Spec{Kind: "h1", Conns: 32, Size: 1024, Rate: 1000, Idle: 10000},
		cpu("request", .45, .32), metric{"p99", "added latency p99", "µs", 1, .8, .4})
	crowd.peers, crowd.quick = []string{"direct"}, false
	return []scenario{closed, shaped, slow, fast, half, istioSlow, big, crowd}
}

func http2() (list []scenario) {
	for _, r := range []struct {
		name, kind, unit string
		streams          int
		must, goal       float64
	}{
		{"HTTP/2 1 KB, 16 × 20 streams", "h2", "request", 20, .20, .10},
		{"HTTP/2 1 KB, 16 × 1 stream", "h2", "request", 1, .35, .20},
		{"gRPC unary, 16 × 20 streams", "grpc", "call", 20, .20, .10},
		{"gRPC unary, 16 × 1 stream", "grpc", "call", 1, .35, .20},
		{"gRPC streaming both ways, 16 × 20 streams", "stream", "message", 20, .30, .15},
	} {
		size := 200
		if r.kind == "h2" {
			size = 1024
		}
		list = append(list, scenario{name: r.name, origin: r.kind, size: size, shape: shape{HTTP: true, H2: true}, quick: true,
			load: load.Spec{Kind: r.kind, Conns: 16, Streams: r.streams, Size: size}, metrics: []metric{cpu(r.unit, r.must, r.goal)}})
		if r.streams == 20 {
			list[len(list)-1].peers, list[len(list)-1].two = plainHTTP, r.kind == "h2"
		}
	}
	return list
}

func tcp() []scenario {
	s := func(name, origin string, l load.Spec, m metric) scenario {
		return scenario{name: name, origin: origin, load: l, metrics: []metric{m}, quick: true}
	}
	list := []scenario{
		s("TCP bulk, 1 connection", "source", load.Spec{Kind: "down", Conns: 1}, cpu("GB", .55, .38)),
		s("TCP bulk, 8 connections", "source", load.Spec{Kind: "down", Conns: 8}, cpu("GB", .45, .27)),
		s("TCP 1 KB ping-pong, 32 connections", "echo", load.Spec{Kind: "pingpong", Conns: 32, Size: 1024}, cpu("message", .90, .75)),
		s("TCP 64 B ping-pong, 1 connection", "echo", load.Spec{Kind: "pingpong", Conns: 1, Size: 64}, cpu("message", .90, .70)),
		s("TCP short connections, 16 at a time", "echo", load.Spec{Kind: "short", Conns: 16, Size: 64}, cpu("connection", .70, .45)),
		s("TCP 1 KB ping-pong by REDIRECT and original destination", "echo", load.Spec{Kind: "pingpong", Conns: 32, Size: 1024}, cpu("message", .90, .75)),
	}
	list[2].null, list[2].two = true, true
	for i := range list[:5] {
		list[i].peers = plainHTTP
	}
	list[5].shape.Redirect = true
	return list
}

func secured() []scenario {
	own := shape{TLS: true, Keys: "p256"}
	rsa := shape{TLS: true, Keys: "rsa"}
	s := func(name, origin string, l load.Spec, m metric, sh shape) scenario {
		return scenario{name: name, origin: origin, load: l, metrics: []metric{m}, shape: sh, quick: true}
	}
	pair := shape{HTTP: true, Istio: true, Pair: true, Keys: "p256"}
	list := []scenario{
		s("mTLS 1 KB ping-pong, 32 connections", "echo", load.Spec{Kind: "pingpong", Conns: 32, Size: 1024}, cpu("message", .80, .62), own),
		s("mTLS bulk up, 1 connection", "sink", load.Spec{Kind: "up", Conns: 1}, cpu("GB", .90, .75), own),
		s("mTLS bulk down, 1 connection", "source", load.Spec{Kind: "down", Conns: 1}, cpu("GB", .85, .65), own),
		s("mutual handshake P-256, full", "echo", load.Spec{Kind: "handshake", Conns: 8}, cpu("handshake", 1.15, .90), own),
		s("mutual handshake P-256, resumed", "echo", load.Spec{Kind: "resume", Conns: 8}, cpu("handshake", 1.10, .80), own),
		s("mutual handshake RSA-2048, full", "echo", load.Spec{Kind: "handshake", Conns: 8}, cpu("handshake", 3.5, 2), rsa),
		s("mutual handshake RSA-2048, resumed", "echo", load.Spec{Kind: "resume", Conns: 8}, cpu("handshake", 1.10, .80), rsa),
		s("two sidecars with mTLS, HTTP/1.1 1 KB Istio-shaped, 32 connections", "h1", h1Load(32, 0), cpu("request, both", .40, .25), pair),
	}
	for i := range list[:7] {
		list[i].peers = noFloor
	}
	list[7].size = 1024
	list[6].quick = false
	return list
}

func policy() (list []scenario) {
	for _, r := range []struct {
		name         string
		rbac, routes int
		quick        bool
	}{
		{"HTTP/1.1 1 KB behind 1 RBAC rule", 1, 0, false},
		{"HTTP/1.1 1 KB behind 100 RBAC rules", 100, 0, true},
		{"HTTP/1.1 1 KB behind 1,000 RBAC rules", 1000, 0, false},
		{"HTTP/1.1 1 KB, the last of 1,000 routes", 0, 1000, true},
	} {
		list = append(list, scenario{name: r.name, origin: "h1", size: 1024, shape: shape{HTTP: true, RBAC: r.rbac, Routes: r.routes}, quick: r.quick, peers: []string{"forward"},
			load: h1Load(32, 0), metrics: []metric{cpu("request", .30, .18)}})
	}
	return list
}

// spreads are the rows about who gets which of few connections that last.
func spreads() (list []scenario) {
	for _, exact := range []bool{false, true} {
		name := "the kernel"
		if exact {
			name = "exact_balance"
		}
		list = append(list, scenario{name: name, kind: spread, origin: "echo", size: 64, shape: shape{Two: true, Exact: exact}, quick: true, rounds: 2, untuned: true,
			metrics: []metric{{"busier", "on the busier one", "connections", 1, 0, 0}}})
	}
	return list
}

// resting are the rows about memory and start. Memory of connections is read 8
// s after the last was made: what is given back later than at once counts.
func resting() (list []scenario) {
	for _, r := range []struct {
		name, load, origin string
		shape              shape
		must, goal         float64
	}{
		{"idle TCP connections", "idle", "echo", shape{}, .10, .03},
		{"idle HTTP/1.1 connections", "idle-http", "h1", shape{HTTP: true}, .10, .03},
		{"idle mTLS connections", "idle", "echo", shape{TLS: true, Keys: "p256"}, .45, .25},
	} {
		list = append(list, scenario{name: r.name, kind: idle, origin: r.origin, size: 64, shape: r.shape, quick: true, rounds: 3, untuned: true,
			load: load.Spec{Kind: r.load}, peers: []string{"haproxy"},
			metrics: []metric{{"mem0", "3,000", "KB/connection", 1, r.must, r.goal}, {"mem1", "9,800", "KB/connection", 1, r.must, r.goal}}})
	}
	return append(list, scenario{name: "process at rest", kind: start, origin: "h1", size: 64, shape: shape{HTTP: true}, quick: true, peers: []string{"haproxy"},
		metrics: []metric{{"start", "exec to first answer", "ms", 1, .40, .10}, {"pss", "memory 2 s after start", "MB", 1, .30, .15}}})
}

func meshes() (list []scenario) {
	for _, n := range []int{100, 1000, 10000} {
		name := map[int]string{100: "100", 1000: "1,000", 10000: "10,000"}[n] + " clusters from ADS"
		s := scenario{name: name, kind: control, mesh: n, quick: n != 100, rounds: 3, metrics: []metric{
			{"load", "exec to first answer", "ms", 1, .4, .12}, {"pss", "memory", "MB", 1, .25, .08},
		}}
		if n == 10000 {
			s.metrics = append(s.metrics,
				metric{"effect50", "one endpoint changed, effect p50", "ms", 1, 1, .4}, metric{"effect99", "one endpoint changed, effect p99", "ms", 1, .3, .08},
				metric{"reload", "all clusters and endpoints changed, effect", "ms", 1, .4, .1}, metric{"reloadcpu", "all changed, CPU", "ms", 1, .4, .1},
				metric{"stall", "all changed, longest stall of a neighbour's requests", "ms", 1, .3, .1}, metric{"pssafter", "memory after all changed", "MB", 1, .25, .08})
		}
		list = append(list, s)
	}
	return list
}
