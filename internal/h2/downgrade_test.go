package h2_test

import (
	"bytes"
	"strings"
	"testing"

	xhpack "golang.org/x/net/http2/hpack"

	"sluice/internal/h1"
	"sluice/internal/h2"
	"sluice/internal/httpmsg"
)

type buffer struct{ out []byte }

func (b *buffer) Grab() []byte      { return b.out }
func (b *buffer) Put(p []byte)      { b.out = p }
func (b *buffer) Pending() int      { return 0 }
func (b *buffer) PauseRead()        {}
func (b *buffer) ResumeRead()       {}
func (b *buffer) CloseWhenFlushed() {}
func (b *buffer) Abort()            {}

// forwarder sends each HTTP/2 request on over HTTP/1.
type forwarder struct {
	up  *h1.Client
	s   httpmsg.Stream
	got int
}

func (f *forwarder) OnStream(httpmsg.Stream) httpmsg.Receiver { return f }
func (f *forwarder) OnGone()                                  {}
func (f *forwarder) OnHead(h *httpmsg.Head, end bool) {
	f.got++
	f.s = f.up.Open(&counter{})
	f.s.SendHead(h, end)
}
func (f *forwarder) OnData(p []byte, end bool)   { f.s.SendData(p, end) }
func (f *forwarder) OnTrailers(t *httpmsg.Head)  { f.s.SendTrailers(t) }
func (f *forwarder) OnReset(httpmsg.ResetReason) {}
func (f *forwarder) OnDrain()                    {}

// counter answers and counts HTTP/1 requests.
type counter struct {
	s     httpmsg.Stream
	heads int
}

func (c *counter) OnStream(s httpmsg.Stream) httpmsg.Receiver { c.s = s; return c }
func (c *counter) OnGone()                                    {}
func (c *counter) OnHead(_ *httpmsg.Head, end bool)           { c.heads++; c.reply(end) }
func (c *counter) OnData(_ []byte, end bool)                  { c.reply(end) }
func (c *counter) OnTrailers(*httpmsg.Head)                   { c.reply(true) }
func (c *counter) OnReset(httpmsg.ResetReason)                {}
func (c *counter) OnDrain()                                   {}
func (c *counter) reply(end bool) {
	if end && c.s != nil {
		var h httpmsg.Head
		h.Status = 200
		c.s.SendHead(&h, true)
	}
}

// TestNoByteMakesTwoRequestsOfOne puts each byte into each part of an HTTP/2
// request (CVE-2023-27491, -27493): it is refused, or it is one HTTP/1 request.
func TestNoByteMakesTwoRequestsOfOne(t *testing.T) {
	for c := range 256 {
		for part := range 6 {
			evil := "a" + string([]byte{byte(c)}) + "b"
			smuggled := evil + "\r\n\r\nGET /evil HTTP/1.1\r\nhost: a\r\n\r\n"
			for _, v := range []string{evil, smuggled} {
				f := []string{"GET", "http", "svc", "/x", "x-a", "v"}
				f[part] = v
				if part == 3 {
					f[part] = "/" + v
				}
				sent, seen, out := downgrade(t, f)
				if seen != sent || sent > 1 || strings.Count(out, "/evil") != 0 && sent != 0 {
					t.Fatalf("0x%02x in part %d: %d sent, %d seen: %q", c, part, sent, seen, out)
				}
			}
		}
	}
}

func downgrade(t *testing.T, f []string) (sent, seen int, out string) {
	var block bytes.Buffer
	enc := xhpack.NewEncoder(&block)
	for _, kv := range [][2]string{{":method", f[0]}, {":scheme", f[1]}, {":authority", f[2]}, {":path", f[3]}, {f[4], f[5]}} {
		if err := enc.WriteField(xhpack.HeaderField{Name: kv[0], Value: kv[1]}); err != nil {
			t.Fatal(err)
		}
	}
	n := block.Len()
	in := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		string([]byte{byte(n >> 16), byte(n >> 8), byte(n), 1, 5, 0, 0, 0, 1}) + block.String()
	up := &buffer{}
	fw := &forwarder{up: h1.NewClient(up, &h1.Options{})}
	if _, err := h2.NewServer(&buffer{}, fw, &h2.Options{StreamErrorOnInvalid: true}).Feed([]byte(in)); err != nil {
		t.Fatal(err)
	}
	app := &counter{}
	s := h1.NewServer(&buffer{}, app, &h1.Options{AllowCustomMethods: true, AllowAbsoluteURL: true})
	for rest := up.out; len(rest) > 0; {
		k, err := s.Feed(rest)
		if rest = rest[k:]; err != nil || k == 0 {
			break
		}
	}
	return fw.got, app.heads, string(up.out)
}
