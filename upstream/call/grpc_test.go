package call

import (
	"bytes"
	"testing"
	"time"

	"sluice/internal/httpmsg"
)

// headOf is a head with fields, given as names and values.
func headOf(fields ...string) *httpmsg.Head {
	h := &httpmsg.Head{}
	for i := 0; i < len(fields); i += 2 {
		h.AddName(fields[i], []byte(fields[i+1]))
	}
	return h
}

func TestMessage(t *testing.T) {
	hello := []byte("\x00\x00\x00\x00\x05hello")
	ok, failed := headOf("grpc-status", "0"), headOf("grpc-status", "7", "grpc-message", "no")
	for _, c := range []struct {
		rule   string
		answer Answer
		want   string
		status int
		text   string
	}{
		{"a message and status 0", Answer{Status: 200, Head: headOf(), Body: hello, Trailers: ok}, "hello", 0, ""},
		{"a message without content", Answer{Status: 200, Head: headOf(), Body: make([]byte, 5), Trailers: ok}, "", 0, ""},
		{"a status that says why", Answer{Status: 200, Head: headOf(), Trailers: failed}, "", 7, "no"},
		{"trailers alone are the head", Answer{Status: 200, Head: failed}, "", 7, "no"},
		{"the timeout", Answer{Late: true}, "", DeadlineExceeded, ""},
		{"no answer", Answer{}, "", Unavailable, ""},
		{"an HTTP status", Answer{Status: 503, Head: headOf()}, "", Unavailable, ""},
		{"another HTTP status", Answer{Status: 403, Head: headOf()}, "", 7, ""},
		{"no gRPC status", Answer{Status: 200, Head: headOf(), Body: hello, Trailers: headOf()}, "", Unknown, ""},
		{"a status that is no number", Answer{Status: 200, Head: headOf(), Body: hello, Trailers: headOf("grpc-status", "-1")}, "", Unknown, ""},
		{"no message", Answer{Status: 200, Head: headOf(), Trailers: ok}, "", Internal, "the answer isn't one message"},
		{"a message that is cut", Answer{Status: 200, Head: headOf(), Body: hello[:8], Trailers: ok}, "", Internal, "the answer isn't one message"},
		{"two messages", Answer{Status: 200, Head: headOf(), Body: bytes.Repeat(hello, 2), Trailers: ok}, "", Internal, "the answer isn't one message"},
		{"a message that is compressed", Answer{Status: 200, Head: headOf(), Body: append([]byte{1}, hello[1:]...), Trailers: ok}, "", Internal, "the answer isn't one message"},
	} {
		got, status, text := c.answer.Message()
		if string(got) != c.want || status != c.status || text != c.text {
			t.Errorf("%s: %q, %d %q", c.rule, got, status, text)
		}
	}
}

func TestUnary(t *testing.T) {
	r := Unary("c", "", "/s/M", []byte("hello"), 2*time.Second)
	var h httpmsg.Head
	r.Head(&h)
	if string(h.Authority()) != "c" || string(h.Path()) != "/s/M" || string(h.Get(httpmsg.GRPCTimeout)) != "2000m" || string(h.Get(httpmsg.TE)) != "trailers" {
		t.Errorf("authority %q, path %q, timeout %q, te %q", h.Authority(), h.Path(), h.Get(httpmsg.GRPCTimeout), h.Get(httpmsg.TE))
	}
	if string(r.Body) != "\x00\x00\x00\x00\x05hello" || !r.Streamed {
		t.Errorf("content %q", r.Body)
	}
}
