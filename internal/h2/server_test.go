package h2

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"sluice/internal/httpmsg"
)

func u32(v uint32) string { return string(binary.BigEndian.AppendUint32(nil, v)) }

func setting(id uint16, v uint32) string { return string(appendSetting(nil, id, v)) }

// TestConnectionErrors has what Envoy 1.40 answers to broken frames: a GOAWAY
// for what its frame decoder finds, nothing for the rest.
func TestConnectionErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		in   func(p *peer) []byte
		want string
	}{
		{"PING of 7 bytes", func(*peer) []byte { return fr(framePing, 0, 0, "1234567") }, "GOAWAY 0 6\n"},
		{"PING on a stream", func(*peer) []byte { return fr(framePing, 0, 1, "12345678") }, ""},
		{"PRIORITY of 4 bytes", func(*peer) []byte { return fr(framePriority, 0, 1, "1234") }, "GOAWAY 0 6\n"},
		{"GOAWAY on a stream", func(*peer) []byte { return fr(frameGoAway, 0, 1, u32(0)+u32(0)) }, ""},
		{"GOAWAY of 4 bytes", func(*peer) []byte { return fr(frameGoAway, 0, 0, u32(0)) }, "GOAWAY 0 6\n"},
		{"RST_STREAM of 1 byte", func(*peer) []byte { return fr(frameReset, 0, 1, "x") }, "GOAWAY 0 6\n"},
		{"RST_STREAM on 0", func(*peer) []byte { return fr(frameReset, 0, 0, u32(8)) }, ""},
		{"RST_STREAM on an idle stream", func(*peer) []byte { return fr(frameReset, 0, 1, u32(8)) }, ""},
		{"WINDOW_UPDATE of 1 byte", func(*peer) []byte { return fr(frameWindow, 0, 0, "x") }, "GOAWAY 0 6\n"},
		{"WINDOW_UPDATE of 0", func(*peer) []byte { return fr(frameWindow, 0, 0, u32(0)) }, ""},
		{"WINDOW_UPDATE beyond 2^31-1", func(*peer) []byte { return fr(frameWindow, 0, 0, u32(1<<31-1)) }, ""},
		{"WINDOW_UPDATE of 0 on a stream", func(p *peer) []byte { return append(p.get(1, false), fr(frameWindow, 0, 1, u32(0))...) }, ""},
		{"WINDOW_UPDATE beyond 2^31-1 on a stream", func(p *peer) []byte { return append(p.get(1, true), fr(frameWindow, 0, 1, u32(1<<31-1))...) }, ""},
		{"PUSH_PROMISE", func(*peer) []byte { return fr(framePush, flagEndHeaders, 1, u32(2)) }, ""},
		{"DATA above the size limit", func(p *peer) []byte {
			return append(p.get(1, false), fr(frameData, 0, 1, strings.Repeat("x", 16385))...)
		}, "GOAWAY 1 6\n"},
		{"DATA on an idle stream", func(*peer) []byte { return fr(frameData, 0, 5, "x") }, ""},
		{"DATA on 0", func(*peer) []byte { return fr(frameData, 0, 0, "x") }, ""},
		{"DATA padding longer than itself", func(p *peer) []byte { return append(p.get(1, false), fr(frameData, flagPadded, 1, "\x05abc")...) }, "GOAWAY 1 1\n"},
		{"DATA padded and empty", func(p *peer) []byte { return append(p.get(1, false), fr(frameData, flagPadded, 1, "")...) }, "GOAWAY 1 1\n"},
		{"HEADERS padding longer than itself", func(*peer) []byte { return fr(frameHeaders, flagEndHeaders|flagPadded, 1, "PA\x03svc") }, "GOAWAY 0 1\n"},
		{"HEADERS on an even stream", func(p *peer) []byte { return p.get(2, true) }, ""},
		{"CONTINUATION alone", func(p *peer) []byte { return fr(frameContinuation, flagEndHeaders, 1, p.block("a", "b")) }, "GOAWAY 0 1\n"},
		{"PING inside a block", func(p *peer) []byte {
			return append(fr(frameHeaders, flagEndStream, 1, p.block(":method", "GET")), fr(framePing, 0, 0, "12345678")...)
		}, "GOAWAY 1 1\n"},
		{"CONTINUATION of another stream", func(p *peer) []byte {
			return append(fr(frameHeaders, flagEndStream, 1, p.block(":method", "GET")), fr(frameContinuation, 0, 3, p.block("a", "b"))...)
		}, "GOAWAY 1 1\n"},
		{"HPACK index 0", func(*peer) []byte { return fr(frameHeaders, flagEndHeaders|flagEndStream, 1, "\x82\x86\x80") }, "GOAWAY 1 9\n"},
		{"HPACK literal cut", func(*peer) []byte { return fr(frameHeaders, flagEndHeaders|flagEndStream, 1, "\x82@\x05ab") }, "GOAWAY 1 9\n"},
		{"HPACK late size update", func(*peer) []byte { return fr(frameHeaders, flagEndHeaders|flagEndStream, 1, "\x82\x20") }, "GOAWAY 1 9\n"},
		{"SETTINGS of 5 bytes", func(*peer) []byte { return fr(frameSettings, 0, 0, "12345") }, "GOAWAY 0 6\n"},
		{"SETTINGS on a stream", func(*peer) []byte { return fr(frameSettings, 0, 1, "") }, ""},
		{"SETTINGS ACK with payload", func(*peer) []byte { return fr(frameSettings, flagAck, 0, setting(3, 1)) }, "GOAWAY 0 6\n"},
		{"ENABLE_PUSH 2", func(*peer) []byte { return fr(frameSettings, 0, 0, setting(2, 2)) }, ""},
		{"MAX_FRAME_SIZE 16383", func(*peer) []byte { return fr(frameSettings, 0, 0, setting(5, 16383)) }, ""},
		{"MAX_FRAME_SIZE 2^24", func(*peer) []byte { return fr(frameSettings, 0, 0, setting(5, 1<<24)) }, ""},
		{"INITIAL_WINDOW_SIZE 2^31", func(*peer) []byte { return fr(frameSettings, 0, 0, setting(4, 1<<31)) }, ""},
		{"invalid head", func(p *peer) []byte { return p.headers(1, true, ":method", "GET") }, ""},
		{"two empty DATA", func(p *peer) []byte {
			return append(p.get(1, false), append(fr(frameData, 0, 1, ""), fr(frameData, 0, 1, "")...)...)
		}, ""},
		{"two empty CONTINUATION", func(p *peer) []byte {
			return append(fr(frameHeaders, 0, 1, p.block(":method", "GET")), append(fr(frameContinuation, 0, 1, ""), fr(frameContinuation, 0, 1, "")...)...)
		}, ""},
		{"PRIORITY flood", func(*peer) []byte {
			return []byte(strings.Repeat(string(fr(framePriority, 0, 1, "\x00\x00\x00\x00\x10")), 101))
		}, ""},
		{"WINDOW_UPDATE flood", func(*peer) []byte { return []byte(strings.Repeat(string(fr(frameWindow, 0, 0, u32(1))), 6)) }, ""},
	} {
		s, p, l := newServer(t, Options{})
		p.push(c.in(p))
		if p.err == nil || !p.w.closed || l.gone != 1 {
			t.Errorf("%s: error %v closed %v gone %d", c.name, p.err, p.w.closed, l.gone)
		}
		if got := p.frames(); got != c.want {
			t.Errorf("%s: sent %q, want %q", c.name, got, c.want)
		}
		if s.Active() != 0 {
			t.Errorf("%s: %d streams left", c.name, s.Active())
		}
	}
}

func TestFloodsAreCounted(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame []byte
		n     int
		get   func(*Counters) uint64
	}{
		{"PING", fr(framePing, 0, 0, "12345678"), 51, func(c *Counters) uint64 { return c.OutboundControlFlood }},
		{"SETTINGS", fr(frameSettings, 0, 0, ""), 51, func(c *Counters) uint64 { return c.OutboundControlFlood }},
	} {
		counters := &Counters{}
		_, p, _ := newServer(t, Options{MaxOutboundControl: 50, Counters: counters})
		p.w.stuck = 1 // the peer reads nothing
		for range c.n {
			p.push(c.frame)
		}
		if p.err == nil || c.get(counters) != 1 {
			t.Errorf("%s: error %v, counters %+v", c.name, p.err, counters)
		}
	}
}

func TestControlFramesTakenByThePeerDoNotCount(t *testing.T) {
	s, p, _ := newServer(t, Options{MaxOutboundControl: 50})
	for range 1000 {
		p.push(fr(framePing, 0, 0, "12345678"))
		s.Flushed()
	}
	if p.err != nil {
		t.Error(p.err)
	}
}

func TestRapidResetEndsTheConnection(t *testing.T) {
	_, p, _ := newServer(t, Options{MaxOutboundControl: 1 << 20})
	for i := range uint32(600) {
		p.push(append(p.get(2*i+1, true), fr(frameReset, 0, 2*i+1, u32(CodeCancel))...))
		if p.err != nil {
			if i < 500 {
				t.Errorf("ended after %d", i)
			}
			if got := p.frames(); got != fmt.Sprintf("GOAWAY %d 11\n", 2*i+1) {
				t.Errorf("sent %q", got)
			}
			return
		}
	}
	t.Error("600 early resets passed")
}

// A client that has us send the resets is as rapid as one that sends them.
func TestResetsThatTheClientProvokesCountAsItsOwn(t *testing.T) {
	for _, c := range []struct {
		name string
		more func(p *peer, id uint32) []byte
	}{
		{"DATA after END_STREAM", func(p *peer, id uint32) []byte {
			return append(p.get(id, true), fr(frameData, 0, id, "x")...)
		}},
		{"HEADERS after END_STREAM", func(p *peer, id uint32) []byte {
			return append(p.get(id, true), p.headers(id, true, "a", "b")...)
		}},
		{"more DATA than content-length", func(p *peer, id uint32) []byte {
			return append(p.get(id, false, "content-length", "1"), fr(frameData, 0, id, "xx")...)
		}},
		{"DATA beyond the stream's window", func(p *peer, id uint32) []byte {
			return append(p.get(id, false), fr(frameData, 0, id, "0123456789")...)
		}},
		{"a head over the limit", func(p *peer, id uint32) []byte {
			return p.get(id, true, "big", strings.Repeat("x", 2000))
		}},
		{"trailers that don't end the stream", func(p *peer, id uint32) []byte {
			return append(p.get(id, false), p.headers(id, false, "a", "b")...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			counters := &Counters{}
			s, p, _ := newServer(t, Options{MaxEarlyResets: 50, MaxHeaderBytes: 1000, InitialStreamWindow: 5,
				StreamErrorOnInvalid: true, Counters: counters})
			i := uint32(0)
			for ; i < 100 && p.err == nil; i++ {
				p.push(c.more(p, 2*i+1))
				s.Flushed()
			}
			if p.err == nil || i != 51 || counters.PrematureReset != 1 {
				t.Errorf("after %d: %v, %+v", i, p.err, counters)
			}
		})
	}
}

func TestResetsAfterTheAnswerBeganAreNoFlood(t *testing.T) {
	s, p, l := newServer(t, Options{MaxEarlyResets: 50})
	l.onHead = func(s httpmsg.Stream, _ *httpmsg.Head, _ bool) {
		h := &httpmsg.Head{}
		h.Status = 200
		s.SendHead(h, false)
	}
	for i := range uint32(200) {
		p.push(append(p.get(2*i+1, true), fr(frameData, 0, 2*i+1, "x")...))
		s.Flushed()
	}
	if p.err != nil {
		t.Error(p.err)
	}
}

// Only the last window of a frame moves streams: one in between that would
// overflow them does nothing, and a wrong one is still refused.
func TestWindowsOfOneSettingsFrameAreAppliedOnce(t *testing.T) {
	for _, c := range []struct {
		name, in string
		sent     string
		broken   bool
	}{
		{"the last counts", setting(settingWindow, 1) + setting(settingWindow, 3), "DATA 1 \"abc\" end=false\nSETTINGS ack=true \n", false},
		{"one between has no use", setting(settingWindow, 1<<31-1) + setting(settingWindow, 2), "DATA 1 \"ab\" end=false\nSETTINGS ack=true \n", false},
		{"one between is checked", setting(settingWindow, 1<<31) + setting(settingWindow, 2), "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, p, l := newServer(t, Options{})
			p.push(fr(frameSettings, 0, 0, setting(settingWindow, 0)))
			p.push(p.get(1, true))
			reply(l.streams[0], 200, "abcdef")
			p.w.take()
			p.push(fr(frameSettings, 0, 0, c.in))
			if broken := p.err != nil; broken != c.broken {
				t.Fatal(p.err)
			}
			if got := p.frames(); !c.broken && got != c.sent {
				t.Errorf("sent %q", got)
			}
		})
	}
}

// TestRequestHeads has each head's fate with errors confined to streams.
func TestRequestHeads(t *testing.T) {
	field, message := "http2.invalid.header.field", "http2.violation.of.messaging.rule"
	base := []string{":method", "GET", ":scheme", "http", ":authority", "svc", ":path", "/x"}
	with := func(more ...string) []string { return append(append([]string(nil), base...), more...) }
	for _, c := range []struct {
		name   string
		fields []string
		want   string // the head, or the detail
	}{
		{"plain", base, "head GET http://svc/x end=true"},
		{"no method", base[2:], message},
		{"no path", base[:6], message},
		{"no scheme", append([]string{":method", "GET"}, base[4:]...), message},
		{"no authority", append(append([]string(nil), base[:4]...), base[6:]...), message},
		{"path twice", with(":path", "/y"), field},
		{"unknown pseudo header", with(":foo", "x"), field},
		{"status in a request", with(":status", "200"), field},
		{"late pseudo header", append(append([]string(nil), base[:6]...), "a", "b", ":path", "/x"), field},
		{"empty path", []string{":method", "GET", ":scheme", "http", ":authority", "svc", ":path", ""}, field},
		{"empty method", []string{":method", "", ":scheme", "http", ":authority", "svc", ":path", "/"}, field},
		{"path without slash", []string{":method", "GET", ":scheme", "http", ":authority", "svc", ":path", "x"}, message},
		{"path *", []string{":method", "GET", ":scheme", "http", ":authority", "svc", ":path", "*"}, message},
		{"OPTIONS *", []string{":method", "OPTIONS", ":scheme", "http", ":authority", "svc", ":path", "*"}, "head OPTIONS http://svc* end=true"},
		{"path with space", []string{":method", "GET", ":scheme", "http", ":authority", "svc", ":path", "/a b"}, field},
		{"path with CR", []string{":method", "GET", ":scheme", "http", ":authority", "svc", ":path", "/a\rb"}, field},
		{"method with space", []string{":method", "GE T", ":scheme", "http", ":authority", "svc", ":path", "/"}, field},
		{"method in small letters", []string{":method", "get", ":scheme", "http", ":authority", "svc", ":path", "/"}, "head get http://svc/ end=true"},
		{"scheme empty", []string{":method", "GET", ":scheme", "", ":authority", "svc", ":path", "/"}, field},
		{"scheme with space", []string{":method", "GET", ":scheme", "ht tp", ":authority", "svc", ":path", "/"}, field},
		{"scheme ftp", []string{":method", "GET", ":scheme", "ftp", ":authority", "svc", ":path", "/"}, "head GET ftp://svc/ end=true"},
		{"scheme HTTP", []string{":method", "GET", ":scheme", "HTTP", ":authority", "svc", ":path", "/"}, "head GET HTTP://svc/ end=true"},
		{"authority empty", []string{":method", "GET", ":scheme", "http", ":authority", "", ":path", "/"}, field},
		{"authority with user", []string{":method", "GET", ":scheme", "http", ":authority", "u@svc", ":path", "/"}, field},
		{"authority with space", []string{":method", "GET", ":scheme", "http", ":authority", "a b", ":path", "/"}, field},
		{"authority with slash", []string{":method", "GET", ":scheme", "http", ":authority", "svc/x", ":path", "/"}, field},
		{"host besides authority", with("host", "other"), "head GET http://svc/x end=true"},
		{"host only", []string{":method", "GET", ":scheme", "http", ":path", "/x", "host", "only"}, "head GET http://only/x end=true"},
		{"host twice", with("host", "svc", "host", "svc"), field},
		{"upper-case name", with("X-A", "b"), field},
		{"empty name", with("", "b"), field},
		{"name with colon", with("a:b", "c"), field},
		{"value with LF", with("x-a", "b\nc"), field},
		{"value with NUL", with("x-a", "b\x00c"), field},
		{"value with edge spaces", with("x-a", " b "), `head GET http://svc/x x-a=" b " end=true`},
		{"connection", with("connection", "close"), field},
		{"keep-alive", with("keep-alive", "1"), field},
		{"proxy-connection", with("proxy-connection", "x"), field},
		{"transfer-encoding", with("transfer-encoding", "chunked"), field},
		{"upgrade", with("upgrade", "h2c"), field},
		{"te trailers", with("te", "trailers"), `head GET http://svc/x te="trailers" end=true`},
		{"te gzip", with("te", "gzip"), field},
		{"content-length and no DATA", with("content-length", "5"), message},
		{"content-length 0", with("content-length", "0"), `head GET http://svc/x content-length="0" end=true`},
		{"content-length twice", with("content-length", "0", "content-length", "0"), field},
		{"content-length of letters", with("content-length", "5x"), field},
		{"content-length below 0", with("content-length", "-5"), field},
		{"cookie crumbs are joined", with("cookie", "a=1", "x", "y", "cookie", "b=2", "cookie", ""), `head GET http://svc/x x="y" cookie="a=1; b=2; " end=true`},
		{"extended CONNECT not offered", []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "svc", ":path", "/"}, field},
		{"CONNECT", []string{":method", "CONNECT", ":authority", "svc:1"}, "head CONNECT ://svc:1 end=true"},
		{"CONNECT with path", []string{":method", "CONNECT", ":authority", "svc:1", ":path", "/"}, message},
		{"101 fields", with(many(97)...), "http2.too_many_headers"},
	} {
		_, p, l := newServer(t, Options{StreamErrorOnInvalid: true})
		p.push(p.headers(1, true, c.fields...))
		got := strings.TrimPrefix(strings.TrimSpace(l.b.String()), "1 ")
		if strings.HasPrefix(got, "reset") {
			f := strings.Fields(got)
			got = f[3]
			if code := "RST 1 1\n"; got != "http2.too_many_headers" && p.frames() != code {
				t.Errorf("%s: no RST_STREAM PROTOCOL_ERROR", c.name)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if p.err != nil {
			t.Errorf("%s: connection ended: %v", c.name, p.err)
		}
	}
}

func many(n int) (f []string) {
	for range n {
		f = append(f, "x", "y")
	}
	return f
}

func TestDecodedBytesCountNotThoseOnTheWire(t *testing.T) {
	counters := &Counters{}
	_, p, l := newServer(t, Options{Counters: counters})
	p.push(fr(frameHeaders, flagEndHeaders|flagEndStream, 1, "\x82\x86\x84\x41\x03svc@\x01a\x7f\x85\x06"+strings.Repeat("v", 900)+strings.Repeat("\xbe", 80)))
	p.push(fr(frameHeaders, flagEndHeaders|flagEndStream, 3, "\x82\x86\x84\x01\x03svc"+strings.Repeat("\xbe", 50)))
	p.push(fr(frameHeaders, flagEndHeaders|flagEndStream, 5, "\x82\x86\x84\x01\x03svc\x60\x7f\x85\x06"+strings.Repeat("c", 900)+strings.Repeat("\xbe", 80)))
	got := l.b.String()
	if !strings.Contains(got, "1 reset kind=10 code=2 http2.header_list_size_too_large") || !strings.Contains(got, "3 head GET") ||
		!strings.Contains(got, "5 reset kind=10 code=2 http2.header_list_size_too_large") || counters.HeaderOverflow != 0 {
		t.Errorf("%.600s %+v", got, counters)
	}
	if got := p.frames(); got != "RST 1 2\nRST 5 2\n" {
		t.Errorf("sent %q", got)
	}
}

func TestContinuationFloodEndsTheStreamThenTheConnection(t *testing.T) {
	_, p, l := newServer(t, Options{})
	p.push(fr(frameHeaders, flagEndStream, 1, "\x82\x86\x84\x41\x03svc"))
	for i := range 3000 {
		p.push(fr(frameContinuation, 0, 1, "\x00\x03x-a\x7f\xf5\x02"+strings.Repeat("v", 500-128+244)))
		if p.err != nil {
			if i < 200 {
				t.Errorf("ended after %d frames", i)
			}
			if got := p.frames(); got != "GOAWAY 1 11\n" {
				t.Errorf("sent %q", got)
			}
			if !strings.Contains(l.b.String(), "1 reset") {
				t.Errorf("%s", l.b.String())
			}
			return
		}
	}
	t.Error("3000 frames passed")
}

func TestContinuationsOfAnySizeMakeOneHead(t *testing.T) {
	_, p, l := newServer(t, Options{})
	block := p.block(":method", "GET", ":scheme", "http", ":authority", "svc", ":path", "/x", "x-a", "b")
	p.push(fr(frameHeaders, flagEndStream, 1, block[:1]))
	for i := 1; i < len(block); i++ {
		p.push(fr(frameContinuation, 0, 1, block[i:i+1]))
	}
	p.push(fr(frameContinuation, flagEndHeaders, 1, ""))
	if got := l.b.String(); got != "1 head GET http://svc/x x-a=\"b\" end=true\n" || p.err != nil {
		t.Errorf("%s %v", got, p.err)
	}
}

func TestContentLengthAgainstData(t *testing.T) {
	for _, c := range []struct {
		name, length string
		data         []string
		ok           bool
	}{
		{"exact", "5", []string{"123", "45"}, true}, {"short", "10", []string{"12345"}, false},
		{"long", "3", []string{"12345"}, false}, {"long in the second", "4", []string{"123", "45"}, false},
	} {
		_, p, l := newServer(t, Options{})
		p.push(p.get(1, false, "content-length", c.length))
		for i, d := range c.data {
			flags := byte(0)
			if i == len(c.data)-1 {
				flags = flagEndStream
			}
			p.push(fr(frameData, flags, 1, d))
		}
		ended := strings.HasSuffix(l.b.String(), "1 end\n")
		if ended != c.ok || p.err != nil || !c.ok && p.frames() != "RST 1 1\n" {
			t.Errorf("%s: %s", c.name, l.b.String())
		}
	}
}

func TestRequestTrailers(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []string
		end    bool
		want   string
	}{
		{"plain", []string{"x-t", "1", "x-t", "2"}, true, `trailers x-t="1" x-t="2"`},
		{"pseudo header", []string{":path", "/x"}, true, detailField},
		{"without END_STREAM", []string{"x-t", "1"}, false, detailMessage},
		{"upper case", []string{"X-T", "1"}, true, detailField},
		{"content-length", []string{"content-length", "7"}, true, detailMessage},
		{"host", []string{"host", "x"}, true, detailMessage},
		{"transfer-encoding", []string{"transfer-encoding", "chunked"}, true, detailField},
	} {
		_, p, l := newServer(t, Options{StreamErrorOnInvalid: true})
		p.push(append(p.get(1, false), fr(frameData, 0, 1, "abc")...))
		p.push(p.headers(1, c.end, c.fields...))
		if got := l.b.String(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestStreamWindowExceededResetsTheStream(t *testing.T) {
	_, p, _ := newServer(t, Options{InitialStreamWindow: 65535, InitialConnWindow: 1 << 20})
	p.push(p.get(1, false))
	s := strings.Repeat("x", 16384)
	p.w.take()
	for range 4 {
		p.push(fr(frameData, 0, 1, s))
	}
	// credited a quarter at a time, so it holds
	if got := p.frames(); strings.Contains(got, "RST") {
		t.Fatalf("sent %q", got)
	}
	_, p, l := newServer(t, Options{InitialStreamWindow: 65535, InitialConnWindow: 1 << 20})
	p.push(p.get(1, false))
	l.streams[0].Pause()
	for range 5 {
		p.push(fr(frameData, 0, 1, s))
	}
	if got := p.frames(); got != "RST 1 3\n" || p.err != nil {
		t.Errorf("sent %q, %v", got, p.err)
	}
}

func TestPauseWithholdsOnlyTheStreamsWindow(t *testing.T) {
	_, p, l := newServer(t, Options{InitialStreamWindow: 65536, InitialConnWindow: 65536})
	p.push(append(p.get(1, false), p.get(3, false)...))
	l.streams[0].Pause()
	s := strings.Repeat("x", 16384)
	for range 3 {
		p.push(fr(frameData, 0, 1, s))
	}
	if got := p.frames(); got != "WINDOW 0 16384\nWINDOW 0 16384\nWINDOW 0 16384\n" {
		t.Errorf("paused: %q", got)
	}
	p.push(fr(frameData, 0, 3, s))
	if got := p.frames(); got != "WINDOW 0 16384\nWINDOW 3 16384\n" {
		t.Errorf("other stream: %q", got)
	}
	l.streams[0].Resume()
	if got := p.frames(); got != "WINDOW 1 49152\n" {
		t.Errorf("resumed: %q", got)
	}
}

func TestDataRespectsBothWindows(t *testing.T) {
	s, p, l := newServer(t, Options{})
	p.push(fr(frameSettings, 0, 0, setting(settingWindow, 10)))
	p.push(p.get(1, true))
	p.frames()
	var h httpmsg.Head
	h.Status = 200
	l.streams[0].SendHead(&h, false)
	l.streams[0].SendData([]byte("0123456789abcdef"), true)
	if got := p.frames(); got != "HEADERS 1 :status=200 end=false\nDATA 1 \"0123456789\" end=false\n" {
		t.Fatalf("%q", got)
	}
	if n := l.streams[0].Buffered(); n != 6 {
		t.Errorf("buffered %d", n)
	}
	p.push(fr(frameWindow, 0, 1, u32(4)))
	if got := p.frames(); got != "DATA 1 \"abcd\" end=false\n" {
		t.Errorf("%q", got)
	}
	p.push(fr(frameSettings, 0, 0, setting(settingWindow, 12)))
	if got := p.frames(); !strings.HasPrefix(got, "DATA 1 \"ef\" end=true\n") || s.Active() != 0 {
		t.Errorf("%q", got)
	}
}

func TestFullOutputIsSharedInTurn(t *testing.T) {
	s, p, l := newServer(t, Options{})
	p.push(fr(frameSettings, 0, 0, setting(settingWindow, 1<<20)))
	p.push(fr(frameWindow, 0, 0, u32(1<<20)))
	var h httpmsg.Head
	h.Status = 200
	p.w.stuck = highOutput
	big := make([]byte, 40000)
	for i := range uint32(3) {
		p.push(p.get(2*i+1, true))
		l.streams[i].SendHead(&h, false)
		l.streams[i].SendData(big, true)
	}
	if got := p.frames(); strings.Contains(got, "DATA") {
		t.Fatal("DATA sent with a full output")
	}
	p.w.stuck = 0
	s.Flushed()
	var order []string
	for _, line := range strings.Split(p.frames(), "\n") {
		if strings.HasPrefix(line, "DATA") {
			order = append(order, strings.Fields(line)[1])
		}
	}
	if got := strings.Join(order, ""); got != "135135135" {
		t.Errorf("order %s", got)
	}
	if s.Active() != 0 {
		t.Errorf("%d active", s.Active())
	}
}

func TestTrailersWaitForTheirData(t *testing.T) {
	_, p, l := newServer(t, Options{})
	p.push(fr(frameSettings, 0, 0, setting(settingWindow, 2)))
	p.push(p.get(1, false))
	p.frames()
	var h, tr httpmsg.Head
	h.Status = 200
	tr.Add([]byte("grpc-status"), []byte("0"))
	l.streams[0].SendHead(&h, false)
	l.streams[0].SendData([]byte("abcd"), false)
	l.streams[0].SendTrailers(&tr)
	tr.Reset()
	p.push(fr(frameWindow, 0, 1, u32(100)))
	// The request wasn't complete: the client is asked to stop, behind everything.
	want := "HEADERS 1 :status=200 end=false\nDATA 1 \"ab\" end=false\nDATA 1 \"cd\" end=false\nHEADERS 1 grpc-status=0 end=true\nRST 1 0\n"
	if got := p.frames(); got != want {
		t.Errorf("%s", got)
	}
	p.push(fr(frameData, flagEndStream, 1, "late")) // crossed the RST_STREAM
	if p.err != nil {
		t.Error(p.err)
	}
}

func TestOnDrainAfterHighWater(t *testing.T) {
	_, p, l := newServer(t, Options{})
	p.push(p.get(1, true))
	var h httpmsg.Head
	h.Status = 200
	l.streams[0].SendHead(&h, false)
	l.streams[0].SendData(make([]byte, 65535+httpmsg.HighWater+1), false)
	p.push(append(fr(frameWindow, 0, 0, u32(1<<20)), fr(frameWindow, 0, 1, u32(1<<20))...))
	if got := strings.Count(l.b.String(), "1 drain\n"); got != 1 || l.streams[0].Buffered() != 0 {
		t.Errorf("%d drains, buffered %d", got, l.streams[0].Buffered())
	}
}

func TestDrainInTwoSteps(t *testing.T) {
	s, p, l := newServer(t, Options{})
	p.push(p.get(1, true))
	s.Drain()
	p.push(p.get(3, true)) // racing: still served
	s.GoAway()
	p.push(p.get(5, true)) // too late: ignored
	if got := p.frames(); got != "GOAWAY 2147483647 0\nGOAWAY 3 0\n" {
		t.Errorf("%q", got)
	}
	if len(l.streams) != 2 || l.gone != 1 || p.w.closed {
		t.Fatalf("%d streams, gone %d, closed %v", len(l.streams), l.gone, p.w.closed)
	}
	reply(l.streams[0], 200, "")
	reply(l.streams[1], 200, "")
	if !p.w.closed {
		t.Error("not closed after the last answer")
	}
}

func TestStreamsAboveTheLimit(t *testing.T) {
	_, p, _ := newServer(t, Options{MaxConcurrentStreams: 2})
	p.push(append(p.get(1, true), p.get(3, true)...))
	p.push(p.get(5, true))
	if p.err == nil || p.frames() != "" {
		t.Error("above an acknowledged limit the connection ends")
	}
	w, l := &wire{}, &log{}
	s := NewServer(w, l, &Options{MaxConcurrentStreams: 1})
	p = newPeer(t, w, s.Feed)
	p.push(append([]byte(preface), fr(frameSettings, 0, 0, "")...))
	p.push(append(p.get(1, true), p.get(3, true)...))
	if p.err != nil || !strings.HasSuffix(p.frames(), "RST 3 7\n") {
		t.Error("before the ACK the stream is refused")
	}
}

func TestIgnoredFrames(t *testing.T) {
	_, p, l := newServer(t, Options{})
	for typ := byte(10); typ < 20; typ++ {
		p.push(append(fr(typ, 255, 0, "x"), fr(typ, 0, 9, "x")...))
	}
	p.push(fr(framePing, flagAck, 0, "unasked!"))
	p.push(fr(framePriority, 0, 0, "\x00\x00\x00\x00\x10"))
	p.push(fr(frameSettings, 0, 0, setting(99, 1)+setting(6, 5)))
	p.push(fr(frameHeaders, flagEndHeaders|flagEndStream|flagPriority, 1, "\x00\x00\x00\x01\x10"+p.block(":method", "GET", ":scheme", "http", ":authority", "svc", ":path", "/x")))
	if p.err != nil || !strings.Contains(l.b.String(), "1 head GET") {
		t.Errorf("%v %s", p.err, l.b.String())
	}
}

func TestSettingsSentAreEnvoys(t *testing.T) {
	w := &wire{}
	NewServer(w, &log{}, &Options{})
	p := newPeer(t, w, nil)
	want := "SETTINGS ack=false " + fmt.Sprintf("%x", setting(1, 4096)+setting(8, 0)+setting(3, 1024)+setting(4, 16<<20)) + "\nWINDOW 0 25100289\n"
	if got := p.frames(); got != want {
		t.Errorf("%s", got)
	}
}

func TestExtendedConnectIsAnUpgradeAndItsAnswer101IsA200(t *testing.T) {
	_, p, l := newServer(t, Options{AllowConnect: true})
	p.push(p.headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "svc", ":path", "/x"))
	if got := l.b.String(); !strings.Contains(got, `1 head GET http://svc/x upgrade="websocket" connection="upgrade" end=false`) {
		t.Errorf("%s", got)
	}
	p.frames()
	var h httpmsg.Head
	h.Status = 101
	h.AddString(httpmsg.Upgrade, "websocket")
	h.AddString(httpmsg.Connection, "upgrade")
	l.streams[0].SendHead(&h, false)
	l.streams[0].SendData([]byte("hi"), false)
	if got := p.frames(); !strings.Contains(got, "HEADERS 1") || !strings.Contains(got, ":status=200") || strings.Contains(got, "upgrade") {
		t.Errorf("%s", got)
	}
}

func TestAnswerThatTheClientDoesNotTakeIsGivenUpAtTheSecondSweep(t *testing.T) {
	counters := &Counters{}
	s, p, l := newServer(t, Options{Counters: counters})
	p.push(fr(frameSettings, 0, 0, setting(4, 0)))
	p.push(p.get(1, true))
	reply(l.streams[0], 200, "late")
	p.frames()
	if !s.SweepStalled() || counters.TxFlushTimeout != 0 {
		t.Error("gone at once")
	}
	if s.SweepStalled() || counters.TxFlushTimeout != 1 {
		t.Errorf("%+v", counters)
	}
	if got := p.frames(); got != "RST 1 2\n" {
		t.Errorf("sent %q", got)
	}
}

func TestUnderscoreActions(t *testing.T) {
	for action, want := range map[httpmsg.Underscores]string{httpmsg.UnderscoresAllow: `x_y="1"`, httpmsg.UnderscoresDrop: "/x end=true", httpmsg.UnderscoresReject: "kind=10 code=2 http2.unexpected_underscore"} {
		_, p, l := newServer(t, Options{Underscores: action})
		p.push(p.get(1, true, "x_y", "1"))
		if !strings.Contains(l.b.String(), want) || p.err != nil {
			t.Errorf("%d: %s", action, l.b.String())
		}
	}
}

func TestEndOfConnectionResetsEveryStream(t *testing.T) {
	s, p, l := newServer(t, Options{})
	p.push(append(p.get(1, true), p.get(3, false)...))
	s.EOF()
	if got := l.b.String(); strings.Count(got, "reset kind=4") != 2 || l.gone != 1 || !p.w.closed {
		t.Errorf("%s gone %d", got, l.gone)
	}
	reply(l.streams[0], 200, "late") // must do nothing
}

func TestPrefaceOfAnotherProtocolEndsTheConnection(t *testing.T) {
	w, l := &wire{}, &log{}
	s := NewServer(w, l, &Options{})
	if _, err := s.Feed([]byte("GET / HTTP/1.1\r\n")); err == nil || !w.closed {
		t.Error("taken")
	}
}
