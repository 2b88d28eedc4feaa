//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
)

func withID(ctx context.Context, id string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-demo", id)
}

// events breaks things, one after another, and looks at what callers see.
func (s *story) events(ctx context.Context) {
	s.say("\nFive events:")
	s.check("one of two servers dies: 40 requests, all answered by the other (a retry hides it)", s.serverDies(ctx))
	s.check("a route with a timeout of 500 ms: an answer that takes 2 s is cut with 504, flag UT", s.timeout(ctx))
	s.check("mTLS goes STRICT: a plaintext client from outside, served before, is refused (NR, filter_chain_not_found)", s.strict(ctx))
	open, err := s.holdConnection(ctx)
	s.check("the control plane is killed: requests go on, the sidecar stays ready", orFirst(err, func() error { return s.controlPlaneDies(ctx) }))
	s.check("it comes back: a push arrives; a connection opened before was not cut and no unchanged listener was made anew",
		orFirst(err, func() error { return s.controlPlaneReturns(ctx, open) }))
	if open != nil {
		open.Close()
	}
}

func orFirst(err error, f func() error) error {
	if err != nil {
		return err
	}
	return f()
}

func (s *story) serverDies(ctx context.Context) (err error) {
	s.pods["b2"].app.Stop()
	s.pods["b2"].app = nil
	for i := range 40 {
		status, body, err := s.pods["a"].get(ctx, false, "http://"+serviceVIP+"/", "b", "e-dies-"+strconv.Itoa(i))
		if err != nil || status != 200 || !strings.HasPrefix(body, "b1 ") {
			return fmt.Errorf("request %d: status %d, %q, %w", i, status, body, err)
		}
	}
	s.pods["b2"].app, err = startApp(s.pods["b2"].Namespace, "b2")
	return err
}

func (s *story) timeout(ctx context.Context) error {
	began := time.Now()
	status, body, err := s.pods["a"].get(ctx, false, "http://"+slowVIP+"/?delay=2s", "slow", "e-timeout")
	if err != nil || status != http.StatusGatewayTimeout {
		return fmt.Errorf("status %d, %q, %w", status, body, err)
	}
	if took := time.Since(began); took < 450*time.Millisecond || took > time.Second {
		return fmt.Errorf("it was cut after %v", took)
	}
	f, err := s.logged(s.pods["a"], "id=e-timeout ")
	if err == nil && f["flags"] != "UT" {
		err = fmt.Errorf("flag %q", f["flags"])
	}
	return err
}

func (s *story) strict(ctx context.Context) error {
	x := s.pods["x"]
	plain := func() (int, error) {
		status, _, err := x.get(ctx, false, "http://10.244.0.21:8080/", "b", "e-plain")
		return status, err
	}
	if status, err := plain(); err != nil || status != 200 {
		return fmt.Errorf("before: status %d, %w", status, err)
	}
	s.mesh.Strict = true
	if err := s.push(); err != nil {
		return err
	}
	refused := false
	for range 100 {
		if _, err := plain(); err != nil {
			refused = true
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !refused {
		return fmt.Errorf("it is still served")
	}
	if _, err := s.logged(s.pods["b1"], "chain=none"); err != nil {
		return err
	}
	if err := s.httpOver(ctx, false, "e-strict"); err != nil {
		return fmt.Errorf("and the mesh's own client: %w", err)
	}
	return nil
}

// holdConnection opens a TCP connection through both sidecars.
func (s *story) holdConnection(ctx context.Context) (net.Conn, error) {
	c, err := s.pods["a"].Dial(ctx, serviceVIP+":9000")
	if err != nil {
		return nil, err
	}
	if err := converse(c, "one\n", "one"); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (s *story) controlPlaneDies(ctx context.Context) error {
	s.stopControlPlane()
	for i := range 20 {
		if err := s.httpOver(ctx, false, "e-without"); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	if err := s.pods["a"].ready(ctx); err != nil {
		return fmt.Errorf("readiness: %w", err)
	}
	return nil
}

func (s *story) controlPlaneReturns(ctx context.Context, open net.Conn) error {
	before, err := s.stat(ctx, "listener_manager.listener_create_success")
	if err != nil {
		return err
	}
	if err := s.startControlPlane(); err != nil {
		return err
	}
	for i := range s.mesh.Services {
		if s.mesh.Services[i].Name == "slow" {
			s.mesh.Services[i].Timeout = 0
		}
	}
	if err := s.push(); err != nil {
		return err
	}
	arrived := false
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && !arrived; time.Sleep(100 * time.Millisecond) {
		status, _, err := s.pods["a"].get(ctx, false, "http://"+slowVIP+"/?delay=800ms", "slow", "e-push")
		arrived = err == nil && status == 200
	}
	if !arrived {
		return fmt.Errorf("the push that lifts the timeout has not arrived in 20 s")
	}
	if err := converse(open, "two\n", "two"); err != nil {
		return fmt.Errorf("the connection opened before: %w", err)
	}
	after, err := s.stat(ctx, "listener_manager.listener_create_success")
	if err == nil && after != before {
		err = fmt.Errorf("listeners were created: %d before, %d after", before, after)
	}
	return err
}

// stat reads one of pod a's statistics from its admin page.
func (s *story) stat(ctx context.Context, name string) (int, error) {
	res, err := s.pods["a"].client(false).Get("http://127.0.0.1:15000/stats?filter=^" + name + "$")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	_, value, ok := strings.Cut(strings.TrimSpace(string(text)), ": ")
	if !ok {
		return 0, fmt.Errorf("no statistic %s: %q, %w", name, text, ctx.Err())
	}
	return strconv.Atoi(value)
}
