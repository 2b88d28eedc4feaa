package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// programs builds the real control plane and agent once, into the module's cache
// folder, and finds ours and Envoy, which the Makefile names.
func programs(t *testing.T) binaries {
	t.Helper()
	b := binaries{proxy: os.Getenv("SLUICE_PROXY"), init: os.Getenv("SLUICE_INIT"), envoy: os.Getenv("SLUICE_ENVOY")}
	for name, path := range map[string]string{"SLUICE_PROXY": b.proxy, "SLUICE_INIT": b.init, "SLUICE_ENVOY": b.envoy} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s must name a binary (make test sets it): %v", name, err)
		}
	}
	cache, err := filepath.Abs("../../.cache")
	if err != nil {
		t.Fatal(err)
	}
	const istio = "istio.io/istio/"
	// Without a version the agent calls itself "unknown", and istiod then gates nothing.
	flags := "-s -w -X " + istio + "pkg/version.buildVersion=1.31.0 -X " + istio + "pkg/version.buildStatus=Clean"
	build := exec.Command("go", "build", "-ldflags", flags, "-o", cache+"/", istio+"pilot/cmd/pilot-discovery", istio+"pilot/cmd/pilot-agent")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building istiod: %v\n%s", err, out)
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "istio.io/istio").Output()
	if err != nil {
		t.Fatalf("finding Istio's module: %v", err)
	}
	b.discovery, b.agent = cache+"/pilot-discovery", cache+"/pilot-agent"
	b.bootstrap = strings.TrimSpace(string(dir)) + "/tools/packaging/common/envoy_bootstrap.json"
	return b
}

// reachable puts a program into dir: user 1337 may not enter the home folder that a
// clone is in.
func reachable(t *testing.T, path, dir string) string {
	t.Helper()
	to := filepath.Join(dir, filepath.Base(path))
	if os.Link(path, to) == nil {
		return to
	}
	b, err := os.ReadFile(path) // another file system
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func bed(t *testing.T, prefix string, stock bool, kinds map[string]Sidecar) (*Bed, map[string]*Pod) {
	t.Helper()
	ctx := t.Context()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // the sidecars run as 1337
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := programs(t)
	all.envoy = reachable(t, all.envoy, dir)
	b, err := NewBed(context.WithoutCancel(ctx), dir, prefix, stock, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, p := range b.pods {
				t.Logf("log of pod %s (%s) ends:\n%s", p.Name, p.Kind, tail(filepath.Join(b.Dir, p.Name+".log")))
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	pods := map[string]*Pod{}
	for _, name := range []string{"a", "b", "c"} {
		if kinds[name] == "" {
			continue
		}
		if pods[name], err = b.AddPod(context.WithoutCancel(ctx), name, podIP(name), kinds[name]); err != nil {
			t.Fatal(err)
		}
	}
	return b, pods
}

func TestPairsOfSidecarsSpeakMutualTLS(t *testing.T) {
	for _, pair := range []struct {
		name   string
		stock  bool
		client Sidecar
		server Sidecar
	}{
		{"Envoy to Envoy, which proves the bed", true, Envoy, Envoy},
		{"ours to ours, Istio's default filters", false, Ours, Ours},
		{"ours to Envoy", true, Ours, Envoy},
		{"Envoy to ours", true, Envoy, Ours},
	} {
		t.Run(pair.name, func(t *testing.T) {
			_, pods := bed(t, "sle", pair.stock, map[string]Sidecar{"a": pair.client, "b": pair.server, "c": Outside})
			checkTraffic(t, pods["a"])
			if status, _, err := pods["c"].ask(t.Context(), podIP("b")+":8080", "b", "/"); err == nil {
				t.Errorf("plaintext from outside a STRICT mesh got status %d, want no answer", status)
			}
		})
	}
}

const clientID = "URI=spiffe://cluster.local/ns/demo/sa/a"

func checkTraffic(t *testing.T, a *Pod) {
	t.Helper()
	status, got, err := a.ask(t.Context(), vip("b"), "b", "/x")
	if err != nil || status != 200 || got.App != "b" {
		t.Errorf("HTTP/1.1: status %d, from %q, %v", status, got.App, err)
	}
	if xfcc := got.Headers.Get("X-Forwarded-Client-Cert"); !strings.Contains(xfcc, clientID) {
		t.Errorf("b's application saw x-forwarded-client-cert %q, want one with %s", xfcc, clientID)
	}
	if err := checkHTTP2(t.Context(), a); err != nil {
		t.Errorf("HTTP/2: %v", err)
	}
	if err := checkGRPC(t.Context(), a, vip("b")+":7070"); err != nil {
		t.Errorf("gRPC: %v", err)
	}
	if got, err := exchange(t.Context(), a, vip("b")+":9000", "hello\n"); err != nil || got != "hello\n" {
		t.Errorf("TCP echo: %q, %v", got, err)
	}
	if got, err := exchange(t.Context(), a, vip("b")+":9001", ""); err != nil || !strings.HasPrefix(got, "220 b") {
		t.Errorf("server-first TCP: %q, %v", got, err)
	}
}

// checkHTTP2 sends two requests over one cleartext HTTP/2 connection.
func checkHTTP2(ctx context.Context, p *Pod) error {
	c := clientIn(p.Namespace)
	transport := c.Transport.(*http.Transport)
	transport.DisableKeepAlives, transport.Protocols = false, &http.Protocols{}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer c.CloseIdleConnections()
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+vip("b")+"/h2", nil)
		if err != nil {
			return err
		}
		req.Host = "b"
		res, err := c.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
			return fmt.Errorf("%s %s: %w", res.Proto, res.Status, err)
		}
	}
	return nil
}

func checkGRPC(ctx context.Context, p *Pod, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("b.demo.svc.cluster.local:7070"),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return p.Dial(ctx, addr) }))
	if err != nil {
		return err
	}
	defer cc.Close()
	res, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
	if err == nil && res.Status != healthpb.HealthCheckResponse_SERVING {
		err = fmt.Errorf("health %v", res.Status)
	}
	return err
}

// exchange sends text (when there is any) and reads a line.
func exchange(ctx context.Context, p *Pod, address, text string) (string, error) {
	c, err := p.Dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func TestVirtualServiceChangesLive(t *testing.T) {
	b, pods := bed(t, "sle", false, map[string]Sidecar{"a": Ours, "b": Ours, "c": Ours})
	a, ctx := pods["a"], t.Context()
	if err := b.Apply("routes", routesYAML); err != nil {
		t.Fatal(err)
	}
	err := until(ctx, 20*time.Second, "the header route", func() error {
		status, got, err := a.ask(ctx, vip("b"), "b", "/", "x-canary", "1")
		if err == nil && (status != 200 || got.App != "c") {
			err = fmt.Errorf("status %d from %q", status, got.App)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, _, err := a.ask(ctx, vip("b"), "b", "/slow?delay=3s"); status != 504 {
		t.Errorf("a request over its route's timeout got %d, %v, want 504", status, err)
	}
	seen := map[string]int{}
	for range 40 {
		if _, got, err := a.ask(ctx, vip("b"), "b", "/"); err == nil {
			seen[got.App]++
		}
	}
	if seen["b"]+seen["c"] != 40 || seen["b"] < 8 || seen["c"] < 8 {
		t.Errorf("weights 50:50 gave %v", seen)
	}
	if err := b.Delete("routes"); err != nil {
		t.Fatal(err)
	}
	err = until(ctx, 20*time.Second, "the route to be gone", func() error {
		if _, got, err := a.ask(ctx, vip("b"), "b", "/", "x-canary", "1"); err != nil || got.App != "b" {
			return fmt.Errorf("still from %q, %v", got.App, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestControlPlaneLossCostsNoRequest(t *testing.T) {
	b, pods := bed(t, "sle", false, map[string]Sidecar{"a": Ours, "b": Ours})
	a, ctx := pods["a"], t.Context()
	stop := make(chan struct{})
	failed := make(chan error, 1)
	var done atomic.Int64
	go func() { // ends when stop closes
		defer close(failed)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if status, _, err := a.ask(ctx, vip("b"), "b", "/"); err != nil || status != 200 {
				failed <- errors.Join(fmt.Errorf("after %d requests: status %d", done.Load(), status), err)
				return
			}
			done.Add(1)
		}
	}()
	time.Sleep(time.Second)
	b.StopIstiod()
	time.Sleep(2 * time.Second)
	if err := a.WaitReady(ctx); err != nil {
		t.Errorf("not ready while istiod is away: %v", err)
	}
	if err := b.StartIstiod(context.WithoutCancel(ctx)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if err := b.Apply("routes", timeoutYAML); err != nil {
		t.Fatal(err)
	}
	err := until(ctx, 40*time.Second, "a push after the restart", func() error {
		status, _, err := a.ask(ctx, vip("b"), "b", "/slow?delay=2s")
		if status != 504 {
			return fmt.Errorf("status %d, %v", status, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if done.Load() < 50 {
		t.Errorf("only %d requests were made", done.Load())
	}
}
