package httpproxy

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"sluice/internal/config"
)

// fixedOrigin answers every request head it reads with the same bytes and
// allocates nothing on the way.
func fixedOrigin(t testing.TB, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in, out := make([]byte, 4096), []byte(answer)
		for {
			n, err := c.Read(in)
			if err != nil {
				return
			}
			if bytes.HasSuffix(in[:n], []byte("\r\n\r\n")) {
				if _, err := c.Write(out); err != nil {
					return
				}
			}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

const (
	steadyRequest = "GET /api/v1/things?id=7 HTTP/1.1\r\nhost: svc.ns.svc.cluster.local\r\nuser-agent: test\r\naccept: */*\r\n" +
		"x-request-id: 6ba7b810-9dad-41d1-80b4-00c04fd430c8\r\n\r\n"
	steadyAnswer = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\ndate: Mon, 02 Jan 2006 15:04:05 GMT\r\n\r\nhello"
)

// steady is a proxy with retries armed and a kept connection on both sides.
func steady(t testing.TB, tracing *config.Tracing) (exchange func()) {
	m := hcm(withRetry(to("/", "a"), &config.RetryPolicy{On: config.RetryConnectFailure | config.RetryRefusedStream, NumRetries: 2,
		PreviousHosts: true, HostSelectionMax: 5}))
	m.AccessLogs, m.Tracing, m.UseRequestIDSampling = nil, tracing, true
	b := start(t, m, static("a", fixedOrigin(t, steadyAnswer)))
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	req, in := []byte(steadyRequest), make([]byte, 4096)
	return func() {
		if _, err := c.Write(req); err != nil {
			t.Fatal(err)
		}
		for got := 0; ; {
			n, err := c.Read(in[got:])
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			got += n
			if bytes.HasSuffix(in[:got], []byte("hello")) {
				return
			}
		}
	}
}

func TestSteadyRequestsDoNotAllocate(t *testing.T) {
	// The runtime itself allocates now and then; one object in ten requests is
	// far below one a request.
	if got := allocations(steady(t, nil)); got > 0.1 {
		t.Errorf("%.2f allocations a request, want 0", got)
	}
}

func TestTracedRequestsAllocateTheirIdentifiers(t *testing.T) {
	all := config.Percent{PerMillion: 1_000_000}
	for _, p := range []config.TracerProvider{&config.ZipkinTracer{TraceID128: true}, &config.OTelTracer{}} {
		tracing := &config.Tracing{Client: all, Random: all, Overall: all, MaxPathLen: 256, Provider: p}
		if got := allocations(steady(t, tracing)); got < 0.9 || got > 1.1 {
			t.Errorf("%T: %.2f allocations a request, want 1", p, got)
		}
	}
}

func allocations(exchange func()) float64 {
	for range 300 {
		exchange()
	}
	var before, after runtime.MemStats
	const n = 2000
	runtime.ReadMemStats(&before)
	for range n {
		exchange()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / n
}

func BenchmarkSteadyRequest(b *testing.B) {
	exchange := steady(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		exchange()
	}
}
