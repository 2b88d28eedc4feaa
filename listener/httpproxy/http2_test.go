package httpproxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/config"
)

// h2Origin is an upstream that speaks HTTP/2 with prior knowledge.
func h2Origin(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: &p}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return l.Addr().String()
}

func h2Client(t testing.TB) *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 5 * time.Second}
}

func TestHTTP2BothWaysSharesOneUpstreamConnection(t *testing.T) {
	c := static("a", h2Origin(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		echo(w, r)
	}))
	c.HTTP.Kind = config.UpstreamHTTP2
	b := start(t, hcm(to("/", "a")), c)
	cl := h2Client(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			resp, err := cl.Post(fmt.Sprintf("http://%s/p%d", b.addr, i), "text/plain", strings.NewReader("body"))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 || !strings.HasPrefix(string(got), fmt.Sprintf("POST /p%d ", i)) {
				t.Errorf("%d %s %v", resp.StatusCode, got, err)
			}
		})
	}
	wg.Wait()
	if n := b.stat("cluster.a.upstream_cx_total"); n != 1 {
		t.Errorf("%d upstream connections, want 1", n)
	}
	if n := b.stat("cluster.a.upstream_rq_active"); n != 0 {
		t.Errorf("%d requests are still active", n)
	}
}

func TestDownstreamProtocolIsUsedUpstream(t *testing.T) {
	c := static("a", h2Origin(t, echo))
	c.HTTP.Kind = config.UpstreamDownstream
	b := start(t, hcm(to("/", "a")), c)
	resp, err := h2Client(t).Get("http://" + b.addr + "/x")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	if got := b.get("/x"); !strings.HasPrefix(got, "502 ") && !strings.HasPrefix(got, "503 ") {
		t.Errorf("%q: an HTTP/1 client must be spoken for in HTTP/1", got)
	}
}

func TestLocalRepliesToGRPC(t *testing.T) {
	b := start(t, hcm(to("/empty", "empty"), to("/gone", "gone")), static("empty"), static("gone", closed(t)))
	for _, c := range []struct{ path, status, message string }{
		{"/none", "12", ""}, {"/empty", "14", "no healthy upstream"},
		{"/gone", "14", "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure"},
	} {
		req, err := http.NewRequest("POST", "http://"+b.addr+c.path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("content-type", "application/grpc")
		resp, err := h2Client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("grpc-status") != c.status || resp.Header.Get("grpc-message") != c.message {
			t.Errorf("%s: %d %v", c.path, resp.StatusCode, resp.Header)
		}
	}
}

func TestBreakersAnswerOverflow(t *testing.T) {
	release := make(chan struct{})
	c := static("a", origin(t, func(w http.ResponseWriter, r *http.Request) { <-release; echo(w, r) }))
	c.Breakers[0] = config.Breaker{Connections: 1, Pending: 1, Requests: 10, Retries: 3, Pools: config.Unlimited, PerHostConnections: config.Unlimited}
	b := start(t, hcm(to("/", "a")), c)
	var wg sync.WaitGroup
	for _, stat := range []string{"upstream_rq_active", "upstream_rq_pending_active"} { // one on the connection, one waiting
		wg.Go(func() {
			if got := b.get("/held"); !strings.HasPrefix(got, "200 ") {
				t.Errorf("%q", got)
			}
		})
		b.await("cluster.a."+stat, 1)
	}
	if got, want := b.get("/over"), "503 upstream connect error or disconnect/reset before headers. reset reason: overflow"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	close(release)
	wg.Wait()
	if n := b.stat("cluster.a.upstream_rq_pending_overflow"); n != 1 {
		t.Errorf("upstream_rq_pending_overflow %d, want 1", n)
	}
}

func TestAnUnchangedClusterKeepsItsConnections(t *testing.T) {
	addr := origin(t, echo)
	c := static("a", addr)
	c.Hash = 1
	c.Load.Hash = 1
	b := start(t, hcm(to("/", "a")), c)
	b.get("/1")
	again := static("a", addr)
	again.Hash, again.Load.Hash = 1, 2 // endpoints pushed again, with one more
	again.Load.Localities[0].Endpoints = append(again.Load.Localities[0].Endpoints, static("x", closed(t)).Load.Localities[0].Endpoints[0])
	again.Load.Localities[0].Endpoints[1].Health = config.HealthUnhealthy
	b.apply(again)
	b.get("/2")
	if n := b.stat("cluster.a.upstream_cx_total"); n != 1 {
		t.Errorf("%d connections, want the first to be kept", n)
	}
	b.apply()
	if got := b.get("/3"); got != "503 " {
		t.Errorf("%q after the cluster went", got)
	}
}

func TestOutlierDetectionEjectsAndBringsBack(t *testing.T) {
	var ok bool
	var mu sync.Mutex
	c := static("a", origin(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !ok {
			w.WriteHeader(500)
		}
	}))
	c.LBCommon.PanicThreshold = 0
	c.Outlier = &config.Outlier{Consecutive5xx: 3, Enforce5xx: 100, Interval: 20 * time.Millisecond, BaseEjection: 100 * time.Millisecond,
		MaxEjection: time.Second, MaxEjectionPercent: 100}
	b := start(t, hcm(to("/", "a")), c)
	for range 3 {
		b.get("/x")
	}
	if got := b.get("/x"); got != "503 no healthy upstream" {
		t.Fatalf("%q, want the host to be out", got)
	}
	mu.Lock()
	ok = true
	mu.Unlock()
	deadline := time.Now().Add(3 * time.Second)
	for b.get("/x") != "200 " {
		if time.Now().After(deadline) {
			t.Fatal("the host never came back")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestMirrorsGetWholeRequestsAndNobodyWaits(t *testing.T) {
	got := make(chan string, 4)
	shadow := origin(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		got <- fmt.Sprintf("%s %s host=%s body=%s", r.Method, r.URL, r.Host, body)
		time.Sleep(300 * time.Millisecond)
	})
	r := to("/", "a")
	r.Action.Mirrors = []config.Mirror{{Cluster: "m"}}
	b := start(t, hcm(r), static("a", origin(t, echo)), static("m", shadow))
	began := time.Now()
	b.raw("POST /p HTTP/1.1\r\nhost: svc:80\r\ncontent-length: 2\r\n\r\nhi", "POST")
	if time.Since(began) > 250*time.Millisecond {
		t.Error("the answer waited for the mirror")
	}
	if s := <-got; s != "POST /p host=svc-shadow:80 body=hi" {
		t.Error(s)
	}
}
