package budget

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"sluice/internal/h1"
	"sluice/internal/h2"
	"sluice/internal/httpmsg"
	"sluice/listener/sniff"
)

// wire is an engine's socket in memory.
type wire struct{ out []byte }

func (w *wire) Grab() []byte      { return w.out }
func (w *wire) Put(b []byte)      { w.out = b }
func (w *wire) Pending() int      { return 0 }
func (w *wire) PauseRead()        {}
func (w *wire) ResumeRead()       {}
func (w *wire) CloseWhenFlushed() {}
func (w *wire) Abort()            {}

// answer is a handler that answers every request with the same message; it also
// is the receiver of its one stream.
type answer struct {
	s              httpmsg.Stream
	head, trailers httpmsg.Head
	body           []byte
	ends           int
}

func (a *answer) OnStream(s httpmsg.Stream) httpmsg.Receiver { a.s = s; return a }
func (a *answer) OnGone()                                    {}
func (a *answer) OnHead(_ *httpmsg.Head, end bool)           { a.end(end) }
func (a *answer) OnData(_ []byte, end bool)                  { a.end(end) }
func (a *answer) OnTrailers(*httpmsg.Head)                   { a.end(true) }
func (a *answer) OnReset(httpmsg.ResetReason)                {}
func (a *answer) OnDrain()                                   {}
func (a *answer) end(end bool) {
	if !end {
		return
	}
	if a.ends++; a.s == nil {
		return // a client's
	}
	a.s.SendHead(&a.head, false)
	a.s.SendData(a.body, a.trailers.Len() == 0)
	if a.trailers.Len() > 0 {
		a.s.SendTrailers(&a.trailers)
	}
}

func fields(h *httpmsg.Head, list ...[2]string) {
	for _, f := range list {
		h.Add([]byte(f[0]), []byte(f[1]))
	}
}

const (
	chunks         = "5\r\nhello\r\n3\r\nabc\r\n0\r\nX-T: v\r\n\r\n"
	chunkedRequest = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n" + chunks
	plainAnswer    = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-type: text/plain\r\ndate: Mon, 30 Nov 2026 13:36:14 GMT\r\nserver: envoy\r\n\r\nhello"
	chunkedAnswer  = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/plain\r\ndate: Mon, 30 Nov 2026 13:36:14 GMT\r\nserver: envoy\r\n\r\n" + chunks
)

func sniffing(t *testing.T) []*work {
	request, hello := []byte(plainRequest), clientHello()
	h, scratch := &sniff.Hello{}, make([]byte, 16<<10)
	return []*work{
		pure("sniff/http1", func() {
			if v, verdict := sniff.HTTP(request); v != sniff.HTTP11 || verdict != sniff.Yes {
				t.Fatal(v, verdict)
			}
		}),
		pure("sniff/tls", func() {
			if sniff.ClientHello(hello, scratch, h) != sniff.Yes {
				t.Fatal("not a ClientHello")
			}
		}),
	}
}

// hearing is a connection that keeps what is sent and answers nothing.
type hearing struct {
	net.Conn
	sent []byte
}

func (c *hearing) Write(b []byte) (int, error) { c.sent = append(c.sent, b...); return len(b), nil }
func (c *hearing) Read([]byte) (int, error)    { return 0, io.EOF }

// clientHello is the first record of a handshake, which gets no further.
func clientHello() []byte {
	c := &hearing{}
	_ = tls.Client(c, &tls.Config{ServerName: "outbound_.80_._.b.demo.svc.cluster.local", NextProtos: []string{"istio-http/1.1", "istio"}, MinVersion: tls.VersionTLS13}).Handshake()
	return c.sent
}

func engines(t *testing.T) []*work {
	return []*work{
		pure("h1/server", serve1(t, plainRequest, [2]string{"content-length", "5"})),
		pure("h1/server/chunked", serve1(t, chunkedRequest, [2]string{"x-a", "b"})),
		pure("h1/client", ask1(t, plainAnswer)),
		pure("h1/client/chunked", ask1(t, chunkedAnswer)),
		pure("h2/unary", unary(t)),
	}
}

// serve1 reads a request and writes its answer, in chunks unless more tells its length.
func serve1(t *testing.T, request string, more [2]string) func() {
	w, a, in := &wire{}, &answer{body: []byte("hello")}, []byte(request)
	a.head.Status = 200
	fields(&a.head, more, [2]string{"content-type", "text/plain"}, [2]string{"date", "Mon, 30 Nov 2026 13:36:14 GMT"}, [2]string{"server", "envoy"})
	s := h1.NewServer(w, a, &h1.Options{EnableTrailers: true})
	return func() {
		w.out = w.out[:0]
		if n, err := s.Feed(in); n != len(in) || err != nil || len(w.out) == 0 {
			t.Fatal(n, err)
		}
	}
}

// ask1 writes a request and reads its answer.
func ask1(t *testing.T, answered string) func() {
	w, r, in := &wire{}, &answer{}, []byte(answered)
	c := h1.NewClient(w, &h1.Options{})
	var h httpmsg.Head
	h.SetMethod([]byte("GET"))
	h.SetPath([]byte("/some/path?with=query"))
	h.SetAuthority([]byte("echo.default.svc.cluster.local"))
	fields(&h, [2]string{"user-agent", "bench/1.0"}, [2]string{"accept", "*/*"}, [2]string{"x-request-id", "6a9ab3f2-b8a4-4c5a-9f4b-0a6b5c4d3e2f"},
		[2]string{"x-forwarded-proto", "http"}, [2]string{"accept-encoding", "gzip"})
	return func() {
		w.out = w.out[:0]
		c.Open(r).SendHead(&h, true)
		if n, err := c.Feed(in); n != len(in) || err != nil || !c.Reusable() {
			t.Fatal(n, err)
		}
	}
}

// unary is one gRPC call through both a client and a server engine.
func unary(t *testing.T) func() {
	cw, sw, a, r := &wire{}, &wire{}, &answer{body: make([]byte, 205)}, &answer{}
	a.head.Status = 200
	fields(&a.head, [2]string{"content-type", "application/grpc"})
	fields(&a.trailers, [2]string{"grpc-status", "0"}, [2]string{"grpc-message", ""})
	s, c := h2.NewServer(sw, a, (&h2.Options{}).WithDefaults(false)), h2.NewClient(cw, (&h2.Options{}).WithDefaults(true))
	var h httpmsg.Head
	h.SetMethod([]byte("POST"))
	h.SetPath([]byte("/package.Service/Method"))
	h.SetAuthority([]byte("svc.default.svc.cluster.local:8080"))
	fields(&h, [2]string{"content-type", "application/grpc"}, [2]string{"te", "trailers"}, [2]string{"user-agent", "grpc-go/1.80.0"}, [2]string{"grpc-timeout", "1S"})
	body := make([]byte, 205)
	move := func(from *wire, feed func([]byte) (int, error)) {
		if n, err := feed(from.out); n != len(from.out) || err != nil {
			t.Fatal(n, err)
		}
		from.out = from.out[:0]
	}
	move(cw, s.Feed)
	move(sw, c.Feed)
	return func() {
		ends := r.ends
		st := c.Open(r)
		st.SendHead(&h, false)
		st.SendData(body, true)
		move(cw, s.Feed)
		s.Flushed()
		move(sw, c.Feed)
		c.Flushed()
		if r.ends != ends+1 || c.Active() != 0 || s.Active() != 0 {
			t.Fatal("the call did not end")
		}
	}
}
