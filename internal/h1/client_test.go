package h1

import (
	"strings"
	"testing"

	"sluice/internal/httpmsg"
)

// TestResponses has what a client makes of what an upstream sends: the events,
// and whether the connection may be used again.
func TestResponses(t *testing.T) {
	bad := "reset 5 0 http1.codec_error before=true"
	for _, c := range []struct {
		name, method, in, want string
		reusable, failed       bool
	}{
		{"length", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", `head 200 content-length="2" end=false|data ok|end`, true, false},
		{"chunks", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "head 200 end=false|data ok|end", true, false},
		{"length zero", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", `head 200 content-length="0" end=true`, true, false},
		{"no reason", "GET", "HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", `head 200 content-length="0" end=true`, true, false},
		{"empty reason", "GET", "HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n", `head 200 content-length="0" end=true`, true, false},
		{"says close", "GET", "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", `head 200 connection="close" content-length="0" end=true`, false, false},
		{"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", `head 200 content-length="0" end=true`, false, false},
		{"HTTP/1.0 kept", "GET", "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", `head 200 connection="keep-alive" content-length="0" end=true`, true, false},
		{"until close", "GET", "HTTP/1.1 200 OK\r\n\r\nto the end", "head 200 end=false|data to the end", false, false},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "head 204 end=true", true, false},
		{"204 with length 0", "GET", "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", "head 204 end=true", true, false},
		{"204 with two lengths 0", "GET", "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n", bad, false, true},
		{"204 with lengths 0 and 5", "GET", "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\ncontent-length: 5\r\n\r\n", bad, false, true},
		{"204 with length", "GET", "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", bad, false, true},
		{"204 with chunks", "GET", "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", bad, false, true},
		{"304 with length", "GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", `head 304 content-length="5" end=true`, true, false},
		{"304 with chunks", "GET", "HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n", "head 304 end=true", true, false},
		{"HEAD with length", "HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", `head 200 content-length="5" end=true`, true, false},
		{"HEAD with chunks", "HEAD", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "head 200 end=true", true, false},
		{"HEAD with content", "HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", `head 200 content-length="5" end=true`, false, true},
		{"bytes behind it", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", `head 200 content-length="2" end=false|data ok|end`, false, true},
		{"bytes behind chunks", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nmore", "head 200 end=false|end", false, true},
		{"interim", "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", `head 100 end=false|head 103 link="x" end=false|head 200 content-length="0" end=true`, true, false},
		{"interim with length", "GET", "HTTP/1.1 103 E\r\ncontent-length: 5\r\n\r\n", bad, false, true},
		{"101 nobody asked for", "GET", "HTTP/1.1 101 Switching Protocols\r\nupgrade: foo\r\n\r\n", `head 101 upgrade="foo" end=true`, false, false},
		{"length and chunks", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n", "reset 5 0 http1.content_length_and_chunked_not_allowed before=true", false, true},
		{"length twice", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", bad, false, true},
		{"length list", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok", bad, false, true},
		{"coding gzip", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", "reset 5 0 http1.invalid_transfer_encoding before=true", false, true},
		{"coding gzip, chunked", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "reset 5 0 http1.invalid_transfer_encoding before=true", false, true},
		{"two digits", "GET", "HTTP/1.1 20 OK\r\n\r\n", bad, false, true},
		{"four digits", "GET", "HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n", `head 2000 content-length="0" end=true`, true, false},
		{"status 099", "GET", "HTTP/1.1 099 OK\r\n\r\n", bad, false, true},
		{"status of letters", "GET", "HTTP/1.1 OK OK\r\n\r\n", bad, false, true},
		{"ICY", "GET", "ICY 200 OK\r\n\r\n", bad, false, true},
		{"bad name", "GET", "HTTP/1.1 200 OK\r\nBad Header\r\n\r\n", bad, false, true},
		{"folded", "GET", "HTTP/1.1 200 OK\r\nx-a: one\r\n two\r\ncontent-length: 0\r\n\r\n", `head 200 x-a="one two" content-length="0" end=true`, true, false},
		{"folded twice, by a tab and by blanks", "GET", "HTTP/1.1 200 OK\r\nx-a: one \r\n\ttwo\r\n  three\r\ncontent-length: 0\r\n\r\n", `head 200 x-a="one \ttwo  three" content-length="0" end=true`, true, false},
		{"folded before and behind the value", "GET", "HTTP/1.1 200 OK\r\nx-a:\r\n one\r\n \r\ncontent-length: 0\r\n\r\n", `head 200 x-a="one" content-length="0" end=true`, true, false},
		{"bare LF", "GET", "HTTP/1.1 200 OK\nx-a: v\ncontent-length: 0\n\n", `head 200 x-a="v" content-length="0" end=true`, true, false},
		{"bare CR", "GET", "HTTP/1.1 200 OK\r\nx-a: v\rw\r\ncontent-length: 0\r\n\r\n", bad, false, true},
		{"NUL", "GET", "HTTP/1.1 200 OK\r\nx: a\x00b\r\n\r\n", "reset 5 0 http1.invalid_characters before=true", false, true},
		{"bad chunk at once", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "head 200 end=false|reset 5 0 http1.codec_error before=false", false, true},
		{"100 headers", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + strings.Repeat("x: y\r\n", 99) + "\r\n", "head 200 content-length=\"0\"" + strings.Repeat(" x=\"y\"", 99) + " end=true", true, false},
		{"101 headers", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + strings.Repeat("x: y\r\n", 100) + "\r\n", "reset 5 0 http1.too_many_headers before=true", false, true},
		{"83000 bytes", "GET", "HTTP/1.1 200 OK\r\nx: " + strings.Repeat("y", 83000) + "\r\n\r\n", "reset 5 0 http1.headers_too_large before=true", false, true},
		{"81000 bytes", "GET", "HTTP/1.1 204 No\r\nx: " + strings.Repeat("y", 81000) + "\r\n\r\n", "head 204 x=\"" + strings.Repeat("y", 81000) + "\" end=true", true, false},
	} {
		cl, d, l, s := newClient(Options{})
		request(s, c.method, true)
		d.push(c.in)
		want := strings.ReplaceAll(c.want, "|", "\n")
		if got := strings.TrimSuffix(l.String(), "\n"); got != want {
			t.Errorf("%s:\n got %.300s\nwant %.300s", c.name, got, want)
		}
		if cl.Reusable() != c.reusable || (d.err != nil) != c.failed {
			t.Errorf("%s: reusable %v, error %v", c.name, cl.Reusable(), d.err)
		}
		if !c.reusable && !d.w.closed && c.name != "until close" {
			t.Errorf("%s: connection not closed", c.name)
		}
	}
}

// TestResponseCut has what an end of the connection means at each stage.
func TestEndOfChunksComesWithTheLastContent(t *testing.T) {
	_, d, l, s := newClient(Options{})
	request(s, "GET", true)
	d.push("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
	if got := l.String(); strings.Count(got, "data") != 1 || !strings.Contains(got, "hi") {
		t.Errorf("%s", got)
	}
}

func TestResponseCut(t *testing.T) {
	terminated := "reset 4 0 "
	for _, c := range []struct{ name, in, fin, rst string }{
		{"nothing came", "", terminated + " before=true", terminated + " before=true"},
		{"inside the head", "HTTP/1.1 200 OK\r\nx: y", "reset 5 0 http1.codec_error before=true", terminated + " before=true"},
		{"after an interim head", "HTTP/1.1 103 E\r\n\r\n", "head 103 end=false\n" + terminated + " before=false", "head 103 end=false\n" + terminated + " before=false"},
		{"inside known length", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", "head 200 content-length=\"9\" end=false\ndata ab\nreset 5 0 http1.codec_error before=false", "head 200 content-length=\"9\" end=false\ndata ab\n" + terminated + " before=false"},
		{"inside chunks", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", "head 200 end=false\ndata ab\nreset 5 0 http1.codec_error before=false", "head 200 end=false\ndata ab\n" + terminated + " before=false"},
		{"until close", "HTTP/1.1 200 OK\r\n\r\nab", "head 200 end=false\ndata ab\nend", "head 200 end=false\ndata ab\n" + terminated + " before=false"},
	} {
		for _, fin := range []bool{true, false} {
			cl, d, l, s := newClient(Options{})
			request(s, "GET", true)
			d.push(c.in)
			want := c.rst
			if fin {
				cl.EOF()
				want = c.fin
			} else {
				cl.Closed(nil)
			}
			if got := strings.TrimSuffix(l.String(), "\n"); got != want {
				t.Errorf("%s, FIN %v: got %q want %q", c.name, fin, got, want)
			}
			if cl.Idle() || cl.Reusable() {
				t.Errorf("%s: still usable", c.name)
			}
		}
	}
}

func TestRequestFraming(t *testing.T) {
	for _, c := range []struct {
		name, method string
		o            Options
		fields       []string
		body         []string
		want         string
	}{
		{"GET", "GET", Options{}, nil, nil, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"},
		{"POST without content", "POST", Options{}, nil, nil, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"},
		{"DELETE without content", "DELETE", Options{}, nil, nil, "DELETE / HTTP/1.1\r\nhost: a\r\n\r\n"},
		{"unknown length", "POST", Options{}, nil, []string{"a", ""}, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"},
		{"known length", "POST", Options{}, []string{"content-length", "2"}, []string{"a", "b"}, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nab"},
		{"beyond its length", "POST", Options{}, []string{"content-length", "1"}, []string{"ab"}, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\na"},
		{"fully qualified", "GET", Options{SendFullyQualified: true}, nil, nil, "GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n"},
		{"proper case", "GET", Options{ProperCase: true}, []string{"x-b", "c"}, nil, "GET / HTTP/1.1\r\nHost: a\r\nX-B: c\r\n\r\n"},
		{"CONNECT", "CONNECT", Options{}, nil, []string{}, "CONNECT a HTTP/1.1\r\nhost: a\r\n\r\n"},
		{"upgrade has no framing", "GET", Options{}, []string{"connection", "Upgrade", "upgrade", "websocket"}, []string{}, "GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"},
		{"host field is not doubled", "GET", Options{}, []string{"host", "evil"}, nil, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"},
		{"transfer-encoding is ours", "GET", Options{}, []string{"transfer-encoding", "gzip"}, nil, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"},
	} {
		_, d, _, s := newClient(c.o)
		request(s, c.method, c.body == nil, c.fields...)
		for i, p := range c.body {
			s.SendData([]byte(p), i == len(c.body)-1)
		}
		if got := string(d.w.out); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestBytesNobodyAskedForCloseAnIdleConnection(t *testing.T) {
	cl, d, l, s := newClient(Options{})
	request(s, "GET", true)
	d.push("HTTP/1.1 204 No Content\r\n\r\n")
	before := l.String()
	d.push("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
	if cl.Reusable() || !d.w.closed || d.err == nil || l.String() != before {
		t.Errorf("reusable %v closed %v error %v", cl.Reusable(), d.w.closed, d.err)
	}
}

func TestAnswerToHalfARequestEndsTheConnection(t *testing.T) {
	cl, d, l, s := newClient(Options{})
	request(s, "POST", false)
	s.SendData([]byte("half"), false)
	d.push("HTTP/1.1 413 X\r\ncontent-length: 2\r\n\r\nno")
	s.SendData([]byte("rest"), true)
	if cl.Reusable() || !d.w.closed || strings.Contains(string(d.w.out), "rest") || !strings.HasSuffix(l.String(), "data no\nend\n") {
		t.Errorf("reusable %v closed %v wire %q %s", cl.Reusable(), d.w.closed, d.w.out, l)
	}
}

func TestEarlyAnswerLetsTheRequestGoOn(t *testing.T) {
	cl, d, l, s := newClient(Options{})
	request(s, "POST", false)
	d.push("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
	s.SendData([]byte("all"), true)
	d.push("0\r\n\r\n")
	if !cl.Reusable() || !strings.HasSuffix(l.String(), "data ok\nend\n") || !strings.HasSuffix(string(d.w.out), "3\r\nall\r\n0\r\n\r\n") {
		t.Errorf("reusable %v wire %q %s", cl.Reusable(), d.w.out, l)
	}
}

func TestClientTunnelHoldsBytesUntil101(t *testing.T) {
	cl, d, l, s := newClient(Options{})
	request(s, "GET", false, "connection", "upgrade", "upgrade", "websocket")
	s.SendData([]byte("early"), false)
	if strings.Contains(string(d.w.out), "early") || s.Buffered() != 5 {
		t.Fatalf("wire %q, buffered %d", d.w.out, s.Buffered())
	}
	d.push("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nraw")
	s.SendData([]byte(" late"), false)
	if !strings.HasSuffix(string(d.w.out), "early late") || !strings.HasSuffix(l.String(), "data raw") {
		t.Errorf("wire %q, %s", d.w.out, l)
	}
	cl.EOF()
	if !strings.HasSuffix(l.String(), "end\n") || cl.Reusable() {
		t.Errorf("%s", l)
	}
}

func TestUpgradeAnswered200StaysHTTP(t *testing.T) {
	cl, d, l, s := newClient(Options{})
	request(s, "GET", false, "connection", "upgrade", "upgrade", "websocket")
	d.push("HTTP/1.1 200 OK\r\nupgrade: websocket\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\nno")
	if !strings.HasSuffix(l.String(), "data no\nend\n") || cl.Reusable() || !d.w.closed {
		t.Errorf("%s reusable %v", l, cl.Reusable())
	}
}

func TestResetAbortsWhatIsHalfSent(t *testing.T) {
	cl, d, _, s := newClient(Options{})
	request(s, "GET", true)
	d.w.pending = 10
	s.Reset(httpmsg.ResetReason{})
	if !d.w.aborted || cl.Reusable() {
		t.Errorf("aborted %v", d.w.aborted)
	}
}

func TestReasonIsForwardedWhenAsked(t *testing.T) {
	_, d, l, s := newClient(Options{ForwardReason: true})
	var reason string
	l.onHead = func(h *httpmsg.Head, _ bool) { reason = string(h.Reason()) }
	request(s, "GET", true)
	d.push("HTTP/1.1 200 Fine Thanks\r\ncontent-length: 0\r\n\r\n")
	if reason != "Fine Thanks" {
		t.Errorf("reason %q", reason)
	}
}
