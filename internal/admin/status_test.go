package admin_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/internal/admin"
)

func newStatus(t *testing.T) (http.Handler, map[string]bool, *admin.Readiness) {
	t.Helper()
	done := map[string]bool{}
	app, err := admin.NewAppMetrics("", nil)
	if err != nil {
		t.Fatal(err)
	}
	ready := admin.NewReadiness(nil, "identity")
	s := &admin.Status{Ready: ready, App: app, Probes: probes(t, ""),
		Metrics: func(w io.Writer, _ string) error { _, err := io.WriteString(w, "own 1\n"); return err },
		Drain:   func() { done["drain"] = true }, Quit: func() { done["quit"] = true },
		Identity: func() (bool, string) { return done["identity"], "connection refused: istiod:15012" }, NameTable: func() []byte { return nil },
	}
	return s.Handler(), done, ready
}

func from(h http.Handler, client, method, path string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = client
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestOnlyThePodItselfMayEndIt(t *testing.T) {
	h, done, _ := newStatus(t)
	for _, path := range []string{"/quitquitquit", "/drain", "/debug/pprof/", "/debug/ndsz"} {
		for _, client := range []string{"10.0.0.1:1", "[2001:db8::1]:1", "broken"} {
			if code, _ := from(h, client, http.MethodPost, path); code != 403 {
				t.Errorf("%s from %s: %d, want 403", path, client, code)
			}
		}
	}
	if code, _ := from(h, "127.0.0.1:1", http.MethodGet, "/quitquitquit"); code != 405 || len(done) > 0 {
		t.Errorf("GET: %d, done %v", code, done)
	}
	for _, x := range []string{"drain", "quit"} {
		path := map[string]string{"drain": "/drain", "quit": "/quitquitquit"}[x]
		if code, body := from(h, "[::1]:1", http.MethodPost, path); code != 200 || body != "OK" || !done[x] {
			t.Errorf("%s: %d %q, done %v", path, code, body, done)
		}
	}
	if code, body := from(h, "127.0.0.1:1", http.MethodGet, "/debug/ndsz"); code != 404 || body != "{}\n" {
		t.Errorf("no name table: %d %q", code, body)
	}
}

func TestReadyPageSaysWhy(t *testing.T) {
	h, done, _ := newStatus(t)
	if code, body := from(h, "10.0.0.1:1", http.MethodGet, "/healthz/ready"); code != 503 || !strings.Contains(body, "identity: connection refused: istiod:15012") {
		t.Errorf("%d %q", code, body)
	}
	done["identity"] = true
	if code, body := from(h, "10.0.0.1:1", http.MethodGet, "/healthz/ready"); code != 200 || body != "" {
		t.Errorf("%d %q", code, body)
	}
}

func TestScrapeByAnybody(t *testing.T) {
	h, _, _ := newStatus(t)
	for _, path := range []string{"/stats/prometheus", "/metrics"} {
		if code, body := from(h, "10.0.0.1:1", http.MethodGet, path); code != 200 || body != "own 1\n" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
}
