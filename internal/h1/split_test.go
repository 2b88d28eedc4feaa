package h1

import (
	"strings"
	"testing"

	"sluice/internal/httpmsg"
)

// requests and responses are the seeds of the split tests and of the fuzzers.
var requests = []string{
	benchRequest, benchChunked, benchChunked + benchRequest,
	"GET / HTTP/1.1\nHost: a\nX: one\n two\r\n\tthree\r\n\n", "GET / HTTP/1.1\r\nHost: a\r\nX: y \r\n \r\nZ: \t\r\n\r\n",
	"\r\nPOST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nhost: b\r\nConnection: close\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
	"GET / HTTP/1.1\r\nHost: a\r\nBad Header\r\n\r\n", "GARBAGE\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nraw bytes",
	"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\nraw", "GET / HTTP/1.0\r\n\r\n", "GET /\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}

var responses = []string{
	benchResponse, "HTTP/1.1 200 OK\nX: one\r\n two\ncontent-length: 2\n\nok",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: v\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\nraw",
	"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n",
	"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", "HTTP/1.1 304 N\r\netag: x\r\n\r\n",
}

// serve feeds in, cut at the given places, to a server that answers each
// request when it is complete, and gives the events and the wire.
func serve(in string, cuts ...int) string {
	_, d, l := newServer(Options{AllowAbsoluteURL: true, EnableTrailers: true})
	answer := func(end bool) {
		if end {
			reply(l.stream, 200, "ok")
		}
	}
	l.onHead = func(h *httpmsg.Head, end bool) {
		if h.Has(httpmsg.Upgrade) && !end {
			var r httpmsg.Head
			r.Status = 101
			l.stream.SendHead(&r, false)
		}
		answer(end)
	}
	l.onData = func(_ []byte, end bool) { answer(end) }
	l.onTrailers = func() { answer(true) }
	at := 0
	for _, c := range append(cuts, len(in)) {
		d.push(in[at:c])
		at = c
	}
	return l.String() + "\n--\n" + string(d.w.out)
}

func ask1(in string, eof bool, cuts ...int) string {
	c, d, l, s := newClient(Options{EnableTrailers: true})
	request(s, "GET", true, "connection", "upgrade", "upgrade", "x")
	at := 0
	for _, cut := range append(cuts, len(in)) {
		d.push(in[at:cut])
		at = cut
	}
	if eof {
		c.EOF()
	}
	return l.String()
}

func TestServerSeesTheSameAtEverySplit(t *testing.T) {
	for _, in := range requests {
		whole := serve(in)
		for i := 1; i < len(in); i++ {
			if got := serve(in, i); got != whole {
				t.Fatalf("%q cut at %d:\n got %s\nwant %s", in, i, got, whole)
			}
		}
		every := make([]int, len(in))
		for i := range every {
			every[i] = i
		}
		if got := serve(in, every...); got != whole {
			t.Fatalf("%q byte by byte:\n got %s\nwant %s", in, got, whole)
		}
	}
}

func TestClientSeesTheSameAtEverySplit(t *testing.T) {
	for _, in := range responses {
		whole := ask1(in, true)
		for i := 1; i < len(in); i++ {
			if got := ask1(in, true, i); got != whole {
				t.Fatalf("%q cut at %d:\n got %s\nwant %s", in, i, got, whole)
			}
		}
	}
}

// FuzzServer1 checks that no input breaks the engine, that a split changes
// nothing, and that what is delivered can be sent on as exactly one message.
func FuzzServer1(f *testing.F) {
	for _, in := range requests {
		f.Add(in, uint16(3))
	}
	f.Fuzz(func(t *testing.T, in string, cut uint16) {
		whole := serve(in)
		if got := serve(in, min(int(cut), len(in))); got != whole {
			t.Fatalf("cut at %d:\n got %s\nwant %s", cut, got, whole)
		}
		forward(t, in)
	})
}

// forward sends each request that a server takes to a second server, and
// compares what both saw.
func forward(t *testing.T, in string) {
	_, d, l := newServer(Options{AllowAbsoluteURL: true})
	var up *Client
	var s httpmsg.Stream
	w := &wire{}
	l.onHead = func(h *httpmsg.Head, end bool) {
		h.Del(httpmsg.Connection)
		h.Del(httpmsg.Upgrade)
		if string(h.Method()) == "CONNECT" {
			return
		}
		up = NewClient(w, &Options{})
		s = up.Open(&log{})
		s.SendHead(h, end)
		if end {
			reply(l.stream, 200, "")
		}
	}
	l.onData = func(p []byte, end bool) {
		if s == nil {
			return
		}
		s.SendData(p, end)
		if end {
			reply(l.stream, 200, "")
		}
	}
	d.push(in)
	_, d2, l2 := newServer(Options{})
	n := 0
	l2.onHead = func(_ *httpmsg.Head, end bool) {
		n++
		if end {
			reply(l2.stream, 200, "")
		}
	}
	l2.onData = func(_ []byte, end bool) {
		if end {
			reply(l2.stream, 200, "")
		}
	}
	d2.push(string(w.out))
	if heads := strings.Count("\n"+l.String(), "\nhead "); n > heads {
		t.Fatalf("%q: %d requests became %d: %q", in, heads, n, w.out)
	}
}

// FuzzClient1 does the same for responses.
func FuzzClient1(f *testing.F) {
	for _, in := range responses {
		f.Add(in, uint16(3), true)
	}
	f.Fuzz(func(t *testing.T, in string, cut uint16, eof bool) {
		whole := ask1(in, eof)
		if got := ask1(in, eof, min(int(cut), len(in))); got != whole {
			t.Fatalf("cut at %d:\n got %s\nwant %s", cut, got, whole)
		}
	})
}
