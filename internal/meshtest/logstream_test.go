package meshtest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice/internal/meshtest"
)

// logService keeps the entries it gets.
type logService struct{ entries chan proto.Message }

// StreamAccessLogs implements als.AccessLogServiceServer.
func (s *logService) StreamAccessLogs(stream als.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			s.entries <- e
		}
		for _, e := range m.GetTcpLogs().GetLogEntry() {
			s.entries <- e
		}
	}
}

const logBootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: %[1]d}}}
node: {id: node, cluster: c}
static_resources:
  listeners:
  - name: http
    address: {socket_address: {address: 127.0.0.1, port_value: %[2]d}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          access_log:
          - name: als
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
              common_config: {log_name: l, buffer_flush_interval: 0.05s, transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: als}}}
              additional_request_headers_to_log: [x, none]
              additional_response_headers_to_log: [server]
          route_config:
            virtual_hosts:
            - {name: v, domains: ["*"], routes: [{name: up, match: {prefix: /up}, route: {cluster: a}}, {match: {prefix: /dead}, route: {cluster: dead}}, {match: {prefix: /}, direct_response: {status: 200}}]}
          http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
  - name: tcp
    address: {socket_address: {address: 127.0.0.1, port_value: %[3]d}}
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: t
          cluster: a
          access_log:
          - name: als
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig
              common_config: {log_name: l, buffer_flush_interval: 0.05s, transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: als}}}
  clusters:
  - {name: a, load_assignment: {cluster_name: a, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %[4]d}}}}]}]}}
  - {name: dead, load_assignment: {cluster_name: dead, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]}}
  - name: als
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: als, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %[5]d}}}}]}]}
`

func TestStreamedEntriesAreEnvoys(t *testing.T) {
	envoy := os.Getenv("SLUICE_ENVOY")
	if envoy == "" {
		t.Skip("SLUICE_ENVOY names no Envoy")
	}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello")
	}))
	t.Cleanup(app.Close)
	want := entriesOf(t, envoy, app)
	got := entriesOf(t, sidecar(t), app)
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("entry %d\ngot  %v\nwant %v", i, got[i], want[i])
		}
	}
}

// entriesOf runs a proxy, makes four connections through it, and gives what it
// told the log service of each.
func entriesOf(t *testing.T, binary string, app *httptest.Server) (out []proto.Message) {
	t.Helper()
	ports, err := meshtest.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := &logService{entries: make(chan proto.Message, 10)}
	server := grpc.NewServer()
	als.RegisterAccessLogServiceServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-served })
	file := filepath.Join(t.TempDir(), "bootstrap.yaml")
	text := fmt.Sprintf(logBootstrap, ports[0], ports[1], ports[2], app.Listener.Addr().(*net.TCPAddr).Port, l.Addr().(*net.TCPAddr).Port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-c", file, "--concurrency", "1", "--disable-hot-restart")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for _, to := range []string{"/up?q=1", "/local", "/dead", ""} {
		port := ports[1]
		if to == "" {
			port = ports[2]
		}
		askOnce(t, port, to)
		select {
		case e := <-service.entries:
			settle(e.ProtoReflect())
			out = append(out, e)
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: no entry of %q", filepath.Base(binary), to)
		}
	}
	return out
}

// askOnce makes one request on a connection of its own, once the proxy listens.
func askOnce(t *testing.T, port int, path string) {
	t.Helper()
	var c net.Conn
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var err error
		if c, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	body := "abc"
	if path == "/local" {
		body = "" // an answer before the content closes the connection
	}
	fmt.Fprintf(c, "POST /%s HTTP/1.1\r\nhost: svc\r\nx: 1\r\ncontent-length: %d\r\n\r\n%s", strings.TrimPrefix(path, "/"), len(body), body)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
}

// settle takes from an entry what differs by nature or by docs/DIFFERENCES.md: times,
// identifiers and ports.
func settle(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case slices.Contains([]string{"port_value", "stream_id", "request_id", "start_time", "duration"}, name), strings.HasPrefix(name, "time_to_"):
			m.Clear(f)
		case f.Message() != nil && !f.IsMap() && !f.IsList():
			settle(v.Message())
		}
		return true
	})
}
