package sniff

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
)

// hello is a real ClientHello record of crypto/tls.
func hello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	a, b := net.Pipe()
	cfg.InsecureSkipVerify = true
	go func() {
		tls.Client(a, cfg).Handshake()
		a.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(b, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	b.Close()
	return append(head, body...)
}

// split puts the handshake bytes of one record into records of n bytes.
func split(rec []byte, n int) []byte {
	var out []byte
	for p := rec[5:]; len(p) > 0; {
		k := min(n, len(p))
		out = append(out, 22, 3, 1, byte(k>>8), byte(k))
		out = append(out, p[:k]...)
		p = p[k:]
	}
	return out
}

func protocols(h *Hello) string {
	var s []string
	h.Protocols(func(n []byte) bool { s = append(s, string(n)); return true })
	return strings.Join(s, ",")
}

func TestClientHelloAtEveryPrefix(t *testing.T) {
	plain := hello(t, &tls.Config{ServerName: "a.example", NextProtos: []string{"istio-h2", "h2"}})
	long := hello(t, &tls.Config{ServerName: "a.example", NextProtos: append([]string{"istio-h2", "h2"}, many(60)...)})
	none := hello(t, &tls.Config{ServerName: "127.0.0.1"})
	for _, c := range []struct {
		name, sni, alpn string
		b               []byte
	}{
		{"one record", "a.example", "istio-h2,h2", plain},
		{"records of 40", "a.example", "istio-h2,h2", split(plain, 40)},
		{"records of 1", "a.example", "istio-h2,h2", split(plain, 1)},
		{"records of 3", "a.example", "istio-h2,h2", split(plain, 3)},
		{"12 KB", "a.example", "istio-h2,h2," + strings.Join(many(60), ","), long},
		{"12 KB in records of 700", "a.example", "istio-h2,h2," + strings.Join(many(60), ","), split(long, 700)},
		{"no extensions of interest", "", "", none},
	} {
		scratch := make([]byte, MaxHello)
		var h Hello
		for n := range c.b {
			if v := ClientHello(c.b[:n:n], scratch, &h); v != More {
				t.Fatalf("%s: %d of %d bytes give %v", c.name, n, len(c.b), v)
			}
		}
		for _, b := range [][]byte{c.b, append(bytes.Clone(c.b), "behind it"...)} {
			if v := ClientHello(b, scratch, &h); v != Yes || string(h.ServerName) != c.sni || protocols(&h) != c.alpn {
				t.Errorf("%s: %v %q %q", c.name, v, h.ServerName, protocols(&h))
			}
		}
		if n := testing.AllocsPerRun(20, func() { ClientHello(c.b, scratch, &h) }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

func many(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = strings.Repeat(string(rune('a'+i%26)), 190)
	}
	return s
}

func TestNotAClientHello(t *testing.T) {
	ok := hello(t, &tls.Config{ServerName: "a.example"})
	huge := append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0x43, 0}, make([]byte, 100)...)
	for _, c := range []struct {
		name string
		b    string
		want Verdict
	}{
		{"handshake record with text", "\x16\x03\x01\x00\x05junk!", No},
		{"alert record", "\x15\x03\x01\x00\x02\x02\x28", No},
		{"HTTP", "GET / HTTP/1.1", No},
		{"record version 2", "\x16\x02\x00\x00\x05\x01\x00\x00\x01\x00", No},
		{"hello of two bytes", "\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03", No},
		{"zeros", "\x00\x00\x00\x00\x00\x00", No},
		{"empty record", "\x16\x03\x01\x00\x00", No},
		{"two bytes", "hi", More},
		{"SSLv2 hello, not whole", "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10", More},
		{"SSLv2 hello", "\x80\x0a\x01\x03\x01\x00\x15\x00\x00\x00\x10\x00", Yes},
		{"SSLv2 hello that is too short", "\x80\x02\x01\x03\x01", No},
		{"longer than 16 KiB by its own word", string(huge), TooLarge},
		{"a real one cut in its record", string(ok[:len(ok)-1]), More},
		{"bytes missing inside", string(ok[:60]) + string(ok[70:]) + strings.Repeat("x", 10), No},
	} {
		var h Hello
		if v := ClientHello([]byte(c.b), make([]byte, MaxHello), &h); v != c.want {
			t.Errorf("%s: %v, want %v", c.name, v, c.want)
		}
	}
}

func TestHelloWithoutEndIsTooLarge(t *testing.T) {
	// Tiny records make many bytes of a small message.
	b := split(append([]byte{22, 3, 1, 0x30, 0, 1, 0, 0x2f, 0xfc}, make([]byte, 0x2ff0)...), 1)
	var h Hello
	scratch := make([]byte, MaxHello)
	if v := ClientHello(b[:MaxHello-1], scratch, &h); v != More {
		t.Errorf("below the bound: %v", v)
	}
	if v := ClientHello(b[:MaxHello], scratch, &h); v != TooLarge {
		t.Errorf("at the bound: %v", v)
	}
}

func TestServerNameAndALPNMustBeWellFormed(t *testing.T) {
	for _, c := range []struct {
		name, ext string
		want      Verdict
	}{
		{"a name", "\x00\x00\x00\x06\x00\x04\x00\x00\x01a", Yes},
		{"two names", "\x00\x00\x00\x0a\x00\x08\x00\x00\x01a\x00\x00\x01b", No},
		{"empty name", "\x00\x00\x00\x05\x00\x03\x00\x00\x00", No},
		{"name with NUL", "\x00\x00\x00\x06\x00\x04\x00\x00\x01\x00", No},
		{"name of another type", "\x00\x00\x00\x06\x00\x04\x01\x00\x01a", No},
		{"twice", "\x00\x00\x00\x06\x00\x04\x00\x00\x01a\x00\x00\x00\x06\x00\x04\x00\x00\x01b", No},
		{"protocols", "\x00\x10\x00\x05\x00\x03\x02h2", Yes},
		{"empty protocol", "\x00\x10\x00\x03\x00\x01\x00", No},
		{"protocol longer than its list", "\x00\x10\x00\x05\x00\x03\x09h2", No},
		{"extension longer than the hello", "\x00\x10\x00\x50\x00\x03\x02h2", No},
		{"unknown one", "\x7a\x7a\x00\x01x", Yes},
	} {
		body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00" + string([]byte{byte(len(c.ext) >> 8), byte(len(c.ext))}) + c.ext
		msg := string([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}) + body
		rec := string([]byte{22, 3, 1, byte(len(msg) >> 8), byte(len(msg))}) + msg
		var h Hello
		if v := ClientHello([]byte(rec), make([]byte, MaxHello), &h); v != c.want {
			t.Errorf("%s: %v, want %v", c.name, v, c.want)
		}
	}
}

func TestHTTP(t *testing.T) {
	for _, c := range []struct {
		line string
		v    Version
		want Verdict
	}{
		{"GET / HTTP/1.1\r\n", HTTP11, Yes},
		{"OPTIONS * HTTP/1.1\r\n", HTTP11, Yes},
		{"CONNECT a:80 HTTP/1.1\r\n", HTTP11, Yes},
		{"BREW / HTTP/1.1\r\n", HTTP11, Yes},
		{"get / HTTP/1.1\r\n", HTTP11, Yes},
		{"GET / HTTP/1.0\r\n", HTTP10, Yes},
		{"GET / HTTP/1.2\r\n", HTTP10, Yes},
		{"GET / HTTP/2.0\r\n", HTTP10, Yes},
		{"GET / http/1.1\r\n", NotHTTP, No},
		{"GET /\r\n", HTTP10, Yes},
		{"GET http://a/ HTTP/1.1\r\n", HTTP11, Yes},
		{"\r\nGET / HTTP/1.1\r\n", NotHTTP, No},
		{" GET / HTTP/1.1\r\n", NotHTTP, No},
		{"GET / HTTP/1.1\nhost: a\n", HTTP11, Yes},
		{"GET  / HTTP/1.1\r\n", HTTP11, Yes},
		{"HTTP/1.1 200 OK\r\n\r\n", NotHTTP, No},
		{"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", HTTP10, Yes},
		{"PRI * HTTP/1.1\r\n\r\n", HTTP11, Yes},
		{"SSH-2.0-client\r\n", NotHTTP, No},
		{"\x00\x01\x02\x03", NotHTTP, No},
		{"\x16\x03\x01\x00\x05junk!\r\n", NotHTTP, No},
		{"\x01hello", NotHTTP, No},
		{"hello world\n", NotHTTP, No},
		{"hello there", NotHTTP, More},
		{"GX", NotHTTP, More},
		{"PRIX", NotHTTP, More},
		{"", NotHTTP, More},
		{preface, HTTP2, Yes},
		{preface + "\x00\x00", HTTP2, Yes},
		{"GET /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\n", HTTP11, Yes},
		{"GET /" + strings.Repeat("x", 70000), NotHTTP, TooLarge},
		{"GET /" + strings.Repeat("x", 70000) + " HTTP/1.1\r\n", NotHTTP, TooLarge},
	} {
		if v, got := HTTP([]byte(c.line)); v != c.v || got != c.want {
			t.Errorf("%.40q: %v %v, want %v %v", c.line, v, got, c.v, c.want)
		}
		for n := range c.line {
			v, got := HTTP([]byte(c.line[:n]))
			if got != More && (v != c.v || got != c.want) && c.line[:n] != "GET /\n" {
				t.Errorf("%.40q: prefix of %d says %v %v, the whole %v %v", c.line, n, v, got, c.v, c.want)
				break
			}
		}
	}
}

func FuzzClientHello(f *testing.F) {
	ok := hello(f, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2"}})
	f.Add(ok, uint8(0))
	f.Add(split(ok, 7), uint8(3))
	f.Add([]byte("\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		var h, k Hello
		scratch := make([]byte, MaxHello)
		v := ClientHello(b, scratch, &h)
		h.Protocols(func([]byte) bool { return true })
		// A verdict on a prefix stays, but for a size that comes out later.
		n := len(b) * int(cut) / 256
		if p := ClientHello(b[:n], make([]byte, MaxHello), &k); p != More && p != v {
			t.Fatalf("prefix of %d says %v, the whole %v", n, p, v)
		}
	})
}

func FuzzHTTP(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint8(99))
	f.Add([]byte(preface), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		v, got := HTTP(b)
		if (v == NotHTTP) == (got == Yes) {
			t.Fatalf("%v with %v", v, got)
		}
		pv, p := HTTP(b[:len(b)*int(cut)/256])
		if p != More && (p != got || pv != v) {
			t.Fatalf("prefix says %v %v, the whole %v %v", pv, p, v, got)
		}
	})
}
