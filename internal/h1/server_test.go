package h1

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"testing"

	"sluice/internal/httpmsg"
)

func get(rest string) string { return "GET / HTTP/1.1\r\nHost: a\r\n" + rest + "\r\n" }

// TestRequestVerdicts has what Envoy 1.40 does with each request, and stricter
// answers where two parsers could see different messages.
func TestRequestVerdicts(t *testing.T) {
	post := func(fields, body string) string { return "POST / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n" + body }
	codec, chars, coding := "400 http1.codec_error", "400 http1.invalid_characters", "501 http1.invalid_transfer_encoding"
	for _, c := range []struct{ name, in, want string }{
		{"plain", get(""), "ok"},
		{"length", post("Content-Length: 5\r\n", "hello"), "ok"},
		{"length with blanks around", post("Content-Length: \t 5 \t\r\n", "hello"), "ok"},
		{"length with zeros", post("Content-Length: 00005\r\n", "hello"), "ok"},
		{"length twice", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), codec},
		{"lengths differ", post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"), codec},
		{"length list", post("Content-Length: 5, 5\r\n", "hello"), codec},
		{"length with plus", post("Content-Length: +5\r\n", "hello"), codec},
		{"length with minus", post("Content-Length: -5\r\n", "hello"), codec},
		{"length in hex", post("Content-Length: 0x5\r\n", "hello"), codec},
		{"length with blank inside", post("Content-Length: 5 5\r\n", "hello"), codec},
		{"length with underscore", post("Content-Length: 1_0\r\n", "hello"), codec},
		{"length empty", post("Content-Length:\r\n", "hello"), codec},
		{"length over 2^63", post("Content-Length: 18446744073709551616\r\n", "hello"), codec},
		{"length 2^63", post("Content-Length: 9223372036854775808\r\n", "hello"), codec},
		{"length and chunks", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400 http1.content_length_and_chunked_not_allowed"},
		{"chunks", post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), "ok"},
		{"chunks in capitals", post("Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n"), "ok"},
		{"coding gzip", post("Transfer-Encoding: gzip\r\n", ""), coding},
		{"coding gzip, chunked", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), coding},
		{"coding chunked, chunked", post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), coding},
		{"coding ,chunked", post("Transfer-Encoding: ,chunked\r\n", "0\r\n\r\n"), coding},
		{"coding twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), coding},
		{"coding identity", post("Transfer-Encoding: identity\r\n", ""), coding},
		{"coding behind VT", post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), chars},
		{"coding behind 0xa0", post("Transfer-Encoding: \xa0chunked\r\n", "0\r\n\r\n"), coding},
		{"name with space before colon", post("Content-Length : 5\r\n", "hello"), codec},
		{"folded line", get("X-A: b\r\n c\r\n"), "ok"},
		{"folded line behind the request line", "GET / HTTP/1.1\r\n X-A: b\r\nHost: a\r\n\r\n", codec},
		{"folded host", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", "400 http.invalid_authority"},
		{"folded coding", post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), "ok"},
		{"line without colon", get("bad\r\n"), codec},
		{"empty name", get(": v\r\n"), codec},
		{"bare LF after field", "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\n\r\n", "ok"},
		{"bare LF after request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", "ok"},
		{"bare LF as the empty line", "GET / HTTP/1.1\r\nHost: a\r\n\n", "ok"},
		{"bare LF everywhere", "GET / HTTP/1.1\nHost: a\n\n", "ok"},
		{"bare LF before a second length", post("Content-Length: 5\nContent-Length: 6\n", "hello"), codec},
		{"bare CR in value", get("X-A: b\rc\r\n"), codec},
		{"NUL in value", get("X-A: b\x00c\r\n"), chars},
		{"high bytes in value", get("X-A: b\xffc\r\n"), "ok"},
		{"high byte in name", get("X-\xe9: b\r\n"), codec},
		{"target with fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", "ok"},
		{"target with space", "GET /two words HTTP/1.1\r\nHost: a\r\n\r\n", codec},
		{"target without slash", "GET no-slash HTTP/1.1\r\nHost: a\r\n\r\n", codec},
		{"target of query only", "GET ?q HTTP/1.1\r\nHost: a\r\n\r\n", codec},
		{"target * of GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", "400 http1.invalid_url"},
		{"target * of OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "ok"},
		{"target with high byte", "GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", codec},
		{"target with BEL", "GET /\x07 HTTP/1.1\r\nHost: a\r\n\r\n", chars},
		{"target with DEL", "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", chars},
		{"two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "ok"},
		{"tab", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "ok"},
		{"space at the end", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "ok"},
		{"unknown method", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", codec},
		{"method in small letters", "get / HTTP/1.1\r\nHost: a\r\n\r\n", codec},
		{"method with control byte", "G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n", chars},
		{"no method", " / HTTP/1.1\r\nHost: a\r\n\r\n", codec},
		{"HTTP/0.9", "GET /\r\n", "426 low_version"},
		{"no target", "GET  HTTP/1.1\r\nHost: a\r\n\r\n", codec},
		{"target * of HTTP/0.9", "GET *\r\n", "400 http1.invalid_url"},
		{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", "426 low_version"},
		{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", "426 low_version"},
		{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", "426 low_version"},
		{"HTTP/3", "GET / HTTP/3\r\nHost: a\r\n\r\n", codec},
		{"http/1.1", "GET / http/1.1\r\nHost: a\r\n\r\n", codec},
		{"HTTP/1.10", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", codec},
		{"empty lines in front", "\r\n\r\n" + get(""), "ok"},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", "ok"},
		{"Host list", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "400 http.invalid_authority"},
		{"Host with slash", "GET / HTTP/1.1\r\nHost: a/x\r\n\r\n", "400 http.invalid_authority"},
		{"Host with high byte", "GET / HTTP/1.1\r\nHost: b\xe9\r\n\r\n", "400 http.invalid_authority"},
		{"Host of IPv6", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "ok"},
		{"ftp target", "GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "400 http1.invalid_scheme"},
		{"target without host", "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", "400 http1.invalid_url"},
		{"CONNECT host:port", "CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n", "ok"},
		{"CONNECT path", "CONNECT /path HTTP/1.1\r\nHost: a\r\n\r\n", "400 http1.invalid_url"},
		{"CONNECT without port", "CONNECT b HTTP/1.1\r\nHost: a\r\n\r\n", "400 http1.invalid_url"},
		{"CONNECT URL", "CONNECT http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "400 http1.invalid_url"},
		{"Connection names X-Forwarded-For", get("Connection: x-forwarded-for\r\n"), "400 http1.connection_header_rejected"},
		{"Connection names pseudo header", get("Connection: :path\r\n"), "400 http1.connection_header_rejected"},
		{"Connection names authorization", get("Connection: authorization\r\n"), "ok"},
		{"100 headers", get(strings.Repeat("x: y\r\n", 99)), "ok"},
		{"101 headers", get(strings.Repeat("x: y\r\n", 100)), "431 http1.too_many_headers"},
		{"61000 bytes", get("x: " + strings.Repeat("y", 61000) + "\r\n"), "ok"},
		{"62000 bytes", get("x: " + strings.Repeat("y", 62000) + "\r\n"), "431 http1.headers_too_large"},
		{"endless name", "GET / HTTP/1.1\r\n" + strings.Repeat("y", 62000), "431 http1.headers_too_large"},
		{"endless target", "GET /" + strings.Repeat("y", 62000), "431 http1.headers_too_large"},
	} {
		_, d, l := newServer(Options{AllowAbsoluteURL: true})
		d.push(c.in)
		got := "ok"
		if d.err != nil {
			at := strings.Index(l.String(), "reset ")
			if at < 0 {
				t.Errorf("%s: no reset told: %q", c.name, l)
				continue
			}
			var kind, status int
			var detail string
			if _, err := fmt.Sscanf(l.String()[at:], "reset %d %d %s", &kind, &status, &detail); err != nil {
				t.Fatal(err)
			}
			got = fmt.Sprint(status, " ", detail)
			if strings.Contains(l.String(), "head ") {
				t.Errorf("%s: delivered %q", c.name, l)
			}
		} else if !strings.Contains(l.String(), "head ") {
			got = "nothing"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestChunkGrammar(t *testing.T) {
	for _, c := range []struct {
		name, body string
		ok         bool
	}{
		{"one", "5\r\nhello\r\n0\r\n\r\n", true},
		{"capital hex", "A\r\n0123456789\r\n0\r\n\r\n", true},
		{"leading zeros", "0005\r\nhello\r\n000\r\n\r\n", true},
		{"extension", "5;a=b\r\nhello\r\n0;x\r\n\r\n", true},
		{"trailers", "0\r\nX-A: b\r\n\r\n", true},
		{"bare LF after size", "5\nhello\r\n0\r\n\r\n", false},
		{"empty size", "\r\nhello\r\n0\r\n\r\n", false},
		{"0x", "0x5\r\nhello\r\n0\r\n\r\n", false},
		{"sign", "+5\r\nhello\r\n0\r\n\r\n", false},
		{"17 digits", "00000000000000005\r\nhello\r\n0\r\n\r\n", false},
		{"space before semicolon", "5 ;a\r\nhello\r\n0\t;b\r\n\r\n", true},
		{"size padded", "5 \t \r\nhello\r\n0   \r\n\r\n", true},
		{"space before the size", " 5\r\nhello\r\n0\r\n\r\n", false},
		{"space inside the size", "0 5\r\nhello\r\n0\r\n\r\n", false},
		{"endless padding", "5" + strings.Repeat(" ", 5000) + "\r\nhello\r\n0\r\n\r\n", false},
		{"padding flood", strings.Repeat("1"+strings.Repeat(" ", 4000)+"\r\nx\r\n", 100) + "0\r\n\r\n", false},
		{"CR in extension", "5;a\rb\r\nhello\r\n0\r\n\r\n", false},
		{"LF in extension", "5;a\nb\r\nhello\r\n0\r\n\r\n", false},
		{"no CRLF after data", "5\r\nhelloX\r\n0\r\n\r\n", false},
		{"bare LF after data", "5\r\nhello\n0\r\n\r\n", false},
		{"long extension", "5;" + strings.Repeat("a", 5000) + "\r\nhello\r\n0\r\n\r\n", false},
		{"extension flood", strings.Repeat("1;"+strings.Repeat("a", 4000)+"\r\nx\r\n", 100) + "0\r\n\r\n", false},
		{"extensions in proportion", strings.Repeat("64;"+strings.Repeat("a", 90)+"\r\n"+strings.Repeat("x", 100)+"\r\n", 1000) + "0\r\n\r\n", true},
		{"bare LF in trailers", "0\r\nX-A: b\n\n", true},
		{"folded trailer", "0\r\nX-A: b\r\n c\r\n\r\n", true},
		{"bad trailer", "0\r\nX-A : b\r\n\r\n", false},
	} {
		_, d, l := newServer(Options{})
		d.push("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + c.body)
		if ended := strings.Contains(l.String(), "end\n"); ended != c.ok || (d.err == nil) != c.ok {
			t.Errorf("%s: ended %v, error %v", c.name, ended, d.err)
		}
	}
}

func TestHeads(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		in   string
		want string
	}{
		{"several Hosts are refused", Options{}, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "reset 5 400 http1.codec_error before=false"},
		{"absolute target wins over Host", Options{AllowAbsoluteURL: true}, "GET HTTP://u:p@B:80/x?y HTTP/1.1\r\nHost: a\r\n\r\n", `head GET /x?y host="B:80" end=true`},
		{"absolute target without path", Options{AllowAbsoluteURL: true}, "GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", `head GET / host="b" end=true`},
		{"absolute target with query only", Options{AllowAbsoluteURL: true}, "GET http://b?q HTTP/1.1\r\n\r\n", `head GET ?q host="b" end=true`},
		{"absolute target not allowed stays", Options{}, "GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", `head GET http://b/x host="a" end=true`},
		{"default host of HTTP/1.0", Options{AcceptHTTP10: true, DefaultHost: "d"}, "GET / HTTP/1.0\r\n\r\n", `head GET / host="d" end=true`},
		{"HTTP/0.9 when 1.0 is taken", Options{AcceptHTTP10: true, DefaultHost: "d"}, "GET /\r\n", `head GET / host="d" end=true`},
		{"names in lower case, chunked gone", Options{}, "POST / HTTP/1.1\r\nHOST: a\r\nX-LONG-NAME-of-Many: B\r\nTransfer-Encoding: chunked\r\n\r\n", `head POST / host="a" x-long-name-of-many="B" end=false`},
		{"length beside chunks dropped", Options{AllowChunkedLength: true}, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n", `head POST / host="a" end=false`},
		{"length zero is the end", Options{}, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", `head POST / host="a" content-length="0" end=true`},
		{"upgrade stays open", Options{}, get("Connection: Upgrade\r\nUpgrade: websocket\r\n"), `head GET / host="a" connection="Upgrade" upgrade="websocket" end=false`},
		{"upgrade without Connection", Options{}, get("Upgrade: websocket\r\n"), `head GET / host="a" upgrade="websocket" end=true`},
		{"h2c is dropped", Options{}, get("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"), `head GET / host="a" connection="Upgrade, HTTP2-Settings" end=true`},
		{"upgrade ignored", Options{IgnoreUpgrade: func(v []byte) bool { return strings.HasPrefix(string(v), "TLS/") }}, get("Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n"), `head GET / host="a" connection="Upgrade" end=true`},
		{"underscore dropped", Options{Underscores: httpmsg.UnderscoresDrop}, get("x_a: b\r\nX-C: d\r\n"), `head GET / host="a" x-c="d" end=true`},
		{"CONNECT", Options{}, "CONNECT b:443 HTTP/1.1\r\nHost: x\r\n\r\n", `head CONNECT  host="b:443" end=false`},
		{"custom method", Options{AllowCustomMethods: true}, "M-FOO / HTTP/1.1\r\nHost: a\r\n\r\n", `head M-FOO / host="a" end=true`},
	} {
		_, d, l := newServer(c.o)
		d.push(c.in)
		if got := strings.TrimSpace(l.String()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestChunksFromHTTP10EndTheConnection(t *testing.T) {
	_, d, l := newServer(Options{AcceptHTTP10: true})
	d.push("POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nGET /never HTTP/1.0\r\n\r\n")
	reply(l.stream, 200, "")
	d.turn()
	if !strings.Contains(l.String(), "data hi") || strings.Contains(l.String(), "never") || !d.w.closed || !strings.Contains(string(d.w.out), "connection: close") {
		t.Errorf("%s, closed %v, wire %q", l, d.w.closed, d.w.out)
	}
}

func TestHeadsAreCountedAsEnvoyCountsThem(t *testing.T) {
	_, d, l := newServer(Options{})
	var received int
	l.onHead = func(h *httpmsg.Head, _ bool) { received = h.WireSize() }
	d.push("POST /p HTTP/1.1\r\nhost: svc.test\r\ncontent-length: 0\r\n\r\n")
	var h httpmsg.Head
	h.Status = 200
	h.AddString(httpmsg.Server, "envoy")
	l.stream.SendHead(&h, true)
	if want := len("host") + len("svc.test") + 3 + len("content-length") + len("0") + 3; received != want {
		t.Errorf("received %d, want %d", received, want)
	}
	if want := len("server: envoy\r\ncontent-length: 0\r\n"); h.WireSize() != want {
		t.Errorf("sent %d, want %d", h.WireSize(), want)
	}
}

func TestBytesBehindAnUpgradeAreReadAheadAndKept(t *testing.T) {
	_, d, l := newServer(Options{})
	d.push(get("Connection: Upgrade\r\nUpgrade: foo\r\n") + "early")
	if d.w.paused || strings.Contains(l.String(), "data") {
		t.Fatalf("paused %v before the bound: %s", d.w.paused, l)
	}
	d.push(strings.Repeat("x", httpmsg.HighWater))
	if !d.w.paused {
		t.Fatal("reading goes on beyond the bound")
	}
	var h httpmsg.Head
	h.Status = 101
	l.stream.SendHead(&h, false)
	d.turn()
	if d.w.paused || !strings.Contains(l.String(), "data early") {
		t.Errorf("paused %v, %s", d.w.paused, l)
	}
}

func TestClientThatLeavesBehindAnUpgradeIsNoticed(t *testing.T) {
	s, d, l := newServer(Options{})
	d.push(get("Connection: Upgrade\r\nUpgrade: foo\r\n") + "early")
	s.EOF()
	if !strings.Contains(l.String(), "reset") || !d.w.closed {
		t.Errorf("closed %v, %s", d.w.closed, l)
	}
}

func TestCloseIsDelayedWhileTheClientMayBeSending(t *testing.T) {
	for in, want := range map[string]bool{get(""): false, get("Connection: close\r\n"): false, "GARBAGE\r\n": true,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n": true} {
		s, d, l := newServer(Options{})
		d.push(in)
		s.Drain()
		reply(l.stream, 200, "")
		if !d.w.closed || s.DelayedClose() != want {
			t.Errorf("%q: closed %v, delayed %v", in, d.w.closed, s.DelayedClose())
		}
	}
}

func TestUnderscoreRejectedIsCounted(t *testing.T) {
	n := Counters{}
	_, d, l := newServer(Options{Underscores: httpmsg.UnderscoresReject, Counters: &n})
	d.push(get("x_a: b\r\n"))
	if !strings.Contains(l.String(), "400 http1.unexpected_underscore") || n.RequestsRejectedWithUnderscoresInNames != 1 {
		t.Errorf("%s, %+v", l, n)
	}
}

// TestResponseFraming has the wire form of answers, and whether the connection
// goes on.
func TestResponseFraming(t *testing.T) {
	h := func(status int, fields ...string) *httpmsg.Head {
		var h httpmsg.Head
		h.Status = status
		for i := 0; i < len(fields); i += 2 {
			h.Add([]byte(fields[i]), []byte(fields[i+1]))
		}
		return &h
	}
	for _, c := range []struct {
		name, in string
		o        Options
		head     *httpmsg.Head
		body     []string // nil: the head ends
		want     string
		closed   bool
	}{
		{"no content gets length 0", get(""), Options{}, h(200), nil, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", false},
		{"204 without length", get(""), Options{}, h(204, "content-length", "0"), nil, "HTTP/1.1 204 No Content\r\n\r\n", false},
		{"304 keeps its length", get(""), Options{}, h(304, "content-length", "5"), nil, "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", false},
		{"304 gains nothing", get(""), Options{}, h(304), nil, "HTTP/1.1 304 Not Modified\r\n\r\n", false},
		{"HEAD keeps the length", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", Options{}, h(200, "content-length", "5"), nil, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", false},
		{"HEAD without length", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", Options{}, h(200), nil, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", false},
		{"HEAD drops content", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", Options{}, h(200, "content-length", "5"), []string{"hello"}, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", false},
		{"chunks", get(""), Options{}, h(200), []string{"ab", "", "cd"}, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n", false},
		{"known length", get(""), Options{}, h(200, "content-length", "4"), []string{"ab", "cd"}, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd", false},
		{"beyond its length is cut off and ends", get(""), Options{}, h(200, "content-length", "2"), []string{"abcd"}, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab", true},
		{"short of its length ends", get(""), Options{}, h(200, "content-length", "9"), []string{"ab"}, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", true},
		{"client asked to close", get("Connection: close\r\n"), Options{}, h(200, "content-length", "0"), nil, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", true},
		{"head says close", get(""), Options{}, h(400, "connection", "close"), nil, "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", true},
		{"answer before the request's end", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab", Options{}, h(413, "content-length", "2"), []string{"no"}, "HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno", true},
		{"upgrade refused", get("Connection: upgrade\r\nUpgrade: x\r\n"), Options{}, h(403), nil, "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", true},
		{"HTTP/1.0 closes", "GET / HTTP/1.0\r\n\r\n", Options{AcceptHTTP10: true}, h(200, "content-length", "0"), nil, "HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", true},
		{"HTTP/1.0 kept", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Options{AcceptHTTP10: true}, h(200, "content-length", "0"), nil, "HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n", false},
		{"HTTP/1.0 without length", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Options{AcceptHTTP10: true}, h(200), []string{"ab", "cd"}, "HTTP/1.0 200 OK\r\nconnection: close\r\n\r\nabcd", true},
		{"unknown status", get(""), Options{}, h(599), nil, "HTTP/1.1 599 Unknown\r\ncontent-length: 0\r\n\r\n", false},
		{"proper case", get(""), Options{ProperCase: true}, h(200, "x-two-words", "v"), nil, "HTTP/1.1 200 OK\r\nX-Two-Words: v\r\nContent-Length: 0\r\n\r\n", false},
		{"transfer-encoding is ours", get(""), Options{}, h(200, "transfer-encoding", "gzip"), []string{"a"}, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", false},
	} {
		_, d, l := newServer(c.o)
		d.push(c.in)
		l.stream.SendHead(c.head, c.body == nil)
		for i, p := range c.body {
			l.stream.SendData([]byte(p), i == len(c.body)-1)
		}
		if got := string(d.w.out); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
		if d.w.closed != c.closed {
			t.Errorf("%s: closed %v", c.name, d.w.closed)
		}
		if c.closed != (l.gone == 1) {
			t.Errorf("%s: gone %d", c.name, l.gone)
		}
	}
}

func TestPipelinedRequestsWaitTheirTurn(t *testing.T) {
	_, d, l := newServer(Options{})
	d.push("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /3 HTTP/1.1\r\nHost: a\r\n\r\n")
	for i := 1; i <= 3; i++ {
		if n := strings.Count(l.String(), "head "); n != i {
			t.Fatalf("%d requests delivered before answer %d", n, i)
		}
		if i < 3 && !d.w.paused {
			t.Fatal("reading goes on with a request waiting")
		}
		reply(l.stream, 200, "")
		d.turn()
	}
	if d.w.paused || len(d.in) != 0 {
		t.Errorf("paused %v, %d bytes left", d.w.paused, len(d.in))
	}
}

func TestErrorBehindRequestWaitsForItsAnswer(t *testing.T) {
	_, d, l := newServer(Options{})
	d.push(get("") + "GARBAGE\r\n\r\nGET /never HTTP/1.1\r\nHost: a\r\n\r\n")
	if strings.Contains(l.String(), "reset") {
		t.Fatal("error told before the answer")
	}
	reply(l.stream, 200, "")
	d.turn()
	reply(l.stream, 400, "no")
	if !d.w.closed || strings.Contains(l.String(), "never") || !strings.HasSuffix(string(d.w.out), "no") {
		t.Errorf("closed %v, %s, wire %q", d.w.closed, l, d.w.out)
	}
}

func TestInformationalResponsesPrecedeTheFinal(t *testing.T) {
	_, d, l := newServer(Options{})
	d.push(get(""))
	for _, code := range []int{100, 103} {
		var h httpmsg.Head
		h.Status = code
		l.stream.SendHead(&h, false)
	}
	reply(l.stream, 200, "")
	if got := string(d.w.out); got != "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" {
		t.Errorf("wire %q", got)
	}
}

func TestUpgradeBytesPassOnlyAfter101(t *testing.T) {
	_, d, l := newServer(Options{})
	d.push(get("Connection: upgrade\r\nUpgrade: websocket\r\n") + "early")
	if strings.Contains(l.String(), "early") {
		t.Fatalf("bytes passed before 101: %s", l)
	}
	var h httpmsg.Head
	h.Status = 101
	h.AddString(httpmsg.Connection, "upgrade")
	h.AddString(httpmsg.Upgrade, "websocket")
	l.stream.SendHead(&h, false)
	d.turn()
	d.push(" more")
	l.stream.SendData([]byte("raw"), false)
	if !strings.Contains(l.String(), "data early more") || !strings.HasSuffix(string(d.w.out), "\r\n\r\nraw") {
		t.Errorf("%s, wire %q", l, d.w.out)
	}
	if d.w.closed {
		t.Fatal("closed early")
	}
	l.stream.SendData(nil, true)
	if !d.w.closed {
		t.Error("not closed at the tunnel's end")
	}
}

func TestTunnelEOFIsAnEnd(t *testing.T) {
	s, d, l := newServer(Options{})
	d.push("CONNECT b:1 HTTP/1.1\r\nHost: b\r\n\r\n")
	var h httpmsg.Head
	h.Status = 200
	l.stream.SendHead(&h, false)
	if got := string(d.w.out); got != "HTTP/1.1 200 OK\r\n\r\n" {
		t.Errorf("wire %q", got)
	}
	s.EOF()
	l.stream.SendData([]byte("last"), true)
	if !strings.HasSuffix(l.String(), "end\n") || !strings.HasSuffix(string(d.w.out), "last") || !d.w.closed {
		t.Errorf("%s, wire %q closed %v", l, d.w.out, d.w.closed)
	}
}

func TestHalfClosedClientIsGone(t *testing.T) {
	for _, in := range []string{get(""), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"} {
		s, d, l := newServer(Options{})
		d.push(in)
		s.EOF()
		if !strings.Contains(l.String(), "reset 4 ") || !d.w.closed || l.gone != 1 {
			t.Errorf("%s closed %v gone %d", l, d.w.closed, l.gone)
		}
		reply(l.stream, 200, "late") // must do nothing
		if len(d.w.out) != 0 {
			t.Errorf("wrote %q", d.w.out)
		}
	}
}

func TestTrailersDropFramingNames(t *testing.T) {
	in := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: t\r\nContent-Length: 3\r\nTransfer-Encoding: gzip\r\nHost: evil\r\n\r\n"
	_, d, l := newServer(Options{EnableTrailers: true})
	d.push(in)
	if !strings.HasSuffix(l.String(), "trailers x-t=\"t\"\n") {
		t.Errorf("%s", l)
	}
	_, d, l = newServer(Options{})
	d.push(in)
	if !strings.HasSuffix(l.String(), "end\n") {
		t.Errorf("trailers not enabled: %s", l)
	}
}

func TestResponseTrailersAreWrittenWhenEnabled(t *testing.T) {
	for _, on := range []bool{true, false} {
		_, d, l := newServer(Options{EnableTrailers: on})
		d.push(get(""))
		var h, tr httpmsg.Head
		h.Status = 200
		tr.Add([]byte("x-t"), []byte("v"))
		tr.Add([]byte("content-length"), []byte("9"))
		l.stream.SendHead(&h, false)
		l.stream.SendTrailers(&tr)
		want := "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
		if on {
			want += "x-t: v\r\n"
		}
		if got := string(d.w.out); got != want+"\r\n" {
			t.Errorf("enabled %v: %q", on, got)
		}
	}
}

func TestPauseHoldsContentBack(t *testing.T) {
	_, d, l := newServer(Options{})
	l.onData = func([]byte, bool) { l.stream.Pause() }
	d.push("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n")
	if !strings.HasSuffix(l.String(), "data a") || !d.w.paused {
		t.Fatalf("%s paused %v", l, d.w.paused)
	}
	l.onData = nil
	l.stream.Resume()
	d.turn()
	if !strings.HasSuffix(l.String(), "data ab\nend\n") {
		t.Errorf("%s", l)
	}
}

func TestDrainMakesTheResponseTheLast(t *testing.T) {
	s, d, l := newServer(Options{})
	d.push(get(""))
	s.Drain()
	reply(l.stream, 200, "")
	if !d.w.closed || !strings.Contains(string(d.w.out), "connection: close\r\n") {
		t.Errorf("closed %v wire %q", d.w.closed, d.w.out)
	}
}

func TestResetOfBegunResponseShowsAsCut(t *testing.T) {
	for _, c := range []struct {
		in              string
		closed, aborted bool
	}{{get(""), true, false}, {"GET / HTTP/1.0\r\n\r\n", false, true}} {
		_, d, l := newServer(Options{AcceptHTTP10: true})
		d.push(c.in)
		var h httpmsg.Head
		h.Status = 200
		l.stream.SendHead(&h, false)
		l.stream.SendData([]byte("half"), false)
		l.stream.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetRemote})
		if d.w.closed != c.closed || d.w.aborted != c.aborted || strings.Contains(string(d.w.out), "0\r\n\r\n") {
			t.Errorf("closed %v aborted %v wire %q", d.w.closed, d.w.aborted, d.w.out)
		}
	}
}

func TestPreservedCaseComesBack(t *testing.T) {
	_, d, l := newServer(Options{PreserveCase: true})
	c, _, _, up := newClient(Options{PreserveCase: true})
	w := c.conn.(*wire)
	l.onHead = func(h *httpmsg.Head, end bool) {
		h.AddString(httpmsg.XRequestID, "1")
		up.SendHead(h, end)
	}
	d.push("GET / HTTP/1.1\r\nHOST: a\r\nX-mIXed: 1\r\nx-lower: 2\r\nSOAPAction: s\r\nx-MIXED: 3\r\n\r\n")
	if got := string(w.out); got != "GET / HTTP/1.1\r\nHOST: a\r\nX-mIXed: 1\r\nx-lower: 2\r\nSOAPAction: s\r\nX-mIXed: 3\r\nx-request-id: 1\r\n\r\n" {
		t.Errorf("wire %q", got)
	}
}

// The worker tells once, at the low mark or below it: to wait for less would be
// to wait for ever.
func TestOnDrainAtLowWater(t *testing.T) {
	for pending, want := range map[int]int{httpmsg.LowWater + 1: 0, httpmsg.LowWater: 1, 0: 1} {
		s, d, l := newServer(Options{})
		d.push(get(""))
		var h httpmsg.Head
		h.Status = 200
		l.stream.SendHead(&h, false)
		d.w.pending = httpmsg.HighWater + 1
		l.stream.SendData([]byte("x"), false)
		d.w.pending = pending
		s.Flushed()
		s.Flushed()
		if got := strings.Count(l.String(), "drain"); got != want {
			t.Errorf("%d pending: told %d times", pending, got)
		}
	}
	c, d, l, req := newClient(Options{})
	request(req, "POST", false)
	d.w.pending = httpmsg.HighWater + 1
	req.SendData([]byte("x"), false)
	d.w.pending = httpmsg.LowWater
	c.Flushed()
	if strings.Count(l.String(), "drain") != 1 {
		t.Errorf("client: %s", l)
	}
}

// A client that pipelines requests and reads no answer holds the water marks'
// worth of them, whether answers come at once or later.
func TestPipelinedRequestsWaitForTheAnswersBefore(t *testing.T) {
	for _, later := range []bool{false, true} {
		s, d, l := newServer(Options{})
		heads := 0
		l.onHead = func(*httpmsg.Head, bool) {
			heads++
			if d.w.pending += 1000; !later {
				reply(l.stream, 200, "")
			}
		}
		turns := func() {
			for range 200 {
				if d.turn(); later {
					reply(l.stream, 200, "")
				}
			}
		}
		d.push(strings.Repeat(get(""), 200))
		turns()
		if most := httpmsg.HighWater/1000 + 2; heads > most || !d.w.paused {
			t.Fatalf("later %v: %d requests taken, paused %v", later, heads, d.w.paused)
		}
		for range 20 {
			d.w.pending = httpmsg.LowWater
			s.Flushed()
			turns()
		}
		if heads != 200 || !strings.HasSuffix(string(d.w.out), "\r\n\r\n") {
			t.Errorf("later %v: %d requests taken in the end", later, heads)
		}
	}
}

// Content in pieces of a byte, from a source that doesn't pause at once, costs
// about its own length while the output is full, and keeps its order.
func TestTinyPiecesShareAChunkWhileOutputIsFull(t *testing.T) {
	const n = 100_000
	server := func() (httpmsg.Stream, *wire, func()) {
		s, d, l := newServer(Options{})
		d.push(get(""))
		var h httpmsg.Head
		h.Status = 200
		l.stream.SendHead(&h, false)
		return l.stream, d.w, s.Flushed
	}
	client := func() (httpmsg.Stream, *wire, func()) {
		c, d, _, s := newClient(Options{})
		request(s, "POST", false)
		return s, d.w, c.Flushed
	}
	ends := map[string]func(s httpmsg.Stream, flushed func()){
		"data":     func(s httpmsg.Stream, _ func()) { s.SendData([]byte("end"), true) },
		"nothing":  func(s httpmsg.Stream, _ func()) { s.SendData(nil, true) },
		"trailers": func(s httpmsg.Stream, _ func()) { s.SendTrailers(&httpmsg.Head{}) },
		"a long piece": func(s httpmsg.Stream, _ func()) {
			s.SendData([]byte(strings.Repeat("l", 5000)), false)
			s.SendData(nil, true)
		},
		"room": func(s httpmsg.Stream, flushed func()) { flushed(); s.SendData(nil, true) },
	}
	for name, end := range ends {
		for role, make := range map[string]func() (httpmsg.Stream, *wire, func()){"server": server, "client": client} {
			s, w, flushed := make()
			w.out, w.pending = nil, httpmsg.HighWater+1
			var want strings.Builder
			for i := range n {
				want.WriteByte('a' + byte(i%26))
				s.SendData([]byte{'a' + byte(i%26)}, false)
			}
			if s.Buffered() <= w.pending || len(w.out) > n+n/100 {
				t.Errorf("%s, %s: %d bytes for %d, buffered %d", role, name, len(w.out), n, s.Buffered())
			}
			w.pending = 0
			end(s, flushed)
			got, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(w.out)))
			if err != nil || !strings.HasPrefix(string(got), want.String()) {
				t.Errorf("%s, %s: content differs, %v", role, name, err)
			}
		}
	}
}

func TestTinyPiecesGoAtOnceWhileThereIsRoom(t *testing.T) {
	_, d, _, s := newClient(Options{})
	request(s, "POST", false)
	d.w.out = nil
	s.SendData([]byte("a"), false)
	s.SendData([]byte("b"), false)
	if got := string(d.w.out); got != "1\r\na\r\n1\r\nb\r\n" {
		t.Errorf("%q", got)
	}
}
