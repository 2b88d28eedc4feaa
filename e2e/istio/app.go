package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"sluice/internal/meshtest/netns"
	"sluice/internal/meshtest/podapp"
)

// echoes answers HTTP requests with what was received.
type echoes struct{ name string }

// echo is the answer to an HTTP request.
type echo struct {
	App, Method, Path, Host, Proto, From string
	Headers                              http.Header
}

func startApp(ns *netns.Namespace, name string) (*podapp.App, error) {
	a := &podapp.App{Name: name, Handler: echoes{name}, GRPC: grpc.NewServer()}
	healthpb.RegisterHealthServer(a.GRPC, health.NewServer())
	return a, a.Start(ns)
}

// ServeHTTP obeys ?status= and echoes the request.
func (a echoes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
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
