package h2

import (
	"bytes"
	"testing"

	"sluice/internal/httpmsg"
)

// conversations are the seeds of the split tests and of the fuzzers: what a
// client sends behind its preface, and what a server sends.
func conversations(t testing.TB) (client, server [][]byte) {
	var p peer
	if tt, ok := t.(*testing.T); ok {
		p = *newPeer(tt, &wire{}, nil)
	} else {
		p = *newPeer(&testing.T{}, &wire{}, nil)
	}
	start := fr(frameSettings, 0, 0, setting(settingWindow, 3)+setting(settingTableSize, 100))
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	client = [][]byte{
		cat(start, p.get(1, true, "x-a", "b"), p.get(3, false, "x-a", "b"), fr(frameData, 0, 3, "hello"), fr(frameWindow, 0, 1, u32(10)),
			p.headers(3, true, "x-t", "v"), fr(framePing, 0, 0, "12345678")),
		cat(start, fr(frameHeaders, flagEndStream, 1, p.block(":method", "GET", ":scheme", "http")), fr(frameContinuation, flagEndHeaders, 1, p.block(":authority", "a", ":path", "/x", "cookie", "a", "cookie", "b"))),
		cat(start, fr(frameHeaders, flagEndHeaders|flagPadded|flagPriority, 1, "\x02\x00\x00\x00\x00\x10\x82\x86\x84\x41\x01a\x00\x00"), fr(frameData, flagPadded|flagEndStream, 1, "\x01x\x00"), fr(frameReset, 0, 1, u32(8))),
		cat(start, fr(frameHeaders, flagEndHeaders, 1, "\x82\x80")), cat(start, p.headers(1, true, "bad", "head")),
		cat(start, p.get(1, true, "content-length", "5")),
	}
	p = *newPeer(p.t, &wire{}, nil)
	server = [][]byte{
		cat(start, fr(frameSettings, flagAck, 0, ""), p.headers(1, false, ":status", "103"), p.headers(1, false, ":status", "200", "x-a", "b"), fr(frameData, 0, 1, "hello"), p.headers(1, true, "grpc-status", "0")),
		cat(start, p.headers(1, false, ":status", "200", "content-length", "2"), fr(frameData, flagEndStream, 1, "hello"), fr(frameGoAway, 0, 0, u32(1)+u32(0))),
		cat(start, fr(frameReset, 0, 1, u32(7)), fr(frameGoAway, 0, 0, u32(0)+u32(0))),
		cat(start, p.headers(2, true, ":status", "200")),
	}
	return client, server
}

func serve(t testing.TB, in []byte, cuts ...int) string {
	w, l := &wire{}, &log{}
	s := NewServer(w, l, &Options{AllowConnect: true, StreamErrorOnInvalid: len(in)%2 == 0})
	p := &peer{w: w, feed: s.Feed}
	answer := func(s httpmsg.Stream, end bool) {
		if end {
			reply(s, 200, "answer")
		}
	}
	l.onHead = func(s httpmsg.Stream, _ *httpmsg.Head, end bool) { answer(s, end) }
	l.onData = func(s httpmsg.Stream, _ []byte, end bool) { answer(s, end) }
	in = append([]byte(preface), in...)
	at := 0
	for _, c := range append(cuts, len(in)) {
		p.push(in[at:c])
		at = c
	}
	s.Flushed()
	s.Closed(nil)
	if s.Active() != 0 {
		t.Fatalf("%d streams left", s.Active())
	}
	return l.b.String() + "\n--\n" + string(w.out)
}

func asking(t testing.TB, in []byte, cuts ...int) string {
	w, l := &wire{}, &log{}
	c := NewClient(w, &Options{})
	p := &peer{w: w, feed: c.Feed}
	request(l.open(c), "GET", true)
	post := l.open(c)
	request(post, "POST", false)
	post.SendData([]byte("content"), true)
	at := 0
	for _, cut := range append(cuts, len(in)) {
		p.push(in[at:cut])
		at = cut
	}
	c.Flushed()
	c.Closed(nil)
	if c.Active() != 0 {
		t.Fatalf("%d streams left", c.Active())
	}
	return l.b.String() + "\n--\n" + string(w.out)
}

func TestSameAtEverySplit(t *testing.T) {
	client, server := conversations(t)
	check := func(in []byte, n int, run func(testing.TB, []byte, ...int) string) {
		whole := run(t, in)
		every := []int{}
		for i := 1; i < n; i++ {
			if got := run(t, in, i); got != whole {
				t.Fatalf("cut at %d:\n got %q\nwant %q", i, got, whole)
			}
			every = append(every, i)
		}
		if got := run(t, in, every...); got != whole {
			t.Fatalf("byte by byte:\n got %q\nwant %q", got, whole)
		}
	}
	for _, in := range client {
		check(in, len(in)+len(preface), serve)
	}
	for _, in := range server {
		check(in, len(in), asking)
	}
}

// FuzzServer2 checks that no input breaks the engine, that a split changes
// nothing, and that no stream is left at the end.
func FuzzServer2(f *testing.F) {
	client, _ := conversations(f)
	for _, in := range client {
		f.Add(in, uint16(30))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		whole := serve(t, in)
		if got := serve(t, in, min(int(cut), len(in)+len(preface))); got != whole {
			t.Fatalf("cut at %d:\n got %q\nwant %q", cut, got, whole)
		}
	})
}

// FuzzClient2 does the same for a client with two open streams.
func FuzzClient2(f *testing.F) {
	_, server := conversations(f)
	for _, in := range server {
		f.Add(in, uint16(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		whole := asking(t, in)
		if got := asking(t, in, min(int(cut), len(in))); got != whole {
			t.Fatalf("cut at %d:\n got %q\nwant %q", cut, got, whole)
		}
	})
}
