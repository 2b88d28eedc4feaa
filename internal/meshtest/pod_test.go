package meshtest_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/meshtest"
	"sluice/internal/meshtest/podconfig"
)

// inbound is a pod whose application is served on port in, and whose outbound
// traffic to the same application leaves by port out.
type inbound struct {
	*meshtest.Pod
	in, out int
}

// startInbound runs a pod with an application that answers after the "delay" of
// the query.
func startInbound(t *testing.T, config map[string]any, env ...string) inbound {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.URL.Query().Get("delay"))
		time.Sleep(d)
		fmt.Fprint(w, "app")
	}))
	t.Cleanup(app.Close)
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(app.URL, "http://"))
	number, _ := strconv.Atoi(port)
	ports, err := meshtest.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	listener := func(name, direction string, port int) doc {
		return doc{"name": name, "address": at(port), "traffic_direction": direction, "filter_chains": []any{doc{"filters": []any{manager(name)}}}}
	}
	r, err := meshtest.Decode(podconfig.Resources{
		Clusters: []map[string]any{{"name": "app", "type": "STATIC", "load_assignment": doc{"cluster_name": "app", "endpoints": []any{doc{"lb_endpoints": []any{
			doc{"endpoint": doc{"address": doc{"socket_address": doc{"address": host, "port_value": number}}}}}}}}}},
		Routes: []map[string]any{{"name": "r", "virtual_hosts": []any{doc{"name": "v", "domains": []any{"*"}, "routes": []any{
			doc{"match": doc{"prefix": "/"}, "route": doc{"cluster": "app", "timeout": "30s"}}}}}}},
		Listeners: []map[string]any{listener("virtualInbound", "INBOUND", ports[0]), listener("virtualOutbound", "OUTBOUND", ports[1])},
	})
	if err != nil {
		t.Fatal(err)
	}
	ca := newCA(t)
	plane := startPlane(t, meshtest.Options{CA: ca, Token: "good"})
	if err := plane.Set("1", r); err != nil {
		t.Fatal(err)
	}
	p := startPod(t, meshtest.PodOptions{Istiod: plane.Address, Root: ca.RootPEM, Token: "good", ProxyConfig: config, Env: env})
	eventually(t, p.Health, "/healthz/ready", 200)
	return inbound{p, ports[0], ports[1]}
}

type outcome struct {
	status int
	closes bool
	body   string
	err    error
	took   time.Duration
}

// ask sends a request in the background.
func ask(port int, path string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		began := time.Now()
		c := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
		defer c.CloseIdleConnections()
		res, err := c.Get("http://127.0.0.1:" + itoa(port) + path)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		done <- outcome{res.StatusCode, res.Close, string(b), err, time.Since(began)}
	}()
	return done
}

func TestSIGTERMDrainsInboundAndKeepsOutbound(t *testing.T) {
	p := startInbound(t, map[string]any{"terminationDrainDuration": "2s"})
	slow := ask(p.in, "/?delay=1s")
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, p.Status, "/healthz/ready", 503, "shutting down")
	if x := <-ask(p.in, "/"); x.status != 200 || !x.closes {
		t.Errorf("a new request during the drain: %+v, want 200 and connection: close", x)
	}
	if x := <-ask(p.out, "/"); x.status != 200 || x.closes {
		t.Errorf("an outbound request during the drain: %+v, want 200 and no connection: close", x)
	}
	if x := <-slow; x.status != 200 || !x.closes || x.body != "app" {
		t.Errorf("the request that was under way: %+v, want 200 and connection: close", x)
	}
	status, err := p.Wait(5 * time.Second)
	took := time.Since(began)
	if err != nil || status != 0 || took < 1500*time.Millisecond || took > 3500*time.Millisecond {
		t.Errorf("exit status %d, %v, after %v; want 0 after 2s", status, err, took)
	}
}

func TestExitOnZeroWaitsForTheLastConnection(t *testing.T) {
	p := startInbound(t, map[string]any{"terminationDrainDuration": "60s"}, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "MINIMUM_DRAIN_DURATION=500ms")
	probe, err := net.Dial("tcp", "127.0.0.1:"+itoa(p.Health)) // a kubelet that keeps its connection doesn't count
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	slow := ask(p.in, "/?delay=2s")
	time.Sleep(200 * time.Millisecond)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(time.Second); err == nil {
		t.Error("it left a request that was under way")
	}
	if x := <-slow; x.status != 200 {
		t.Errorf("the request that was under way: %+v", x)
	}
	if status, err := p.Wait(3 * time.Second); err != nil || status != 0 {
		t.Errorf("after the last connection: exit status %d, %v", status, err)
	}
}

func TestPreStopDrainMakesSIGTERMImmediate(t *testing.T) {
	p := startInbound(t, map[string]any{"terminationDrainDuration": "30s"})
	if code, _ := get(p.Status, "/drain"); code != 405 {
		t.Errorf("GET /drain: %d, want 405", code)
	}
	if x := <-ask(p.in, "/"); x.status != 200 || x.closes {
		t.Errorf("before: %+v", x)
	}
	if code, body := post(p.Status, "/drain"); code != 200 || body != "OK" {
		t.Fatalf("POST /drain: %d %q", code, body)
	}
	if x := <-ask(p.in, "/"); x.status != 200 || !x.closes {
		t.Errorf("after /drain: %+v, want connection: close", x)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, err := p.Wait(2 * time.Second); err != nil || status != 0 {
		t.Errorf("exit status %d, %v", status, err)
	}
}

func TestQuitEndsAtOnce(t *testing.T) {
	for _, port := range []string{"status", "admin"} {
		p := startInbound(t, map[string]any{"terminationDrainDuration": "30s"})
		at := map[string]int{"status": p.Status, "admin": p.Admin}[port]
		if code, _ := get(at, "/quitquitquit"); code != 405 {
			t.Errorf("%s: GET /quitquitquit: %d, want 405", port, code)
		}
		if code, body := post(at, "/quitquitquit"); code != 200 || strings.TrimSpace(body) != "OK" {
			t.Errorf("%s: POST /quitquitquit: %d %q", port, code, body)
		}
		if status, err := p.Wait(2 * time.Second); err != nil || status != 0 {
			t.Errorf("%s: exit status %d, %v", port, status, err)
		}
	}
}

func TestMergedMetrics(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE app_things counter\napp_things 7\n# EOF\n")
	}))
	defer app.Close()
	port := app.URL[strings.LastIndexByte(app.URL, ':')+1:]
	p := startInbound(t, nil, `ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","port":"`+port+`","path":"/metrics"}`)
	<-ask(p.in, "/")
	text := eventually(t, p.Status, "/stats/prometheus", 200, "app_things 7", `istio_build{component="proxy"`, "istio_agent_scrapes_total",
		`istio_agent_cert_expiry_seconds{resource_name="default"}`, "istio_agent_startup_duration_seconds", "envoy_server_live{} 1")
	if strings.Contains(text, "# EOF") {
		t.Error("the page ends in its middle")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok && seen[name] {
			t.Errorf("family twice: %s", name)
		} else if ok {
			seen[name] = true
		}
	}
	eventually(t, p.Prometheus, "/stats/prometheus", 200, "envoy_server_live{} 1")
	app.Close()
	eventually(t, p.Status, "/stats/prometheus", 200, "envoy_server_live{} 1", `istio_agent_scrape_failures_total{type="application"}`)
}

func TestConfigDumpHidesKeys(t *testing.T) {
	p := startInbound(t, nil)
	_, dump := get(p.Admin, "/config_dump?include_eds")
	if !strings.Contains(dump, "ROOTCA") || !strings.Contains(dump, "virtualInbound") {
		t.Errorf("a dump without the pod's secrets or listeners: %.300s", dump)
	}
	if strings.Contains(dump, "PRIVATE KEY") || strings.Contains(dump, "UFJJVkFURSBLRVk") {
		t.Error("a private key is in the dump")
	}
	if !strings.Contains(dump, `"default"`) || !strings.Contains(dump, "W3JlZGFjdGVkXQ==") { // [redacted]
		t.Error("no redacted key where the workload's is")
	}
	code, page := get(p.Admin, "/")
	if code != 200 || !strings.Contains(page, "<title>") || !strings.Contains(page, "/config_dump") {
		t.Errorf("the index: %d %.200s", code, page)
	}
}

// TestCertsShowTheIdentityAndItsRoot: once for each place that uses them, as Envoy.
func TestCertsShowTheIdentityAndItsRoot(t *testing.T) {
	ca := newCA(t)
	plane, _ := smallMesh(t, ca)
	p := startPod(t, meshtest.PodOptions{Istiod: plane.Address, Root: ca.RootPEM, Token: "good"})
	page := eventually(t, p.Admin, "/certs", 200, `"uri": "spiffe://cluster.local/ns/demo/sa/a"`, `"ca_cert": [`, `"days_until_expiration": "`)
	if own, root := strings.Count(page, `"cert_chain": [`), strings.Count(page, `"ca_cert": [`); own == 0 || own != root {
		t.Errorf("%d times the workload's certificate, %d times the root", own, root)
	}
	eventually(t, p.Admin, "/stats?filter=days_until", 200, "server.days_until_first_cert_expiring: ")
}

func TestRootOfTheEnvironmentComesFirst(t *testing.T) {
	ca := newCA(t)
	plane := startPlane(t, meshtest.Options{CA: ca, Token: "good"})
	push(t, plane, "1")
	root := t.TempDir() + "/other.pem"
	if err := os.WriteFile(root, ca.RootPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPod(t, meshtest.PodOptions{Istiod: plane.Address, Root: newCA(t).RootPEM, Token: "good", Env: []string{"XDS_ROOT_CA=" + root, "CA_ROOT_CA=" + root}})
	eventually(t, p.Health, "/healthz/ready", 200)
}
