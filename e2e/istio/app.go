package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"sluice/internal/meshtest/netns"
)

// app is a pod's application: HTTP/1.1 and h2c on 8080, gRPC on 7070, TCP on
// 9000 (echo) and 9001 (speaks first). HTTP answers say what was received.
type app struct {
	name string
	http *http.Server
	grpc *grpc.Server
	tcp  []net.Listener
}

// echo is the answer to an HTTP request.
type echo struct {
	App, Method, Path, Host, Proto, From string
	Headers                              http.Header
}

func startApp(ns *netns.Namespace, name string) (*app, error) {
	a := &app{name: name, grpc: grpc.NewServer()}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	a.http = &http.Server{Handler: a, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	healthpb.RegisterHealthServer(a.grpc, health.NewServer())
	for port, serve := range map[string]func(net.Listener){
		"8080": func(l net.Listener) { _ = a.http.Serve(l) },
		"7070": func(l net.Listener) { _ = a.grpc.Serve(l) },
		"9000": func(l net.Listener) { accept(l, "") },
		"9001": func(l net.Listener) { accept(l, "220 "+name+" speaks first\n") },
	} {
		l, err := ns.Listen("0.0.0.0:" + port)
		if err != nil {
			a.stop()
			return nil, err
		}
		a.tcp = append(a.tcp, l)
		go serve(l) // ends when stop closes l
	}
	return a, nil
}

func (a *app) stop() {
	_ = a.http.Close()
	a.grpc.Stop()
	for _, l := range a.tcp {
		l.Close()
	}
}

// accept greets, then echoes.
func accept(l net.Listener, greeting string) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) || err != nil {
			return
		}
		go func() { // ends with its connection
			defer c.Close()
			_, _ = io.WriteString(c, greeting)
			_, _ = io.Copy(c, c)
		}()
	}
}

// ServeHTTP obeys ?status= and ?delay= and echoes the request.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d, err := time.ParseDuration(r.URL.Query().Get("delay")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
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
