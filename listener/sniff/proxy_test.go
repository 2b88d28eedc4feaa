package sniff

import (
	"strings"
	"testing"
)

func TestProxyHeader(t *testing.T) {
	const v2 = "\r\n\r\n\x00\r\nQUIT\n"
	v4 := "\x0a\x00\x00\x01\x0a\x00\x00\x02\x1f\x90\x00\x50"
	for _, c := range []struct {
		name, b  string
		want     Verdict
		src, dst string
		tlvs     string
	}{
		{"v1", "PROXY TCP4 10.0.0.1 10.0.0.2 8080 80\r\n", Yes, "10.0.0.1:8080", "10.0.0.2:80", ""},
		{"v1 of IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 8080 80\r\n", Yes, "[2001:db8::1]:8080", "[2001:db8::2]:80", ""},
		{"v1 unknown", "PROXY UNKNOWN\r\n", Yes, "", "", ""},
		{"v1 unknown with words", "PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", Yes, "", "", ""},
		{"v1 bad address", "PROXY TCP4 999.0.0.1 10.0.0.2 8080 80\r\n", Bad, "", "", ""},
		{"v1 bad port", "PROXY TCP4 10.0.0.1 10.0.0.2 80800 80\r\n", Bad, "", "", ""},
		{"v1 too few words", "PROXY TCP4 10.0.0.1\r\n", Bad, "", "", ""},
		{"v1 other family", "PROXY TCP4 2001:db8::1 2001:db8::2 8080 80\r\n", Bad, "", "", ""},
		{"v1 without end", "PROXY TCP4 " + strings.Repeat("1", 120), Bad, "", "", ""},
		{"lower case", "proxy TCP4 10.0.0.1 10.0.0.2 8080 80\r\n", No, "", "", ""},
		{"PROXYING", "PROXYING is fun", No, "", "", ""},
		{"text", "hi", No, "", "", ""},
		{"v2", v2 + "\x21\x11\x00\x0c" + v4, Yes, "10.0.0.1:8080", "10.0.0.2:80", ""},
		{"v2 datagram family", v2 + "\x21\x12\x00\x0c" + v4, Yes, "10.0.0.1:8080", "10.0.0.2:80", ""},
		{"v2 local", v2 + "\x20\x00\x00\x00", Yes, "", "", ""},
		{"v2 with a TLV", v2 + "\x21\x11\x00\x14" + v4 + "\xea\x00\x05value", Yes, "10.0.0.1:8080", "10.0.0.2:80", "\xea\x00\x05value"},
		{"v2 of version 3", v2 + "\x31\x11\x00\x0c" + v4, Bad, "", "", ""},
		{"v2 unknown command", v2 + "\x22\x11\x00\x0c" + v4, Bad, "", "", ""},
		{"v2 Unix", v2 + "\x21\x31\x00\xd8" + strings.Repeat("x", 216), Bad, "", "", ""},
		{"v2 short addresses", v2 + "\x21\x11\x00\x04\x0a\x00\x00\x01", Bad, "", "", ""},
	} {
		var p Proxy
		for i := range c.b {
			if _, v := ProxyHeader([]byte(c.b[:i]), &p); v != More && v != c.want {
				t.Errorf("%s: prefix of %d says %v", c.name, i, v)
			}
		}
		n, v := ProxyHeader([]byte(c.b+"rest"), &p)
		if v != c.want {
			t.Errorf("%s: %v, want %v", c.name, v, c.want)
		}
		if v != Yes {
			continue
		}
		src, dst := "", ""
		if p.Src.IsValid() {
			src, dst = p.Src.String(), p.Dst.String()
		}
		if n != len(c.b) || src != c.src || dst != c.dst || string(p.TLVs) != c.tlvs {
			t.Errorf("%s: %d bytes, %q %q %q", c.name, n, src, dst, p.TLVs)
		}
	}
}

func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 10.0.0.1 10.0.0.2 8080 80\r\n"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x01\x0a\x00\x00\x02\x1f\x90\x00\x50"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Proxy
		if n, v := ProxyHeader(b, &p); n > len(b) || (n > 0) != (v == Yes) {
			t.Fatalf("%d of %d bytes, %v", n, len(b), v)
		}
	})
}
