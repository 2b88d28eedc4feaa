package h2

import (
	"testing"

	"sluice/internal/httpmsg"
)

// chaos is a handler that does in each call what the next byte of a script says:
// it looks for calls that an engine doesn't survive from inside its own.
type chaos struct {
	script []byte
	server *Server
	client *Client
	open   []*chaosCall
}

type chaosCall struct {
	c    *chaos
	s    httpmsg.Stream
	over bool
}

func (c *chaos) OnStream(s httpmsg.Stream) httpmsg.Receiver {
	k := &chaosCall{c: c, s: s}
	c.open = append(c.open, k)
	return k
}
func (c *chaos) OnGone() {}

func (k *chaosCall) OnHead(*httpmsg.Head, bool)  { k.c.act() }
func (k *chaosCall) OnData([]byte, bool)         { k.c.act() }
func (k *chaosCall) OnTrailers(*httpmsg.Head)    { k.c.act() }
func (k *chaosCall) OnReset(httpmsg.ResetReason) { k.over = true; k.c.act() }
func (k *chaosCall) OnDrain()                    { k.c.act() }

// act does the next thing to one of the open calls, within the contract: a
// stream is left alone after its end.
func (c *chaos) act() {
	if len(c.script) == 0 {
		return
	}
	op := c.script[0]
	c.script = c.script[1:]
	if c.client != nil && op&0x80 != 0 && c.client.CanOpen() {
		k := &chaosCall{c: c}
		k.s = c.client.Open(k)
		c.open = append(c.open, k)
	}
	if len(c.open) == 0 {
		return
	}
	k := c.open[int(op>>4)%len(c.open)]
	if k.over {
		return
	}
	var h httpmsg.Head
	h.Status = 200
	h.SetMethod([]byte("POST"))
	h.SetPath([]byte("/"))
	h.SetAuthority([]byte("a"))
	switch op & 0xf {
	case 0, 1:
		k.s.SendHead(&h, false)
	case 2:
		k.over = c.server != nil
		k.s.SendHead(&h, true)
	case 3, 4:
		k.s.SendData(make([]byte, 70000), false)
	case 5:
		k.s.SendData([]byte("x"), false)
	case 6:
		k.over = true
		k.s.SendHead(&h, false)
		k.s.SendData(make([]byte, 100), true)
	case 7:
		k.over = true
		k.s.SendTrailers(&h)
	case 8:
		k.over = true
		k.s.Reset(httpmsg.ResetReason{})
	case 9:
		k.s.Pause()
	case 10:
		k.s.Resume()
	case 11:
		if c.server != nil {
			c.server.GoAway()
		} else {
			c.client.GoAway()
		}
	case 12:
		if c.server != nil {
			c.server.Drain()
		} else {
			c.client.Drain()
		}
	default:
		c.act()
	}
}

func runChaos(t *testing.T, in, script []byte, cut int, server bool) {
	w, pool := &wire{}, &Pool{}
	c := &chaos{script: script}
	var e *engine
	if server {
		c.server = NewServer(w, c, &Options{Pool: pool, StreamErrorOnInvalid: true})
		e = &c.server.engine
		in = append([]byte(preface), in...)
	} else {
		c.client = NewClient(w, &Options{Pool: pool})
		e = &c.client.engine
		c.act()
		c.act()
	}
	p := &peer{w: w, feed: e.Feed}
	cut = min(cut, len(in))
	p.push(in[:cut])
	w.stuck = highOutput
	p.push(in[cut:])
	c.act()
	w.stuck = 0
	e.Flushed()
	c.act()
	e.Closed(nil)
	if e.active != 0 {
		t.Fatalf("%d streams left", e.active)
	}
	a, b := pool.Head(), pool.Head()
	if a == b {
		t.Fatal("a head is in the pool twice")
	}
	for st := pool.free; st != nil; st = st.next {
		if st.e != nil || st.paused || st.wait != 0 || len(st.chunks) != 0 {
			t.Fatal("a stream in the pool isn't empty")
		}
	}
}

func TestAnswerThatEndsTheEngineFreesHeadOnce(t *testing.T) {
	pool := &Pool{}
	s, p, l := newServer(t, Options{Pool: pool})
	p.push(p.get(1, false))
	s.GoAway()
	l.onData = nil
	r := l.streams[0]
	ended := false
	l.onTrailers = func() { reply(r, 200, ""); ended = true }
	p.push(p.headers(1, true, "x-t", "v"))
	if !ended || !p.w.closed {
		t.Fatal("not ended")
	}
	if a, b := pool.Head(), pool.Head(); a == b {
		t.Error("a head is in the pool twice")
	}
}

// FuzzChaos feeds broken and good frames to engines whose users act at random.
func FuzzChaos(f *testing.F) {
	client, server := conversations(f)
	for i, in := range client {
		f.Add(in, []byte("\x00\x03\x06\x0b\x18\x07\x13\x02\x0a\x09\x16\x26"), uint16(20*i), true)
	}
	for i, in := range server {
		f.Add(in, []byte("\x80\x80\x83\x06\x18\x07\x13\x92\x0a\x0b\x16\x26"), uint16(20*i), false)
	}
	f.Fuzz(func(t *testing.T, in, script []byte, cut uint16, server bool) {
		if len(script) > 200 {
			return
		}
		runChaos(t, in, script, int(cut), server)
	})
}
