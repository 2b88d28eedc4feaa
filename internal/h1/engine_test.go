package h1

import (
	"fmt"
	"strings"
	"testing"

	"sluice/internal/httpmsg"
)

// wire is a Conn in memory.
type wire struct {
	out     []byte
	pending int // what Pending reports beyond nothing
	paused  bool
	closed  bool
	aborted bool
}

func (w *wire) Grab() []byte      { return w.out }
func (w *wire) Put(b []byte)      { w.out = b }
func (w *wire) Pending() int      { return w.pending }
func (w *wire) PauseRead()        { w.paused = true }
func (w *wire) ResumeRead()       { w.paused = false }
func (w *wire) CloseWhenFlushed() { w.closed = true }
func (w *wire) Abort()            { w.aborted = true }

// log records what a Receiver is told, content joined.
type log struct {
	b          strings.Builder
	data       bool
	stream     httpmsg.Stream
	onHead     func(h *httpmsg.Head, end bool)
	onData     func(p []byte, end bool)
	onTrailers func()
	gone       int
}

func (l *log) event(format string, a ...any) {
	if l.data {
		l.b.WriteByte('\n')
	}
	l.data = false
	fmt.Fprintf(&l.b, format+"\n", a...)
}

func (l *log) OnStream(s httpmsg.Stream) httpmsg.Receiver { l.stream = s; return l }
func (l *log) OnGone()                                    { l.gone++ }

func show(h *httpmsg.Head) string {
	var b strings.Builder
	for i := range h.Len() {
		if _, n, v, ok := h.Field(i); ok {
			fmt.Fprintf(&b, " %s=%q", n, v)
		}
	}
	return b.String()
}

func (l *log) OnHead(h *httpmsg.Head, end bool) {
	if h.Status != 0 {
		l.event("head %d%s end=%v", h.Status, show(h), end)
	} else {
		l.event("head %s %s host=%q%s end=%v", h.Method(), h.Path(), h.Authority(), show(h), end)
	}
	if l.onHead != nil {
		l.onHead(h, end)
	}
}

func (l *log) OnData(p []byte, end bool) {
	if len(p) > 0 {
		if !l.data {
			l.b.WriteString("data ")
		}
		l.data = true
		l.b.Write(p)
	}
	if end {
		l.event("end")
	}
	if l.onData != nil {
		l.onData(p, end)
	}
}

func (l *log) OnTrailers(t *httpmsg.Head) {
	l.event("trailers%s", show(t))
	if l.onTrailers != nil {
		l.onTrailers()
	}
}
func (l *log) OnReset(r httpmsg.ResetReason) {
	l.event("reset %d %d %s before=%v", r.Kind, r.Status, r.Detail, r.BeforeHead)
}
func (l *log) OnDrain() { l.event("drain") }

func (l *log) String() string { return l.b.String() }

// driver feeds an engine as a worker does: what isn't consumed comes again.
type driver struct {
	w    *wire
	feed func([]byte) (int, error)
	in   []byte
	err  error
}

func (d *driver) push(b string) {
	d.in = append(d.in, b...)
	d.turn()
}

func (d *driver) turn() {
	for len(d.in) > 0 && !d.w.paused {
		n, err := d.feed(d.in)
		d.in = d.in[n:]
		if err != nil {
			d.err = err
		}
		if n == 0 {
			return
		}
	}
}

func newServer(o Options) (*Server, *driver, *log) {
	w, l := &wire{}, &log{}
	s := NewServer(w, l, &o)
	return s, &driver{w: w, feed: s.Feed}, l
}

func newClient(o Options) (*Client, *driver, *log, httpmsg.Stream) {
	w, l := &wire{}, &log{}
	c := NewClient(w, &o)
	return c, &driver{w: w, feed: c.Feed}, l, c.Open(l)
}

func reply(s httpmsg.Stream, status int, body string) {
	var h httpmsg.Head
	h.Status = status
	h.AddString(httpmsg.ContentLength, fmt.Sprint(len(body)))
	s.SendHead(&h, body == "")
	if body != "" {
		s.SendData([]byte(body), true)
	}
}

func request(s httpmsg.Stream, method string, end bool, fields ...string) {
	var h httpmsg.Head
	h.SetMethod([]byte(method))
	h.SetPath([]byte("/"))
	h.SetAuthority([]byte("a"))
	for i := 0; i < len(fields); i += 2 {
		h.Add([]byte(fields[i]), []byte(fields[i+1]))
	}
	s.SendHead(&h, end)
}

func TestServerServesKeptConnection(t *testing.T) {
	s, d, l := newServer(Options{})
	for range 3 {
		d.push("GET /x HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n")
		reply(l.stream, 200, "ok")
	}
	want := "head GET /x host=\"a\" x-a=\"b\" end=true\n"
	if got := l.String(); got != strings.Repeat(want, 3) {
		t.Errorf("events %q", got)
	}
	if got := string(d.w.out); got != strings.Repeat("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 3) {
		t.Errorf("wire %q", got)
	}
	if !s.Idle() || d.w.closed {
		t.Errorf("idle %v closed %v", s.Idle(), d.w.closed)
	}
}

func TestClientKeepsConnection(t *testing.T) {
	c, d, l, s := newClient(Options{})
	request(s, "POST", false)
	s.SendData([]byte("hi"), true)
	d.push("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	if got := string(d.w.out); got != "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n" {
		t.Errorf("wire %q", got)
	}
	if got := l.String(); got != "head 200 end=false\ndata ok\nend\n" {
		t.Errorf("events %q", got)
	}
	if !c.Reusable() {
		t.Error("not reusable")
	}
}
