package h2

import (
	"strings"
	"testing"

	"sluice/internal/httpmsg"
)

// TestResponses has what a client makes of what an upstream sends on stream 1.
func TestResponses(t *testing.T) {
	head := func(fields ...string) func(*peer) []byte {
		return func(p *peer) []byte { return p.headers(1, false, fields...) }
	}
	headEnd := func(fields ...string) func(*peer) []byte {
		return func(p *peer) []byte { return p.headers(1, true, fields...) }
	}
	data := func(s string, end bool) func(*peer) []byte {
		return func(*peer) []byte {
			if end {
				return fr(frameData, flagEndStream, 1, s)
			}
			return fr(frameData, 0, 1, s)
		}
	}
	raw := func(b []byte) func(*peer) []byte { return func(*peer) []byte { return b } }
	for _, c := range []struct {
		name, method string
		in           []func(*peer) []byte
		want         string
		ended        bool // the connection
	}{
		{"plain", "GET", []func(*peer) []byte{head(":status", "200"), data("ok", true)}, "head 200 end=false|data ok|end", false},
		{"interim", "GET", []func(*peer) []byte{head(":status", "103", "link", "x"), headEnd(":status", "204")}, `head 103 link="x" end=false|head 204 end=true`, false},
		{"interim with END_STREAM", "GET", []func(*peer) []byte{headEnd(":status", "103")}, "reset kind=5 code=0 " + detailMessage, true},
		{"no status", "GET", []func(*peer) []byte{headEnd("a", "b")}, "reset kind=5 code=0 " + detailMessage, true},
		{"status of letters", "GET", []func(*peer) []byte{headEnd(":status", "2x0")}, "reset kind=5 code=0 " + detailField, true},
		{"101", "GET", []func(*peer) []byte{headEnd(":status", "101")}, "reset kind=5 code=0 " + detailMessage, true},
		{"more than its length", "GET", []func(*peer) []byte{head(":status", "200", "content-length", "3"), data("12345", true)}, `head 200 content-length="3" end=false|reset kind=5 code=1 ` + detailReset, false},
		{"less than its length", "GET", []func(*peer) []byte{head(":status", "200", "content-length", "9"), data("12345", true)}, `head 200 content-length="9" end=false|reset kind=5 code=1 ` + detailReset, false},
		{"HEAD with length", "HEAD", []func(*peer) []byte{headEnd(":status", "200", "content-length", "9")}, `head 200 content-length="9" end=true`, false},
		{"HEAD with DATA", "HEAD", []func(*peer) []byte{head(":status", "200", "content-length", "5"), data("12345", true)}, `head 200 content-length="5" end=false|reset kind=5 code=1 ` + detailReset, false},
		{"304 with length", "GET", []func(*peer) []byte{headEnd(":status", "304", "content-length", "9")}, `head 304 content-length="9" end=true`, false},
		{"length without DATA", "GET", []func(*peer) []byte{headEnd(":status", "200", "content-length", "9")}, "reset kind=5 code=0 " + detailMessage, true},
		{"DATA before the head", "GET", []func(*peer) []byte{data("x", false)}, "reset kind=5 code=5 " + detailReset, false},
		{"DATA after the end", "GET", []func(*peer) []byte{headEnd(":status", "200"), data("x", false)}, "head 200 end=true", true},
		{"reset", "GET", []func(*peer) []byte{raw(fr(frameReset, 0, 1, u32(CodeCancel)))}, "reset kind=1 code=8 " + detailReset, false},
		{"refused", "GET", []func(*peer) []byte{raw(fr(frameReset, 0, 1, u32(CodeRefused)))}, "reset kind=2 code=7 " + detailReset, false},
		{"reset for a protocol error", "GET", []func(*peer) []byte{raw(fr(frameReset, 0, 1, u32(CodeProtocol)))}, "reset kind=5 code=1 " + detailReset, false},
		{"push", "GET", []func(*peer) []byte{raw(fr(framePush, flagEndHeaders, 1, u32(2)))}, "reset kind=5 code=0 http2: PUSH_PROMISE", true},
		{"ENABLE_PUSH", "GET", []func(*peer) []byte{raw(fr(frameSettings, 0, 0, setting(settingPush, 1)))}, "reset kind=5 code=0 http2: setting out of range", true},
		{"HEADERS on an idle stream", "GET", []func(*peer) []byte{func(p *peer) []byte { return p.headers(5, true, ":status", "200") }}, "reset kind=5 code=0 http2: frame on a wrong stream", true},
		{"HEADERS on an even stream", "GET", []func(*peer) []byte{func(p *peer) []byte { return p.headers(2, true, ":status", "200") }}, "reset kind=5 code=0 http2: frame on a wrong stream", true},
		{"unknown frame", "GET", []func(*peer) []byte{raw(fr(12, 0, 1, "x")), headEnd(":status", "200")}, "head 200 end=true", false},
		{"garbage", "GET", []func(*peer) []byte{raw([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))}, "reset kind=5 code=0 http2: frame of a wrong size", true},
		{"too many fields", "GET", []func(*peer) []byte{headEnd(append([]string{":status", "200"}, many(100)...)...)}, "reset kind=1 code=2 " + detailTooMany, false},
	} {
		cl, p, l := newClient(t, Options{})
		request(l.open(cl), c.method, true)
		for _, f := range c.in {
			p.push(f(p))
		}
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(l.b.String()), "\n") {
			line = strings.TrimPrefix(line, "1 ")
			got = append(got, strings.TrimSuffix(strings.TrimSuffix(line, " before=true"), " before=false"))
		}
		if g := strings.Join(got, "|"); g != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, g, c.want)
		}
		if (p.err != nil) != c.ended || cl.Usable() == c.ended || cl.Active() != 0 {
			t.Errorf("%s: error %v usable %v active %d", c.name, p.err, cl.Usable(), cl.Active())
		}
	}
}

func TestGoAwayRefusesStreamsAboveItsLast(t *testing.T) {
	c, p, l := newClient(t, Options{})
	for range 3 {
		request(l.open(c), "GET", true)
	}
	p.push(fr(frameGoAway, 0, 0, u32(3)+u32(CodeNo)))
	if got := l.b.String(); got != "5 reset kind=2 code=7  before=true\n" {
		t.Errorf("%s", got)
	}
	if c.CanOpen() || c.Usable() || p.w.closed {
		t.Error("still takes streams, or closed too soon")
	}
	p.push(p.headers(1, true, ":status", "200"))
	p.push(p.headers(3, true, ":status", "200"))
	if !p.w.closed {
		t.Error("not closed after the last stream")
	}
}

func TestClientsGoAwayHasLast0(t *testing.T) {
	c, p, l := newClient(t, Options{})
	request(l.open(c), "GET", true)
	p.frames()
	c.Drain()
	if got := p.frames(); got != "GOAWAY 0 0\n" {
		t.Errorf("%s", got)
	}
	p.push(p.headers(1, true, ":status", "200"))
	if !p.w.closed || !strings.Contains(l.b.String(), "1 head 200 end=true") {
		t.Errorf("closed %v %s", p.w.closed, l.b.String())
	}
}

func TestCanOpenFollowsThePeersLimit(t *testing.T) {
	c, p, l := newClient(t, Options{})
	p.push(fr(frameSettings, 0, 0, setting(settingMaxStreams, 1)))
	request(l.open(c), "GET", true)
	if c.CanOpen() {
		t.Error("above the limit")
	}
	p.push(p.headers(1, true, ":status", "200"))
	if !c.CanOpen() {
		t.Error("not again after the end")
	}
	p.push(fr(frameSettings, 0, 0, setting(settingMaxStreams, 0)))
	if c.CanOpen() || !c.Usable() {
		t.Error("a limit of 0 waits")
	}
}

func TestIDsGoUpOnTheWire(t *testing.T) {
	c, p, l := newClient(t, Options{})
	one, two, three := l.open(c), l.open(c), l.open(c)
	request(two, "GET", true)
	three.Reset(httpmsg.ResetReason{})
	request(one, "GET", true)
	if got := p.frames(); !strings.HasPrefix(got, "HEADERS 3 ") || !strings.Contains(got, "\nHEADERS 7 ") || strings.Contains(got, "RST") {
		t.Errorf("%s", got)
	}
	if one.ID() != 7 || c.Active() != 2 {
		t.Errorf("id %d, active %d", one.ID(), c.Active())
	}
	p.push(p.headers(7, true, ":status", "200"))
	if c.Active() != 1 {
		t.Error("renumbered stream not found")
	}
}

func TestLocalResetIsInternalErrorAndLateFramesAreNoError(t *testing.T) {
	c, p, l := newClient(t, Options{})
	s := l.open(c)
	request(s, "GET", true)
	p.frames()
	s.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetRemote})
	if got := p.frames(); got != "RST 1 2\n" {
		t.Errorf("%s", got)
	}
	p.push(p.headers(1, false, ":status", "200"))
	p.push(fr(frameData, flagEndStream, 1, "late"))
	if p.err != nil || l.b.String() != "" {
		t.Errorf("%v %s", p.err, l.b.String())
	}
}

func TestPingAckIsTold(t *testing.T) {
	var got uint64
	c, p, _ := newClient(t, Options{})
	c.OnPingAck = func(n uint64) { got = n }
	c.SendPing(7)
	p.push(fr(framePing, flagAck, 0, "\x00\x00\x00\x00\x00\x00\x00\x07"))
	if got != 7 || !strings.HasPrefix(p.frames(), "PING 0000000000000007 ack=false") {
		t.Errorf("got %d", got)
	}
}

func TestRequestHeadsOnTheWire(t *testing.T) {
	c, p, l := newClient(t, Options{})
	s := l.open(c)
	request(s, "GET", true, "connection", "close", "transfer-encoding", "chunked", "upgrade", "x", "keep-alive", "1", "host", "evil", "te", "gzip", "x-a", "b")
	if got := p.frames(); got != "HEADERS 1 :method=GET :scheme=http :authority=a :path=/ x-a=b end=true\n" {
		t.Errorf("%s", got)
	}
}

func TestLargeHeadIsContinued(t *testing.T) {
	c, p, l := newClient(t, Options{})
	big := strings.Repeat("v", 40000)
	request(l.open(c), "GET", true, "x-big", big)
	w, sl := &wire{}, &log{}
	s := NewServer(w, sl, &Options{})
	sp := newPeer(t, w, s.Feed)
	sp.push(append([]byte(preface), fr(frameSettings, 0, 0, "")...))
	sp.push(p.w.take())
	if got := sl.b.String(); got != `1 head GET http://a/ x-big="`+big+"\" end=true\n" || sp.err != nil {
		t.Errorf("%v %.100s", sp.err, got)
	}
}

func TestEndOfConnectionTellsWhetherAHeadCame(t *testing.T) {
	c, p, l := newClient(t, Options{})
	request(l.open(c), "GET", true)
	request(l.open(c), "GET", true)
	p.push(p.headers(1, false, ":status", "200"))
	c.Closed(nil)
	if got := l.b.String(); !strings.Contains(got, "1 reset kind=4 code=0  before=false") || !strings.Contains(got, "3 reset kind=4 code=0  before=true") {
		t.Errorf("%s", got)
	}
	if c.Usable() || c.CanOpen() {
		t.Error("still usable")
	}
}

func TestWindowOverflowBySettingResetsTheStream(t *testing.T) {
	c, p, l := newClient(t, Options{})
	request(l.open(c), "POST", false)
	request(l.open(c), "POST", false)
	p.push(fr(frameWindow, 0, 1, u32(1000000)))
	p.frames()
	p.push(fr(frameSettings, 0, 0, setting(settingWindow, maxWindow)))
	if got := p.frames(); got != "RST 1 3\nSETTINGS ack=true \n" || p.err != nil || c.Active() != 1 {
		t.Errorf("%s %v", got, p.err)
	}
}

func TestManyStreamsResetInLinearTime(t *testing.T) {
	c, p, l := newClient(t, Options{MaxOutboundFrames: 1 << 30})
	p.push(fr(frameSettings, 0, 0, setting(settingMaxStreams, 1<<20)))
	for range 20000 {
		request(l.open(c), "GET", true)
	}
	c.Closed(nil)
	if c.Active() != 0 || strings.Count(l.b.String(), "reset") != 20000 {
		t.Errorf("%d left", c.Active())
	}
}
