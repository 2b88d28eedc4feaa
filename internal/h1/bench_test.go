package h1

import (
	"testing"
	"unsafe"

	"sluice/internal/httpmsg"
)

// answer is a handler that answers at once; ask a receiver that counts ends.
type answer struct {
	s    httpmsg.Stream
	head httpmsg.Head
	body []byte
}

func (a *answer) OnStream(s httpmsg.Stream) httpmsg.Receiver { a.s = s; return a }
func (a *answer) OnGone()                                    {}
func (a *answer) OnHead(_ *httpmsg.Head, end bool) {
	if end {
		a.send()
	}
}
func (a *answer) OnData(_ []byte, end bool) {
	if end {
		a.send()
	}
}
func (a *answer) OnTrailers(*httpmsg.Head)    { a.send() }
func (a *answer) OnReset(httpmsg.ResetReason) {}
func (a *answer) OnDrain()                    {}
func (a *answer) send() {
	a.s.SendHead(&a.head, false)
	a.s.SendData(a.body, true)
}

type ask struct{ ends int }

func (a *ask) OnHead(_ *httpmsg.Head, end bool) {
	if end {
		a.ends++
	}
}
func (a *ask) OnData(_ []byte, end bool) {
	if end {
		a.ends++
	}
}
func (a *ask) OnTrailers(*httpmsg.Head)    { a.ends++ }
func (a *ask) OnReset(httpmsg.ResetReason) {}
func (a *ask) OnDrain()                    {}

const benchRequest = "GET /some/path?with=query HTTP/1.1\r\nHost: echo.default.svc.cluster.local\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n" +
	"X-Request-Id: 6a9ab3f2-b8a4-4c5a-9f4b-0a6b5c4d3e2f\r\nX-Forwarded-Proto: http\r\nX-B3-Sampled: 0\r\nAccept-Encoding: gzip\r\n\r\n"

const benchChunked = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5\r\nhello\r\n3\r\nabc\r\n0\r\nX-T: v\r\n\r\n"

func okHead(h *httpmsg.Head) {
	h.Status = 200
	h.AddString(httpmsg.ContentLength, "5")
	h.AddString(httpmsg.ContentType, "text/plain")
	h.AddString(httpmsg.Date, "Mon, 30 Nov 2026 13:36:14 GMT")
	h.AddString(httpmsg.Server, "envoy")
}

func requestHead(h *httpmsg.Head) {
	h.SetMethod([]byte("GET"))
	h.SetPath([]byte("/some/path?with=query"))
	h.SetAuthority([]byte("echo.default.svc.cluster.local"))
	for _, f := range [][2]string{{"user-agent", "bench/1.0"}, {"accept", "*/*"}, {"x-request-id", "6a9ab3f2-b8a4-4c5a-9f4b-0a6b5c4d3e2f"},
		{"x-forwarded-proto", "http"}, {"x-b3-sampled", "0"}, {"accept-encoding", "gzip"}} {
		h.Add([]byte(f[0]), []byte(f[1]))
	}
}

const benchResponse = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-type: text/plain\r\ndate: Mon, 30 Nov 2026 13:36:14 GMT\r\nserver: envoy\r\n\r\nhello"

// serverRun gives a function that runs one exchange through a server.
func serverRun(tb testing.TB, in string) func() {
	w := &wire{}
	a := &answer{body: []byte("hello")}
	okHead(&a.head)
	s := NewServer(w, a, &Options{EnableTrailers: true})
	b := []byte(in)
	return func() {
		w.out = w.out[:0]
		if n, err := s.Feed(b); n != len(b) || err != nil {
			tb.Fatal(n, err)
		}
	}
}

func clientRun(tb testing.TB) func() {
	w := &wire{}
	c := NewClient(w, &Options{})
	r := &ask{}
	var h httpmsg.Head
	requestHead(&h)
	b := []byte(benchResponse)
	return func() {
		w.out = w.out[:0]
		c.Open(r).SendHead(&h, true)
		if n, err := c.Feed(b); n != len(b) || err != nil || !c.Reusable() {
			tb.Fatal(n, err)
		}
	}
}

func TestExchangesDoNotAllocate(t *testing.T) {
	for name, run := range map[string]func(){
		"server": serverRun(t, benchRequest), "server, chunks and trailers": serverRun(t, benchChunked), "client": clientRun(t),
	} {
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations an exchange", name, n)
		}
	}
}

func TestIdleEngineIsSmall(t *testing.T) {
	if s, c := unsafe.Sizeof(Server{}), unsafe.Sizeof(Client{}); s > 200 || c > 200 {
		t.Errorf("server %d, client %d bytes, want at most 200", s, c)
	}
}

func BenchmarkServer(b *testing.B) {
	run := serverRun(b, benchRequest)
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}

func BenchmarkServerChunked(b *testing.B) {
	run := serverRun(b, benchChunked)
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}

func BenchmarkClient(b *testing.B) {
	run := clientRun(b)
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}
