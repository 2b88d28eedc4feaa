//lint:file-ignore SA1019 deprecated fields are still sent

package conform

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authz "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/internal/meshtest"
)

// TestAuthorizationByGRPCIsEnvoys asks both proxies the same and compares what
// the service was asked, what the application got and what the client saw.
func TestAuthorizationByGRPCIsEnvoys(t *testing.T) {
	envoy := os.Getenv("SLUICE_ENVOY")
	if envoy == "" {
		t.Skip("SLUICE_ENVOY names no Envoy")
	}
	for _, content := range []string{"{max_request_bytes: 100}", "{max_request_bytes: 5}", "{max_request_bytes: 5, allow_partial_message: true}",
		"{max_request_bytes: 5, allow_partial_message: true, pack_as_bytes: true}"} {
		want, got := askAll(t, envoy, content), askAll(t, proxyBinary(t), content)
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("%s with %s:\nours  %s\nEnvoy %s", want[i].Path, content, asJSON(got[i]), asJSON(want[i]))
			}
		}
	}
}

// seen is what became of one request.
type seen struct {
	Path        string
	Asked       any
	Calls       map[string][]string // metadata of the call
	Application []string            // head lines
	Status      int
	Headers     []string
	Body        string
}

type authority struct {
	mu   sync.Mutex
	seen *seen
}

func (a *authority) Check(ctx context.Context, r *authz.CheckRequest) (*authz.CheckResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	a.seen.Calls = map[string][]string(md.Copy())
	b, _ := protojson.Marshal(r)
	_ = json.Unmarshal(b, &a.seen.Asked)
	return verdictFor(r.GetAttributes().GetRequest().GetHttp().GetPath())
}

func option(name, value string, join bool, action core.HeaderValueOption_HeaderAppendAction) *core.HeaderValueOption {
	o := &core.HeaderValueOption{Header: &core.HeaderValue{Key: name, Value: value}, AppendAction: action}
	if join {
		o.Append = wrapperspb.Bool(true)
	}
	return o
}

// verdictFor has an answer of each kind, by path.
func verdictFor(path string) (*authz.CheckResponse, error) {
	ok := &authz.OkHttpResponse{}
	out := &authz.CheckResponse{Status: &rpcstatus.Status{}, HttpResponse: &authz.CheckResponse_OkResponse{OkResponse: ok}}
	switch {
	case strings.HasPrefix(path, "/deny"):
		out.Status.Code = 7
		out.HttpResponse = &authz.CheckResponse_DeniedResponse{DeniedResponse: &authz.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: 401}, Body: "no",
			Headers: []*core.HeaderValueOption{option("x-why", "a", false, 0), option("x-why", "b", true, 0), option("x-only", "b", true, 0), option("set-cookie", "a", false, 0), option("set-cookie", "b", false, 0)}}}
	case strings.HasPrefix(path, "/plain"):
		out.Status.Code, out.HttpResponse = 7, nil
	case strings.HasPrefix(path, "/fail"):
		return nil, status.Error(codes.PermissionDenied, "no")
	case strings.HasPrefix(path, "/path"):
		ok.Headers = []*core.HeaderValueOption{option(":path", "/other", false, 0)}
	case strings.HasPrefix(path, "/edit"):
		for i := range core.HeaderValueOption_HeaderAppendAction(4) {
			ok.Headers = append(ok.Headers, option("x-there", fmt.Sprintf("t%d", i), false, i), option(fmt.Sprintf("x-new%d", i), "n", false, i))
			ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, option(fmt.Sprintf("x-app%d", i), "r", false, i), option(fmt.Sprintf("x-made%d", i), "n", false, i))
		}
		ok.Headers = append(ok.Headers, option("x-joined", "b", true, 0), option("x-none", "b", true, 0))
		ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, option("x-app4", "r", true, 0), option("x-made4", "n", true, 0))
		ok.HeadersToRemove = []string{"x-gone", "host", ":path"}
		ok.QueryParametersToSet = []*core.QueryParameter{{Key: "a", Value: "2"}}
		ok.QueryParametersToRemove = []string{"b"}
		out.DynamicMetadata, _ = structpb.NewStruct(map[string]any{"k": "v"})
	}
	return out, nil
}

// askAll runs a proxy before an application and has it asked.
func askAll(t *testing.T, binary, content string) (all []*seen) {
	t.Helper()
	a := &authority{seen: &seen{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	authz.RegisterAuthorizationServer(g, a)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.seen.Application = append([]string{r.Method + " " + r.RequestURI, string(body)}, lines(r.Header)...)
		for i := range 5 {
			w.Header().Set(fmt.Sprint("X-App", i), "app")
		}
	}))
	t.Cleanup(app.Close)
	ports, err := meshtest.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(authzBootstrap, ports[1], ports[0], content, app.Listener.Addr().(*net.TCPAddr).Port, l.Addr().(*net.TCPAddr).Port)
	folder := t.TempDir()
	file := filepath.Join(folder, "bootstrap.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(append([]string{binary, "-c", file}, arguments...), folder, ports[1])
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	if why := p.waitUp(ports[:1], time.Now().Add(20*time.Second), true); why != "ok" {
		t.Fatal(why, p.tail())
	}
	for _, path := range []string{"/yes?q=1", "/edit?a=1&b=1&c=1", "/path", "/deny", "/plain", "/fail"} {
		s := &seen{Path: path}
		a.mu.Lock()
		a.seen = s
		a.mu.Unlock()
		s.ask(t, ports[0])
		all = append(all, s)
	}
	return all
}

func (s *seen) ask(t *testing.T, port int) {
	r, _ := http.NewRequest("POST", fmt.Sprintf("http://127.0.0.1:%d%s", port, s.Path), strings.NewReader("some\xffcontent"))
	r.Host, r.Header = "svc.test", http.Header{"X-There": {"old"}, "X-Joined": {"a"}, "X-Gone": {"1"}, "X-Two": {"1", "2"}, "X-Bytes": {"\xe9\xe8"}, "X-Request-Id": {"00000000-0000-4000-8000-000000000000"}}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	s.Status, s.Body, s.Headers = answer.StatusCode, string(b), lines(answer.Header)
	s.mask()
}

// mask takes out what differs from one run to the next.
func (s *seen) mask() {
	if s.Asked == nil {
		return
	}
	context, _ := s.Asked.(map[string]any)["attributes"].(map[string]any)
	request := context["request"].(map[string]any)
	delete(request, "time")
	delete(request["http"].(map[string]any), "id")
	for _, end := range []string{"source", "destination"} {
		delete(context[end].(map[string]any)["address"].(map[string]any)["socketAddress"].(map[string]any), "portValue")
	}
	delete(s.Calls, ":authority")
}

func lines(h http.Header) (out []string) {
	for name, values := range h {
		if name != "Date" && name != "X-Envoy-Upstream-Service-Time" {
			out = append(out, fmt.Sprintf("%s: %q", name, values))
		}
	}
	slices.Sort(out)
	return out
}

func asJSON(v any) []byte {
	b, _ := json.MarshalIndent(v, "", " ")
	return b
}

const authzBootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}
static_resources:
  listeners:
  - name: l
    address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config: {name: r, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: app}}]}]}
          http_filters:
          - name: envoy.filters.http.ext_authz
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
              transport_api_version: V3
              grpc_service: {envoy_grpc: {cluster_name: az}, timeout: 2s, initial_metadata: [{key: x-initial, value: m}]}
              with_request_body: %s
              include_tls_session: true
              include_peer_certificate: true
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
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
