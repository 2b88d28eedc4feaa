package h2

import (
	"testing"
	"unsafe"

	"sluice/internal/httpmsg"
)

// answer is a handler that answers each call at once with a head, a message and
// trailers; ask is a receiver that counts ends.
type answer struct {
	head, trailers httpmsg.Head
	body           []byte
	free           []*call
}

type call struct {
	a *answer
	s httpmsg.Stream
}

func (a *answer) OnStream(s httpmsg.Stream) httpmsg.Receiver {
	if n := len(a.free); n > 0 {
		c := a.free[n-1]
		a.free = a.free[:n-1]
		c.s = s
		return c
	}
	return &call{a, s}
}
func (a *answer) OnGone() {}
func (c *call) OnHead(_ *httpmsg.Head, end bool) {
	if end {
		c.send()
	}
}
func (c *call) OnData(_ []byte, end bool) {
	if end {
		c.send()
	}
}
func (c *call) OnTrailers(*httpmsg.Head)    {}
func (c *call) OnReset(httpmsg.ResetReason) {}
func (c *call) OnDrain()                    {}
func (c *call) send() {
	c.s.SendHead(&c.a.head, false)
	c.s.SendData(c.a.body, false)
	c.s.SendTrailers(&c.a.trailers)
	c.a.free = append(c.a.free, c)
}

type ask struct{ ends int }

func (a *ask) OnHead(_ *httpmsg.Head, end bool) {
	if end {
		a.ends++
	}
}
func (a *ask) OnData(_ []byte, end bool) {
	if end {
		a.ends++
	}
}
func (a *ask) OnTrailers(*httpmsg.Head)    { a.ends++ }
func (a *ask) OnReset(httpmsg.ResetReason) {}
func (a *ask) OnDrain()                    {}

// unary gives a function that runs one gRPC call from a client engine to a
// server engine.
func unary(tb testing.TB) func() {
	cw, sw := &wire{}, &wire{}
	a := &answer{body: make([]byte, 200)}
	a.head.Status = 200
	a.head.Add([]byte("content-type"), []byte("application/grpc"))
	a.trailers.Add([]byte("grpc-status"), []byte("0"))
	a.trailers.Add([]byte("grpc-message"), nil)
	s := NewServer(sw, a, (&Options{}).WithDefaults(false))
	c := NewClient(cw, (&Options{}).WithDefaults(true))
	var h httpmsg.Head
	h.SetMethod([]byte("POST"))
	h.SetPath([]byte("/package.Service/Method"))
	h.SetAuthority([]byte("svc.default.svc.cluster.local:8080"))
	for _, f := range [][2]string{{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", "grpc-go/1.80.0"}, {"grpc-timeout", "1S"}} {
		h.Add([]byte(f[0]), []byte(f[1]))
	}
	body, r := make([]byte, 205), &ask{}
	move := func(from *wire, feed func([]byte) (int, error)) {
		if n, err := feed(from.out); n != len(from.out) || err != nil {
			tb.Fatal(n, err)
		}
		from.out = from.out[:0]
	}
	move(cw, s.Feed)
	move(sw, c.Feed)
	return func() {
		ends := r.ends
		st := c.Open(r)
		st.SendHead(&h, false)
		st.SendData(body, true)
		move(cw, s.Feed)
		s.Flushed()
		move(sw, c.Feed)
		c.Flushed()
		if r.ends != ends+1 || c.Active() != 0 || s.Active() != 0 {
			tb.Fatal("exchange did not end")
		}
	}
}

func TestExchangesDoNotAllocate(t *testing.T) {
	run := unary(t)
	for range 10 {
		run()
	}
	if n := testing.AllocsPerRun(200, run); n != 0 {
		t.Errorf("%v allocations an exchange", n)
	}
}

func TestEnginesAreModest(t *testing.T) {
	if s, st := unsafe.Sizeof(Server{}), unsafe.Sizeof(stream{}); s > 1024 || st > 256 {
		t.Errorf("server %d, stream %d bytes", s, st)
	}
}

// BenchmarkUnary is one call through both a client and a server engine: what a
// proxy pays for one exchange.
func BenchmarkUnary(b *testing.B) {
	run := unary(b)
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}
