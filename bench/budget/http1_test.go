package budget

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

const plainRequest = "GET /api/v1/things?id=7 HTTP/1.1\r\nhost: b.demo.svc.cluster.local\r\nuser-agent: python-requests/2.32.3\r\naccept-encoding: gzip, deflate\r\n" +
	"accept: */*\r\nconnection: keep-alive\r\nx-tenant: blue\r\ncookie: session=6ba7b8109dad41d180b400c04fd430c8\r\n\r\n"

// talk1 is a request without content and an answer of 1 KB.
type talk1 struct {
	request, answer []byte
	pieces          int // that the answer comes in
	asked, answered func(b []byte) bool
}

func newTalk1() *talk1 {
	body := strings.Repeat("0123456789abcdef", 64)
	return &talk1{
		request: []byte(plainRequest),
		answer: fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\ndate: Mon, 30 Nov 2026 13:36:14 GMT\r\nx-powered-by: tests\r\n\r\n%s",
			len(body), body),
		pieces: 1,
		asked: func(b []byte) bool {
			return bytes.HasPrefix(b, []byte("GET /api")) && bytes.HasSuffix(b, []byte("\r\n\r\n"))
		},
		answered: func(b []byte) bool {
			return bytes.HasPrefix(b, []byte("HTTP/1.1 200 ")) && bytes.HasSuffix(b, []byte(body))
		},
	}
}

func (k *talk1) exchange(p *path) {
	p.write(p.client, k.request)
	p.fromProxy(&p.origin, k.asked)
	for i := 1; i < k.pieces; i++ {
		p.write(p.origin, k.answer[:200])
		p.step()
	}
	p.write(p.origin, k.answer[200*(k.pieces-1):])
	p.fromProxy(&p.client, k.answered)
}

// TestIstioPathHasItsFeatures shows that what is measured is on.
func TestIstioPathHasItsFeatures(t *testing.T) {
	p := newHTTP1(t, "istio")
	k, request := p.talk.(*talk1), []byte(nil)
	asked := k.asked
	k.asked = func(b []byte) bool { request = append(request[:0], b...); return asked(b) }
	k.exchange(p)
	answer := string(p.in[:400])
	p.files.Flush()
	for text, parts := range map[string][]string{
		string(request): {"x-request-id: ", "x-envoy-attempt-count: 1", "x-envoy-expected-rq-timeout-ms: 15000", "x-env: production", "x-client: 10.244.1.12", "x-envoy-peer-metadata-id: "},
		answer:          {"server: envoy", "x-envoy-upstream-service-time: "},
		string(p.log.b): {`"GET /api/v1/things?id=7 HTTP/1.1" 200 - via_upstream - "-" 0 1024 `, "outbound|80||b.demo.svc.cluster.local", "10.96.0.12:80 10.244.1.12:41234 - default\n"},
	} {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in %q", part, text)
			}
		}
	}
	if strings.Contains(answer, "x-powered-by") {
		t.Errorf("%q", answer)
	}
	var metrics []telemetry.Metric
	var r telemetry.Registry
	r.Register(p.w.Post, p.set)
	p.await(func() error { metrics = r.Gather(t.Context()); return nil })
	if !slices.ContainsFunc(metrics, func(m telemetry.Metric) bool { return m.Prom == "istio_requests_total" && m.Value == 1 }) {
		t.Error("istio_requests_total is not 1")
	}
}

// newHTTP1 is the path of HTTP/1.1 on both sides.
func newHTTP1(t *testing.T, name string) *path { return newHTTP1With(t, name, nil, 1) }

func newHTTP1With(t *testing.T, name string, extra filter.HTTP, pieces int) *path {
	t.Helper()
	p := newProxy(t, name, extra)
	k := newTalk1()
	k.pieces = pieces
	p.talk = k
	return p
}
