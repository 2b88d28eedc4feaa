package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authz "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"sluice/internal/meshtest/netns"
	"sluice/internal/meshtest/podapp"
)

// echoes answers HTTP requests with what was received.
type echoes struct {
	name  string
	spans *spans
}

// echo is the answer to an HTTP request.
type echo struct {
	App, Method, Path, Host, Proto, From string
	Headers                              http.Header
}

func startApp(ns *netns.Namespace, name string) (*podapp.App, error) {
	got := &spans{}
	a := &podapp.App{Name: name, Handler: echoes{name, got}, GRPC: grpc.NewServer(grpc.UnknownServiceHandler(got.otlp))}
	healthpb.RegisterHealthServer(a.GRPC, health.NewServer())
	authz.RegisterAuthorizationServer(a.GRPC, gatekeeper{})
	return a, a.Start(ns)
}

// gatekeeper is the authorization service of app c: it denies what says so.
type gatekeeper struct{}

const permission = "x-ext-authz"

func (gatekeeper) Check(_ context.Context, r *authz.CheckRequest) (*authz.CheckResponse, error) {
	out := &authz.CheckResponse{Status: &status.Status{}}
	request, port := r.GetAttributes().GetRequest(), r.GetAttributes().GetDestination().GetAddress().GetSocketAddress().GetPortValue()
	if request.GetHttp().GetHeaders()[permission] == "deny" || request == nil && port == 9001 {
		out.Status.Code = int32(codes.PermissionDenied)
		return out, nil
	}
	user := r.GetAttributes().GetSource().GetPrincipal()
	out.HttpResponse = &authz.CheckResponse_OkResponse{OkResponse: &authz.OkHttpResponse{Headers: []*core.HeaderValueOption{{Header: &core.HeaderValue{Key: "x-user", Value: user}}}}}
	return out, nil
}

// ServeHTTP obeys ?status= and echoes the request. App c is the authorization
// service of others too, and their collector of spans.
func (a echoes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/api/v2/spans" {
		a.spans.zipkin(body)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if a.name == "c" {
		w.Header().Set("X-User", "known to c")
		if r.Header.Get(permission) == "deny" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if s, err := strconv.Atoi(r.URL.Query().Get("status")); err == nil {
		w.WriteHeader(s)
	}
	_ = json.NewEncoder(w).Encode(echo{a.name, r.Method, r.URL.Path, r.Host, r.Proto, r.RemoteAddr, r.Header})
}

// ask sends a GET from a pod to a service's address.
func (p *Pod) ask(ctx context.Context, vip, host, path string, headers ...string) (int, echo, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+vip+path, nil)
	if err != nil {
		return 0, echo{}, err
	}
	req.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := clientIn(p.Namespace).Do(req)
	if err != nil {
		return 0, echo{}, err
	}
	defer res.Body.Close()
	var e echo
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, &e)
	}
	return res.StatusCode, e, err
}
