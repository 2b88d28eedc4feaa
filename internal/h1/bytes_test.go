package h1

import (
	"strings"
	"testing"
)

// TestEveryByteInEveryPlace has which bytes may be where in a request; all the
// others are answered with 400 before any handler sees a head.
func TestEveryByteInEveryPlace(t *testing.T) {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for c := range 256 {
		b := string([]byte{byte(c)})
		for _, p := range []struct {
			place, in string
			ok        bool
		}{
			{"name", get("x" + b + "y: v\r\n"), strings.Contains(token, b) || c == ':'},
			{"value", get("x: a" + b + "b\r\n"), c >= 0x20 && c != 0x7f || c == '\t'},
			{"target", "GET /a" + b + "b HTTP/1.1\r\nHost: a\r\n\r\n", c > 0x20 && c < 0x7f},
			{"method", "GE" + b + "T / HTTP/1.1\r\nHost: a\r\n\r\n", strings.Contains(token, b)},
			{"host", "GET / HTTP/1.1\r\nHost: a" + b + "b\r\n\r\n", strings.Contains("!$%&'()*+,-.:;=@[]_~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", b)},
			{"version", "GET / HTTP/1.1" + b + "\r\nHost: a\r\n\r\n", c == ' ' || c == '\t' || c == '\n'},
			{"chunk size", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0" + b + "\r\n\r\n", strings.Contains("0; \t", b)},
		} {
			_, d, l := newServer(Options{AllowCustomMethods: true})
			d.push(p.in)
			got := strings.HasPrefix(l.String(), "head ") && d.err == nil && (p.place != "chunk size" || strings.HasSuffix(l.String(), "end\n"))
			if got != p.ok {
				t.Errorf("0x%02x in %s: taken %v, want %v (%q)", c, p.place, got, p.ok, l)
			}
		}
	}
}

func TestPartialHeadCostsNoSecondLook(t *testing.T) {
	s, d, l := newServer(Options{})
	d.push("GET / HTTP/1.1\r\nHost: a\r\nX: ")
	for range 50000 {
		d.push("y")
	}
	if !s.InHead() || s.scanned < 50000 {
		t.Errorf("in head %v, %d bytes known", s.InHead(), s.scanned)
	}
	d.push("\r\n\r\n")
	if !strings.Contains(l.String(), "end=true") {
		t.Error("not delivered")
	}
}
