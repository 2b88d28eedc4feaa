package h1

import (
	"testing"

	"sluice/internal/httpmsg"
)

// chaos is a user of an engine that does in each call what the next byte of a
// script says, within the contract: a stream is left alone after its end.
type chaos struct {
	script []byte
	s      httpmsg.Stream
	over   bool
	server *Server
	client *Client
}

func (c *chaos) OnStream(s httpmsg.Stream) httpmsg.Receiver {
	c.s, c.over = s, false
	return c
}
func (c *chaos) OnGone()                     { c.over = true }
func (c *chaos) OnHead(*httpmsg.Head, bool)  { c.act() }
func (c *chaos) OnData([]byte, bool)         { c.act() }
func (c *chaos) OnTrailers(*httpmsg.Head)    { c.act() }
func (c *chaos) OnReset(httpmsg.ResetReason) { c.over = true; c.act() }
func (c *chaos) OnDrain()                    { c.act() }

func (c *chaos) act() {
	if len(c.script) == 0 {
		return
	}
	op := c.script[0]
	c.script = c.script[1:]
	if c.client != nil && c.client.Reusable() {
		c.s, c.over = c.client.Open(c), false
	}
	if c.s == nil || c.over {
		return
	}
	var h httpmsg.Head
	h.Status = 200
	h.SetMethod([]byte("POST"))
	h.SetPath([]byte("/"))
	h.SetAuthority([]byte("a"))
	switch op & 0xf {
	case 0:
		c.s.SendHead(&h, false)
	case 1:
		c.over = true
		c.s.SendHead(&h, true)
	case 2:
		h.AddString(httpmsg.ContentLength, "3")
		c.s.SendHead(&h, false)
	case 3:
		c.s.SendData([]byte("abc"), false)
	case 4:
		c.over = true
		c.s.SendHead(&h, false)
		c.s.SendData([]byte("abc"), true)
	case 5:
		c.over = true
		c.s.SendTrailers(&h)
	case 6:
		c.over = true
		c.s.Reset(httpmsg.ResetReason{})
	case 7:
		c.s.Pause()
	case 8:
		c.s.Resume()
	case 9:
		h.Status = 101
		h.AddString(httpmsg.Upgrade, "x")
		h.AddString(httpmsg.Connection, "upgrade")
		c.s.SendHead(&h, false)
	case 10:
		if c.server != nil {
			c.server.Drain()
		} else {
			c.client.Drain()
		}
	case 11:
		if c.server != nil {
			c.server.Fail(httpmsg.ResetReason{Kind: httpmsg.ResetTimeout, Status: 408})
		}
	default:
		c.act()
	}
}

func runChaos(t *testing.T, in, script []byte, cut int, server bool) {
	w, c := &wire{}, &chaos{script: script}
	pool := &httpmsg.Pool{}
	o := Options{Pool: pool, EnableTrailers: true, AcceptHTTP10: true}
	var feed func([]byte) (int, error)
	var closed func(error)
	var flushed, eof func()
	if server {
		s := NewServer(w, c, &o)
		c.server, feed, closed, flushed, eof = s, s.Feed, s.Closed, s.Flushed, s.EOF
	} else {
		cl := NewClient(w, &o)
		c.client, feed, closed, flushed, eof = cl, cl.Feed, cl.Closed, cl.Flushed, cl.EOF
		c.act()
		c.act()
	}
	d := &driver{w: w, feed: feed}
	cut = min(cut, len(in))
	d.push(string(in[:cut]))
	w.pending = httpmsg.HighWater + 1
	c.act()
	d.push(string(in[cut:]))
	c.act()
	w.pending = 0
	flushed()
	d.turn()
	if cut%2 == 0 {
		eof()
	}
	c.act()
	closed(nil)
	if a, b := pool.Head(), pool.Head(); a == b {
		t.Fatal("a head is in the pool twice")
	}
}

// FuzzChaos feeds broken and good messages to engines whose users act at random.
func FuzzChaos(f *testing.F) {
	for i, in := range requests {
		f.Add([]byte(in), []byte("\x00\x03\x04\x09\x03\x08\x07\x05\x06\x01\x04\x08"), uint16(7*i), true)
	}
	for i, in := range responses {
		f.Add([]byte(in+in), []byte("\x00\x04\x01\x07\x08\x01\x02\x03\x05\x06\x0a"), uint16(7*i), false)
	}
	f.Fuzz(func(t *testing.T, in, script []byte, cut uint16, server bool) {
		if len(script) > 200 {
			return
		}
		runChaos(t, in, script, int(cut), server)
	})
}
