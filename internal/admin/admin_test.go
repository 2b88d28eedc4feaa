package admin_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"sluice/internal/admin"
	"sluice/internal/telemetry"
)

// pages is an admin whose parts are small, and what was done to it.
type pages struct {
	http.Handler
	state   admin.State
	drained []string
	quit    bool
	level   slog.LevelVar
}

func newPages() *pages {
	p := &pages{state: admin.Live}
	metrics := &telemetry.Registry{}
	metrics.Global(func(emit func(telemetry.Metric)) {
		emit(telemetry.Metric{Name: "server.one", Prom: "envoy_server_one", Value: 1})
		emit(telemetry.Metric{Name: "cluster.a.zero", Prom: "envoy_cluster_zero", Labels: []telemetry.Label{{Name: "envoy_cluster_name", Value: "a\"b"}}, Value: 0})
		emit(telemetry.Metric{Name: "http.in;.open", Prom: "envoy_http_open", Kind: telemetry.Gauge, Used: true})
		emit(telemetry.Metric{Name: "http.in;.unused", Prom: "envoy_http_unused", Kind: telemetry.Gauge})
		emit(telemetry.Metric{Name: "took", Prom: "took", Kind: telemetry.Histogram, Value: 2, Sum: 1.5, Buckets: []uint64{1, 2}})
	})
	write := func(_ context.Context, w io.Writer, q url.Values) error {
		_, err := io.WriteString(w, map[bool]string{true: `{"json":1}`, false: "text"}[q.Get("format") == "json"])
		return err
	}
	a := &admin.Admin{
		Version: "sluice/<test>", Began: time.Now(), State: func() admin.State { return p.state }, Metrics: metrics,
		Clusters: write, Listeners: write,
		ConfigDump: func(_ context.Context, q url.Values) ([]byte, int) {
			if q.Get("resource") == "nothing" {
				return []byte("nothing not found in config dump"), http.StatusNotFound
			}
			return []byte(`{}`), http.StatusOK
		},
		Certs: func(w io.Writer) error { return nil }, InitDump: func(w io.Writer) error { return nil }, Runtime: func(w io.Writer) error { return nil },
		Node: json.RawMessage(`{"id":"n"}`), Logging: &admin.Logging{Level: &p.level},
		Drain: func(inbound, graceful, skip bool) {
			p.drained = append(p.drained, strings.Trim(strings.Join([]string{
				map[bool]string{true: "inbound"}[inbound], map[bool]string{true: "graceful"}[graceful], map[bool]string{true: "skip"}[skip]}, " "), " "))
		},
		Quit: func() { p.quit = true },
	}
	p.Handler = a.Handler()
	return p
}

func (p *pages) do(method, path string) (int, string, http.Header) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String(), w.Header()
}

func TestWhatChangesSomethingNeedsPOST(t *testing.T) {
	p := newPages()
	for _, path := range []string{"/drain_listeners", "/healthcheck/fail", "/healthcheck/ok", "/logging?level=debug", "/quitquitquit"} {
		if code, body, _ := p.do(http.MethodGet, path); code != 405 || body != "Method GET not allowed, POST required." {
			t.Errorf("GET %s: %d %q", path, code, body)
		}
		if code, _, _ := p.do(http.MethodDelete, path); code != 405 {
			t.Errorf("DELETE %s: %d", path, code)
		}
	}
	if len(p.drained) > 0 || p.quit || p.level.Level() != slog.LevelInfo {
		t.Errorf("a refused request did something: %+v", p)
	}
	p.do(http.MethodPost, "/drain_listeners?inboundonly&graceful&skip_exit")
	p.do(http.MethodPost, "/drain_listeners")
	p.do(http.MethodPost, "/logging?level=debug")
	p.do(http.MethodPost, "/quitquitquit")
	if strings.Join(p.drained, "|") != "inbound graceful skip|" || !p.quit || p.level.Level() != slog.LevelDebug {
		t.Errorf("POST did: drained %q, quit %v, level %v", p.drained, p.quit, p.level.Level())
	}
}

func TestIndexIsReadable(t *testing.T) {
	code, body, h := newPages().do(http.MethodGet, "/")
	if code != 200 || !strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		t.Errorf("%d %s", code, h.Get("Content-Type"))
	}
	for _, want := range []string{"<title>", "LIVE", `<a href="/config_dump">`, `<form method="post" action="/quitquitquit">`, "sluice/&lt;test&gt;"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
}

func TestReadyFollowsStateAndHealthCheck(t *testing.T) {
	p := newPages()
	want := func(code int, text string) {
		t.Helper()
		if c, b, _ := p.do(http.MethodGet, "/ready"); c != code || b != text+"\n" {
			t.Errorf("%d %q, want %d %s", c, b, code, text)
		}
	}
	want(200, "LIVE")
	p.do(http.MethodPost, "/healthcheck/fail")
	want(503, "DRAINING")
	p.do(http.MethodPost, "/healthcheck/ok")
	want(200, "LIVE")
	p.state = admin.Initializing
	want(503, "INITIALIZING")
}

func TestPagesInBothForms(t *testing.T) {
	p := newPages()
	for _, x := range []struct {
		path string
		code int
		kind string
		body string
	}{
		{"/clusters", 200, "text/plain", "text"},
		{"/clusters?format=json", 200, "application/json", `{"json":1}`},
		{"/listeners", 200, "text/plain", "text"},
		{"/stats", 200, "text/plain", "cluster.a.zero: 0\nhttp.in;.open: 0\nhttp.in;.unused: 0\nserver.one: 1\ntook: count 2, sum 1.5\n"},
		{"/stats?filter=in;&usedonly", 200, "text/plain", "http.in;.open: 0\n"},
		{"/stats?type=Gauges", 200, "text/plain", "http.in;.open: 0\nhttp.in;.unused: 0\n"},
		{"/stats?type=Counters&usedonly", 200, "text/plain", "server.one: 1\n"},
		{"/stats?type=Nonsense", 400, "text/plain", "invalid &type= param"},
		{"/stats?filter=[", 400, "text/plain", "Invalid re2 regex: missing ]: ["},
		{"/stats?filter=*", 400, "text/plain", "Invalid re2 regex: no argument for repetition operator: *"},
		{"/stats?usedonly&filter=^server", 200, "text/plain", "server.one: 1\n"},
		{"/stats?filter=(", 400, "text/plain", "Invalid re2 regex"},
		{"/stats?format=json&filter=one", 200, "application/json", `{"stats":[{"name":"server.one","value":1}]}`},
		{"/stats?format=none", 400, "text/plain", "usage"},
		{"/stats/prometheus", 200, "text/plain", "# TYPE envoy_server_one counter\nenvoy_server_one{} 1\n"},
		{"/stats/prometheus?filter=zero", 200, "text/plain", "# TYPE envoy_cluster_zero counter\nenvoy_cluster_zero{envoy_cluster_name=\"a\\\"b\"} 0\n"},
		{"/stats/prometheus?filter=took", 200, "text/plain", "# TYPE took histogram\ntook_bucket{le=\"0.5\"} 1\ntook_bucket{le=\"1\"} 2\ntook_bucket{le=\"+Inf\"} 2\ntook_sum{} 1.5\ntook_count{} 2\n"},
		{"/stats?format=prometheus&filter=took&histogram_buckets=summary", 200, "text/plain", "# TYPE took summary\ntook_sum{} 1.5\ntook_count{} 2\n"},
		{"/stats/prometheus?filter=[", 400, "text/plain", "Invalid re2 regex: missing ]: ["},
		{"/hot_restart_version", 200, "text/plain", "disabled"},
		{"/config_dump", 200, "application/json", "{}"},
		{"/config_dump?resource=nothing", 404, "text/plain", "nothing not found in config dump"},
		{"/server_info", 200, "application/json", `"state": "LIVE"`},
		{"/memory", 200, "application/json", `"heap_size": "`},
		{"/nowhere", 404, "text/plain", "admin commands are:"},
		{"/help", 200, "text/plain", "/quitquitquit (POST)"},
	} {
		code, body, h := p.do(http.MethodGet, x.path)
		if code != x.code || !strings.HasPrefix(h.Get("Content-Type"), x.kind) || !strings.Contains(body, x.body) {
			t.Errorf("%s: %d %s %q, want %d %s %q", x.path, code, h.Get("Content-Type"), body, x.code, x.kind, x.body)
		}
		if h.Get("Cache-Control") != "no-cache, max-age=0" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", x.path, h)
		}
	}
}

func TestResetPutsCountersToZeroAndLeavesGauges(t *testing.T) {
	p := newPages()
	if code, body, _ := p.do(http.MethodPost, "/reset_counters"); code != 200 || body != "OK\n" {
		t.Fatalf("%d %q", code, body)
	}
	if _, body, _ := p.do(http.MethodGet, "/stats?usedonly"); body != "http.in;.open: 0\nserver.one: 0\ntook: count 2, sum 1.5\n" {
		t.Errorf("%q", body)
	}
}

func TestLoggersOfIstioctl(t *testing.T) {
	p := newPages()
	if code, body, _ := p.do(http.MethodPost, "/logging"); code != 200 || !strings.HasPrefix(body, "active loggers:\n") || !strings.Contains(body, "  rbac: info\n") {
		t.Errorf("%d %q", code, body)
	}
	for _, path := range []string{"/logging?nobody=debug", "/logging?level=loud"} {
		if code, body, _ := p.do(http.MethodPost, path); code != 400 || !strings.Contains(body, "error") {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
}
