package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	xhpack "golang.org/x/net/http2/hpack"

	"sluice/internal/httpmsg"
)

// wire is a Conn in memory. Its output is taken by the test.
type wire struct {
	out     []byte
	stuck   int // bytes that count as pending
	paused  bool
	closed  bool
	aborted bool
}

func (w *wire) Grab() []byte      { return w.out }
func (w *wire) Put(b []byte)      { w.out = b }
func (w *wire) Pending() int      { return w.stuck }
func (w *wire) PauseRead()        { w.paused = true }
func (w *wire) ResumeRead()       { w.paused = false }
func (w *wire) CloseWhenFlushed() { w.closed = true }
func (w *wire) Abort()            { w.aborted = true }

// take gives the output so far.
func (w *wire) take() []byte {
	b := w.out
	w.out = nil
	return b
}

// log records what receivers are told, content joined.
type log struct {
	b          strings.Builder
	data       uint64
	streams    []httpmsg.Stream
	onHead     func(s httpmsg.Stream, h *httpmsg.Head, end bool)
	onData     func(s httpmsg.Stream, p []byte, end bool)
	onTrailers func()
	gone       int
}

type end struct {
	l *log
	s httpmsg.Stream
	n uint64
}

func (l *log) event(format string, a ...any) {
	if l.data != 0 {
		l.b.WriteByte('\n')
	}
	l.data = 0
	fmt.Fprintf(&l.b, format+"\n", a...)
}

func (l *log) OnStream(s httpmsg.Stream) httpmsg.Receiver {
	l.streams = append(l.streams, s)
	return &end{l, s, s.ID()}
}
func (l *log) OnGone() { l.gone++ }

func show(h *httpmsg.Head) string {
	var b strings.Builder
	for i := range h.Len() {
		if _, n, v, ok := h.Field(i); ok {
			fmt.Fprintf(&b, " %s=%q", n, v)
		}
	}
	return b.String()
}

func (r *end) OnHead(h *httpmsg.Head, fin bool) {
	if h.Status != 0 {
		r.l.event("%d head %d%s end=%v", r.n, h.Status, show(h), fin)
	} else {
		r.l.event("%d head %s %s://%s%s%s end=%v", r.n, h.Method(), h.Scheme(), h.Authority(), h.Path(), show(h), fin)
	}
	if r.l.onHead != nil {
		r.l.onHead(r.s, h, fin)
	}
}

func (r *end) OnData(p []byte, fin bool) {
	if len(p) > 0 {
		if r.l.data != r.n {
			if r.l.data != 0 {
				r.l.b.WriteByte('\n')
			}
			fmt.Fprintf(&r.l.b, "%d data ", r.n)
		}
		r.l.data = r.n
		r.l.b.Write(p)
	}
	if fin {
		r.l.event("%d end", r.n)
	}
	if r.l.onData != nil {
		r.l.onData(r.s, p, fin)
	}
}

func (r *end) OnTrailers(t *httpmsg.Head) {
	r.l.event("%d trailers%s", r.n, show(t))
	if r.l.onTrailers != nil {
		r.l.onTrailers()
	}
}
func (r *end) OnReset(x httpmsg.ResetReason) {
	r.l.event("%d reset kind=%d code=%d %s before=%v", r.n, x.Kind, x.Code, x.Detail, x.BeforeHead)
}
func (r *end) OnDrain() { r.l.event("%d drain", r.n) }

// peer makes frames and reads ours.
type peer struct {
	t    *testing.T
	w    *wire
	feed func([]byte) (int, error)
	in   []byte
	err  error
	enc  *xhpack.Encoder
	buf  bytes.Buffer
	dec  *xhpack.Decoder
}

func (p *peer) push(b []byte) {
	p.in = append(p.in, b...)
	for len(p.in) > 0 {
		n, err := p.feed(p.in)
		p.in = p.in[n:]
		if err != nil {
			p.err = err
		}
		if n == 0 {
			return
		}
	}
}

func fr(typ, flags byte, id uint32, payload string) []byte {
	return append(appendFrame(nil, typ, flags, id, len(payload)), payload...)
}

func (p *peer) block(fields ...string) string {
	p.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := p.enc.WriteField(xhpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			p.t.Fatal(err)
		}
	}
	return p.buf.String()
}

func (p *peer) headers(id uint32, end bool, fields ...string) []byte {
	flags := byte(flagEndHeaders)
	if end {
		flags |= flagEndStream
	}
	return fr(frameHeaders, flags, id, p.block(fields...))
}

func (p *peer) get(id uint32, end bool, more ...string) []byte {
	return p.headers(id, end, append([]string{":method", "GET", ":scheme", "http", ":authority", "svc", ":path", "/x"}, more...)...)
}

// frames renders what we sent since the last call.
func (p *peer) frames() string {
	var out strings.Builder
	b := bytes.TrimPrefix(p.w.take(), []byte(preface))
	for len(b) >= frameHead {
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		typ, flags, id := b[3], b[4], binary.BigEndian.Uint32(b[5:])
		body := b[frameHead : frameHead+n]
		b = b[frameHead+n:]
		switch typ {
		case frameData:
			fmt.Fprintf(&out, "DATA %d %q end=%v\n", id, body, flags&flagEndStream != 0)
		case frameHeaders:
			fmt.Fprintf(&out, "HEADERS %d", id)
			fs, err := p.dec.DecodeFull(body)
			if err != nil {
				p.t.Fatal(err)
			}
			for _, f := range fs {
				fmt.Fprintf(&out, " %s=%s", f.Name, f.Value)
			}
			fmt.Fprintf(&out, " end=%v\n", flags&flagEndStream != 0)
		case frameReset:
			fmt.Fprintf(&out, "RST %d %d\n", id, binary.BigEndian.Uint32(body))
		case frameGoAway:
			fmt.Fprintf(&out, "GOAWAY %d %d\n", binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:]))
		case frameWindow:
			fmt.Fprintf(&out, "WINDOW %d %d\n", id, binary.BigEndian.Uint32(body))
		case framePing:
			fmt.Fprintf(&out, "PING %x ack=%v\n", body, flags&flagAck != 0)
		case frameSettings:
			fmt.Fprintf(&out, "SETTINGS ack=%v %x\n", flags&flagAck != 0, body)
		default:
			fmt.Fprintf(&out, "frame %d %d %x\n", typ, id, body)
		}
	}
	return out.String()
}

func newPeer(t *testing.T, w *wire, feed func([]byte) (int, error)) *peer {
	p := &peer{t: t, w: w, feed: feed, dec: xhpack.NewDecoder(4096, nil)}
	p.enc = xhpack.NewEncoder(&p.buf)
	return p
}

func newServer(t *testing.T, o Options) (*Server, *peer, *log) {
	w, l := &wire{}, &log{}
	s := NewServer(w, l, &o)
	p := newPeer(t, w, s.Feed)
	p.push(append([]byte(preface), fr(frameSettings, 0, 0, "")...))
	p.push(fr(frameSettings, flagAck, 0, ""))
	w.take()
	return s, p, l
}

func newClient(t *testing.T, o Options) (*Client, *peer, *log) {
	w, l := &wire{}, &log{}
	c := NewClient(w, &o)
	p := newPeer(t, w, c.Feed)
	p.push(fr(frameSettings, 0, 0, ""))
	p.push(fr(frameSettings, flagAck, 0, ""))
	w.take()
	return c, p, l
}

func (l *log) open(c *Client) httpmsg.Stream {
	r := &end{l: l}
	r.s = c.Open(r)
	r.n = r.s.ID()
	return r.s
}

func request(s httpmsg.Stream, method string, fin bool, fields ...string) {
	var h httpmsg.Head
	h.SetMethod([]byte(method))
	h.SetPath([]byte("/"))
	h.SetAuthority([]byte("a"))
	for i := 0; i < len(fields); i += 2 {
		h.Add([]byte(fields[i]), []byte(fields[i+1]))
	}
	s.SendHead(&h, fin)
}

func reply(s httpmsg.Stream, code int, body string) {
	var h httpmsg.Head
	h.Status = code
	s.SendHead(&h, body == "")
	if body != "" {
		s.SendData([]byte(body), true)
	}
}

func TestServerServesRequests(t *testing.T) {
	s, p, l := newServer(t, Options{})
	for i := range uint32(3) {
		p.push(p.get(2*i+1, true, "x-a", "b"))
		reply(l.streams[i], 200, "ok")
	}
	want := ""
	sent := ""
	for i := range 3 {
		want += fmt.Sprintf("%d head GET http://svc/x x-a=\"b\" end=true\n", 2*i+1)
		sent += fmt.Sprintf("HEADERS %d :status=200 end=false\nDATA %d \"ok\" end=true\n", 2*i+1, 2*i+1)
	}
	if got := l.b.String(); got != want {
		t.Errorf("events\n%s", got)
	}
	if got := p.frames(); got != sent {
		t.Errorf("frames\n%s", got)
	}
	if s.Active() != 0 {
		t.Errorf("%d active", s.Active())
	}
}

func TestClientExchangesWithTrailers(t *testing.T) {
	c, p, l := newClient(t, Options{})
	s := l.open(c)
	request(s, "POST", false, "te", "trailers")
	s.SendData([]byte("hi"), true)
	if got := p.frames(); got != "HEADERS 1 :method=POST :scheme=http :authority=a :path=/ te=trailers end=false\nDATA 1 \"hi\" end=true\n" {
		t.Errorf("frames\n%s", got)
	}
	p.push(p.headers(1, false, ":status", "200"))
	p.push(fr(frameData, 0, 1, "yes"))
	p.push(p.headers(1, true, "grpc-status", "0"))
	if got := l.b.String(); got != "1 head 200 end=false\n1 data yes\n1 trailers grpc-status=\"0\"\n" {
		t.Errorf("events\n%s", got)
	}
	if c.Active() != 0 || !c.CanOpen() {
		t.Errorf("active %d", c.Active())
	}
}
