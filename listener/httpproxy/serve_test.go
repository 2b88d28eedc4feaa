package httpproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/config"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fmt.Fprintf(w, "%s %s host=%s body=%s proto=%s id=%d", r.Method, r.URL, r.Host, body, r.Header.Get("X-Forwarded-Proto"), len(r.Header.Get("X-Request-Id")))
}

func TestRequestsPassThroughAStaticCluster(t *testing.T) {
	b := start(t, hcm(to("/", "a")), static("a", origin(t, echo)))
	got := b.raw("GET /x?q=1 HTTP/1.1\r\nHost: svc\r\n\r\nPOST /y HTTP/1.1\r\nHost: svc\r\nContent-Length: 2\r\n\r\nhi", "GET", "POST")
	want := []string{"200 GET /x?q=1 host=svc body= proto=http id=36", "200 POST /y host=svc body=hi proto=http id=36"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
	if l := b.logged(2); l[0] != "GET /x?q=1 200 - via_upstream 1" {
		t.Error(l)
	}
	if n := b.stat("cluster.a.upstream_cx_total"); n != 1 {
		t.Errorf("%d upstream connections, want 1", n)
	}
}

func TestLocalReplies(t *testing.T) {
	direct := &config.Route{Match: config.RouteMatch{Path: "/direct"}, Direct: &config.Direct{Status: 201, Body: []byte("made")}, RetryBufferLimit: -1}
	b := start(t, hcm(direct, to("/gone", "gone"), to("/empty", "empty"), to("/missing", "missing"), to("/a", "a")),
		static("gone", closed(t)), static("empty"), static("a", origin(t, echo)))
	for i, c := range []struct{ path, want, log string }{
		{"/direct", "201 made", "201 - direct_response 0"},
		{"/nothing", "404 ", "404 NR route_not_found 0"},
		{"/gone", "503 upstream connect error or disconnect/reset before headers. reset reason: remote connection failure",
			"503 UF upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused} 1"},
		{"/empty", "503 no healthy upstream", "503 UH no_healthy_upstream 1"},
		{"/missing", "503 ", "503 NC cluster_not_found 0"},
	} {
		if got := b.get(c.path); got != c.want {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
		if l := b.logged(i + 1)[i]; l != "GET "+c.path+" "+c.log {
			t.Errorf("log %q, want %q", l, c.log)
		}
	}
}

func withRetry(r *config.Route, p *config.RetryPolicy) *config.Route {
	if p.BackoffBase == 0 {
		p.BackoffBase = time.Millisecond
	}
	r.Action.Retry = p
	return r
}

func TestRetries(t *testing.T) {
	var calls atomic.Int32
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		n := calls.Add(1)
		switch {
		case err != nil:
		case strings.HasPrefix(r.URL.Path, "/never"), n == 1 && r.URL.Path == "/heals":
			w.WriteHeader(503)
		case n == 1 && r.URL.Path == "/reset":
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprintf(w, "ok %s attempt=%s", body, r.Header.Get("X-Envoy-Attempt-Count"))
		}
	})
	m := hcm(withRetry(to("/", "a"), &config.RetryPolicy{On: config.Retry5xx | config.RetryReset, NumRetries: 2}))
	m.Routes.VirtualHosts[0].IncludeAttemptCount = true
	b := start(t, m, static("a", up))
	for i, c := range []struct{ req, want, log string }{
		{"POST /heals HTTP/1.1\r\nhost: s\r\ncontent-length: 4\r\n\r\nkept", "200 ok kept attempt=2", "POST /heals 200 - via_upstream 2"},
		{"POST /reset HTTP/1.1\r\nhost: s\r\ncontent-length: 1\r\n\r\nx", "200 ok x attempt=2", "POST /reset 200 - via_upstream 2"},
		{"GET /never HTTP/1.1\r\nhost: s\r\n\r\n", "503 ", "GET /never 503 URX via_upstream 3"},
	} {
		calls.Store(0)
		if got := b.raw(c.req, "GET")[0]; got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if l := b.logged(i + 1)[i]; l != c.log {
			t.Errorf("%q, want %q", l, c.log)
		}
	}
	if n := b.stat("cluster.a.upstream_rq_retry"); n != 4 {
		t.Errorf("upstream_rq_retry %d, want 4", n)
	}
}

func TestTimeouts(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/head" {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-time.After(3 * time.Second):
		}
	})
	short := to("/", "a")
	short.Action.Timeout = 100 * time.Millisecond
	try := withRetry(to("/try", "a"), &config.RetryPolicy{On: config.Retry5xx, NumRetries: 1, PerTryTimeout: 60 * time.Millisecond})
	idle := to("/idle", "a")
	d := 80 * time.Millisecond
	idle.Action.IdleTimeout = &d
	b := start(t, hcm(try, idle, short), static("a", up))
	for i, c := range []struct{ path, want, log string }{
		{"/hang", "504 upstream request timeout", "504 UT response_timeout 1"},
		{"/head", "200  cut", "200 UT response_timeout 1"},
		{"/try", "504 upstream request timeout", "504 URX,UT upstream_per_try_timeout 2"},
		{"/idle", "504 stream timeout", "504 SI stream_idle_timeout 1"},
	} {
		if got := b.get(c.path); got != c.want {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
		if l := b.logged(i + 1)[i]; l != "GET "+c.path+" "+c.log {
			t.Errorf("log %q, want %q", l, c.log)
		}
	}
}

func TestLargeBodiesBothWays(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	})
	b := start(t, hcm(to("/", "a")), static("a", up))
	body := strings.Repeat("0123456789abcdef", 1<<16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.Post("http://"+b.addr+"/", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != body {
			t.Errorf("%d bytes came back, want %d (%v)", len(got), len(body), err)
		}
	}()
	<-done
}

func TestRequestThatGoesOnIsLoggedByInterval(t *testing.T) {
	answer := make(chan struct{})
	up := origin(t, func(http.ResponseWriter, *http.Request) { <-answer })
	m := hcm(to("/", "a"))
	m.AccessLogInterval = 10 * time.Millisecond
	b := start(t, m, static("a", up))
	c := b.dial()
	c.send("GET /slow HTTP/1.1\r\nhost: s\r\n\r\n")
	if l := b.logged(2); !strings.HasPrefix(l[0], "GET /slow 0 - ") || !strings.HasPrefix(l[1], "GET /slow 0 - ") {
		t.Error(l)
	}
	close(answer)
	c.expect("HTTP/1.1 200 OK\r\n")
}

func TestTunnelThatTheUpstreamEndsIsLoggedAsTerminated(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nbye\n")
		rw.Flush()
	})
	m := hcm(to("/", "a"))
	m.Upgrades = []config.Upgrade{{Type: "websocket", Enabled: true}}
	b := start(t, m, static("a", up))
	c := b.dial()
	c.send("GET /ws HTTP/1.1\r\nhost: s\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
	c.expect("bye\n")
	if l := b.logged(1); l[0] != "GET /ws 101 UC upstream_reset_after_response_started{connection_termination} 1" {
		t.Error(l)
	}
}

func TestWebSocketTunnelEndsWithTheClient(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
		rw.Flush()
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(rw, "echo "+line)
		rw.Flush()
		_, _ = rw.ReadByte()
	})
	m := hcm(to("/", "a"))
	m.Upgrades = []config.Upgrade{{Type: "websocket", Enabled: true}}
	b := start(t, m, static("a", up))
	c := b.dial()
	c.send("GET /ws HTTP/1.1\r\nhost: s\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
	c.expect("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n")
	c.send("hi\n")
	c.expect("echo hi\n")
	c.Close()
	if l := b.logged(1); l[0] != "GET /ws 101 DC downstream_remote_disconnect 1" {
		t.Error(l)
	}
	if got := b.raw("GET /ws HTTP/1.1\r\nhost: s\r\nconnection: Upgrade\r\nupgrade: other\r\n\r\n", "GET")[0]; got != "403 " {
		t.Error(got)
	}
}
