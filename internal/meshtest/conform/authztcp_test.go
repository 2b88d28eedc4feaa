package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authz "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"sluice/internal/meshtest"
)

// TestAuthorizationOfTCPIsEnvoys has both proxies ask about connections, and
// compares what the service was asked, what became of them, and the counters.
func TestAuthorizationOfTCPIsEnvoys(t *testing.T) {
	envoy := os.Getenv("SLUICE_ENVOY")
	if envoy == "" {
		t.Skip("SLUICE_ENVOY names no Envoy")
	}
	for _, extra := range []string{"", "failure_mode_allow: true", "include_tls_session: true"} {
		want, got := connectAll(t, envoy, extra), connectAll(t, proxyBinary(t), extra)
		if !maps.Equal(got, want) {
			t.Errorf("with %q:\nours  %s\nEnvoy %s", extra, asJSON(got), asJSON(want))
		}
	}
}

// doorman says the next word of each connection.
type doorman struct {
	word  atomic.Pointer[string]
	asked atomic.Pointer[string]
	left  chan struct{}
}

func (d *doorman) Check(ctx context.Context, r *authz.CheckRequest) (*authz.CheckResponse, error) {
	r.GetAttributes().Source.Address.GetSocketAddress().PortSpecifier = nil
	r.GetAttributes().Destination.Address.GetSocketAddress().PortSpecifier = nil
	b, _ := protojson.Marshal(r)
	var v any
	_ = json.Unmarshal(b, &v)
	text := string(asJSON(v))
	d.asked.Store(&text)
	switch *d.word.Load() {
	case "deny":
		return &authz.CheckResponse{Status: &rpcstatus.Status{Code: 7}}, nil
	case "fail":
		return nil, errors.New("broken")
	case "hang":
		<-ctx.Done()
		d.left <- struct{}{}
	}
	return &authz.CheckResponse{Status: &rpcstatus.Status{}}, nil
}

// connectAll runs a proxy before an echo and connects with each word of the service.
func connectAll(t *testing.T, binary, extra string) map[string]string {
	t.Helper()
	d := &doorman{left: make(chan struct{}, 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	authz.RegisterAuthorizationServer(g, d)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	app, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	go echoAll(app)
	ports, err := meshtest.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "bootstrap.yaml")
	text := fmt.Sprintf(doormanBootstrap, ports[1], ports[0], extra, app.Addr().(*net.TCPAddr).Port, l.Addr().(*net.TCPAddr).Port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(append([]string{binary, "-c", file}, arguments...), folder, ports[1])
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	if why := p.waitUp(ports[1:], time.Now().Add(20*time.Second), true); why != "ok" {
		t.Fatal(why, p.tail())
	}
	out := map[string]string{}
	for _, word := range []string{"allow", "deny", "fail", "hang"} {
		d.word.Store(&word)
		out[word] = greeted(t, ports[0], word == "hang")
		out[word+" asked"] = *d.asked.Load()
	}
	select {
	case <-d.left:
	case <-time.After(5 * time.Second):
		t.Errorf("%s: the check of a client that left goes on", binary)
	}
	maps.Copy(out, authzStats(t, ports[1]))
	return out
}

func echoAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// greeted sends a word and says what came back.
func greeted(t *testing.T, port int, leaves bool) string {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		return "closed"
	}
	if leaves {
		time.Sleep(200 * time.Millisecond)
		_ = c.(*net.TCPConn).SetLinger(0)
		return "left"
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil {
		return "closed"
	}
	return string(b)
}

func authzStats(t *testing.T, port int) map[string]string {
	t.Helper()
	res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/stats?filter=%s", port, `^ext_authz\.`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasSuffix(name, ".active") {
			out[name] = value
		}
	}
	return out
}

const doormanBootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}
static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.rbac
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC
          stat_prefix: tcp.
          shadow_rules_stat_prefix: mark_
          shadow_rules: {action: DENY, policies: {all: {permissions: [{any: true}], principals: [{any: true}]}}}
      - name: envoy.filters.network.ext_authz
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.ext_authz.v3.ExtAuthz
          stat_prefix: tcp.
          transport_api_version: V3
          grpc_service: {envoy_grpc: {cluster_name: az}, timeout: 10s}
          filter_enabled_metadata: {filter: envoy.filters.network.rbac, path: [{key: mark_shadow_effective_policy_id}], value: {string_match: {prefix: all}}}
          %s
      - name: envoy.filters.network.tcp_proxy
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: app}
  clusters:
  - name: app
    load_assignment: {cluster_name: app, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}
  - name: az
    load_assignment: {cluster_name: az, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
`
