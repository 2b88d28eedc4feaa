package admin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"sluice/internal/admin"
)

var podIP = netip.MustParseAddr("127.0.0.1")

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// probe asks as the kubelet does.
func probe(t *testing.T, p *admin.Probes, path string, header http.Header) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for k, v := range header {
		r.Header[k] = v
	}
	p.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func probes(t *testing.T, text string) *admin.Probes {
	t.Helper()
	p, err := admin.NewProbes(text, podIP, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHTTPProbeAsksTheApplication(t *testing.T) {
	var open atomic.Int64
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/host":
			fmt.Fprint(w, r.Host, " ", r.Header.Get("X-Own"), " ", r.Header.Get("X-Kubelet"))
		case "/sick":
			http.Error(w, "sick", http.StatusTeapot)
		case "/elsewhere":
			http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/host", http.StatusFound)
		case "/long":
			fmt.Fprint(w, strings.Repeat("x", 20<<10))
		case "/from":
			fmt.Fprint(w, r.RemoteAddr)
		case "/slow":
			time.Sleep(1500 * time.Millisecond)
		}
	}))
	app.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	app.Start()
	defer app.Close()
	rule := func(path, more string) string {
		return `{"httpGet":{"path":"` + path + `","port":` + port(app.URL) + more + `},"timeoutSeconds":1}`
	}
	p := probes(t, `{"/app-health/a/livez":`+rule("/host", `,"httpHeaders":[{"name":"Host","value":"own.example"},{"name":"X-Own","value":"1"}]`)+
		`,"/app-health/a/readyz":`+rule("/sick", "")+`,"/app-health/b/readyz":`+rule("/elsewhere", "")+`,"/app-health/c/readyz":`+rule("/here", "")+
		`,"/app-health/d/readyz":`+rule("/long", "")+`,"/app-health/e/readyz":`+rule("/from", "")+`,"/app-health/f/readyz":`+rule("/slow", "")+
		`,"/app-health/g/readyz":{"httpGet":{"path":"/slow","port":`+port(app.URL)+`},"timeoutSeconds":3}`+`}`)
	for _, x := range []struct {
		rule, path string
		status     int
		body       string
	}{
		{"headers of the probe and of the kubelet, the probe's Host", "/app-health/a/livez", 200, "own.example 1 yes"},
		{"a bad status is passed on", "/app-health/a/readyz", 418, "sick"},
		{"a redirect to another host is a success, as for the kubelet", "/app-health/b/readyz", 200, ""},
		{"a redirect to the same host is followed", "/app-health/c/readyz", 200, "yes"},
		{"from the address that the redirect rules let pass", "/app-health/e/readyz", 200, "127.0.0.6:"},
		{"a timeout is a failure", "/app-health/f/readyz", 500, "deadline exceeded"},
		{"a longer timeout is kept to", "/app-health/g/readyz", 200, ""},
		{"an unknown path", "/app-health/nobody/readyz", 400, "no probe"},
	} {
		code, body := probe(t, p, x.path, http.Header{"X-Kubelet": {"yes"}})
		if code != x.status || !strings.Contains(body, x.body) {
			t.Errorf("%s: %d %q, want %d with %q", x.rule, code, body, x.status, x.body)
		}
	}
	if _, body := probe(t, p, "/app-health/d/readyz", nil); len(body) != 10<<10 {
		t.Errorf("a long answer has %d bytes, want 10 KiB", len(body))
	}
	for deadline := time.Now().Add(3 * time.Second); open.Load() > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d probe connections are still open", n)
	}
}

func TestHTTPSProbeTrustsAnybody(t *testing.T) {
	app := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "tls") }))
	defer app.Close()
	p := probes(t, `{"/app-health/a/livez":{"httpGet":{"path":"x","port":"`+port(app.URL)+`","scheme":"HTTPS"}}}`)
	if code, body := probe(t, p, "/app-health/a/livez", nil); code != 200 || body != "tls" {
		t.Errorf("%d %q", code, body)
	}
}

func TestTCPProbeConnects(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := probes(t, `{"/app-health/a/livez":{"tcpSocket":{"port":`+port(l.Addr().String())+`}}}`)
	if code, body := probe(t, p, "/app-health/a/livez", nil); code != 200 {
		t.Errorf("an open port: %d %q", code, body)
	}
	l.Close()
	if code, _ := probe(t, p, "/app-health/a/livez", nil); code != 500 {
		t.Errorf("a closed port: %d", code)
	}
}

func TestGRPCProbeAsksTheHealthService(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := health.NewServer()
	srv := grpc.NewServer()
	healthpb.RegisterHealthServer(srv, h)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() { srv.Stop(); <-done }()
	h.SetServingStatus("sick", healthpb.HealthCheckResponse_NOT_SERVING)
	at := port(l.Addr().String())
	p := probes(t, `{"/app-health/a/livez":{"grpc":{"port":`+at+`}},"/app-health/a/readyz":{"grpc":{"port":`+at+`,"service":"sick"}}}`)
	if code, body := probe(t, p, "/app-health/a/livez", nil); code != 200 {
		t.Errorf("serving: %d %q", code, body)
	}
	if code, body := probe(t, p, "/app-health/a/readyz", nil); code != 500 || !strings.Contains(body, "NOT_SERVING") {
		t.Errorf("not serving: %d %q", code, body)
	}
}

func TestBrokenProbesAreRefused(t *testing.T) {
	for _, text := range []string{"{", `{"/app-health/a/livez":{}}`} {
		if _, err := admin.NewProbes(text, podIP, false); err == nil || !strings.Contains(err.Error(), "ISTIO_KUBE_APP_PROBERS") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestProbeGivesUpWithItsCaller(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer app.Close()
	p := probes(t, `{"/app-health/a/livez":{"httpGet":{"path":"/","port":`+port(app.URL)+`},"timeoutSeconds":30}}`)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/app-health/a/livez", nil).WithContext(ctx))
	if b, _ := io.ReadAll(w.Result().Body); w.Code != 500 {
		t.Errorf("%d %q", w.Code, b)
	}
}
