package h2

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/httpmsg"
)

// socket drives an engine over a net.Conn as a worker does: one lock stands for
// the worker's one goroutine, and writing never stops reading.
type socket struct {
	mu     sync.Mutex
	some   sync.Cond
	c      net.Conn
	out    []byte
	moving int // bytes being written
	shut   bool
}

func newSocket(c net.Conn) *socket {
	s := &socket{c: c}
	s.some.L = &s.mu
	return s
}

func (s *socket) Grab() []byte      { return s.out }
func (s *socket) Put(b []byte)      { s.out = b; s.some.Signal() }
func (s *socket) Pending() int      { return len(s.out) + s.moving }
func (s *socket) PauseRead()        {}
func (s *socket) ResumeRead()       {}
func (s *socket) CloseWhenFlushed() { s.shut = true; s.some.Signal() }
func (s *socket) Abort()            { s.CloseWhenFlushed() }

// read feeds the engine until the end.
func (s *socket) read(e *engine) {
	buf := make([]byte, 0, 64<<10)
	for {
		n, err := s.c.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		s.mu.Lock()
		if err != nil {
			e.EOF()
		} else if k, _ := e.Feed(buf); true {
			buf = buf[:copy(buf, buf[k:])]
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// write sends what there is until the engine has closed.
func (s *socket) write(e *engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.c.Close()
	for {
		for len(s.out) == 0 {
			if s.shut {
				return
			}
			s.some.Wait()
		}
		b := s.out
		s.out, s.moving = nil, len(b)
		s.mu.Unlock()
		s.c.Write(b)
		s.mu.Lock()
		s.moving = 0
		e.Flushed()
	}
}

// echo answers with the request's content, and its path in a trailer.
type echo struct{}

type echoCall struct {
	s        httpmsg.Stream
	trailers httpmsg.Head
}

func (echo) OnStream(s httpmsg.Stream) httpmsg.Receiver { return &echoCall{s: s} }
func (echo) OnGone()                                    {}
func (c *echoCall) OnHead(h *httpmsg.Head, end bool) {
	c.trailers.Add([]byte("x-path"), h.Path())
	var r httpmsg.Head
	r.Status = 200
	r.Add([]byte("trailer"), []byte("x-path"))
	c.s.SendHead(&r, false)
	if end {
		c.s.SendTrailers(&c.trailers)
	}
}
func (c *echoCall) OnData(p []byte, end bool) {
	c.s.SendData(p, false)
	if c.s.Buffered() > httpmsg.HighWater {
		c.s.Pause()
	}
	if end {
		c.s.SendTrailers(&c.trailers)
	}
}
func (c *echoCall) OnTrailers(*httpmsg.Head)    { c.s.SendTrailers(&c.trailers) }
func (c *echoCall) OnReset(httpmsg.ResetReason) {}
func (c *echoCall) OnDrain()                    { c.s.Resume() }

func TestStandardClientTalksToServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s := newSocket(c)
			e := NewServer(s, echo{}, &Options{})
			wg.Go(func() { s.read(&e.engine) })
			wg.Go(func() { s.write(&e.engine) })
		}
	})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: tr, Timeout: 20 * time.Second}
	var calls sync.WaitGroup
	for i := range 40 {
		calls.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, i*20000)
			r, err := client.Post("http://"+l.Addr().String()+"/p", "text/plain", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			got, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Equal(got, body) || r.Trailer.Get("x-path") != "/p" {
				t.Errorf("call %d: %d of %d bytes, trailers %v, %v", i, len(got), len(body), r.Trailer, err)
			}
		})
	}
	calls.Wait()
	tr.CloseIdleConnections()
	l.Close()
	wg.Wait()
}

// sink collects a response.
type sink struct {
	status  int
	body    bytes.Buffer
	trailer string
	reset   httpmsg.ResetReason
	done    chan struct{}
}

func (s *sink) OnHead(h *httpmsg.Head, end bool) {
	s.status = h.Status
	if end {
		close(s.done)
	}
}
func (s *sink) OnData(p []byte, end bool) {
	s.body.Write(p)
	if end {
		close(s.done)
	}
}
func (s *sink) OnTrailers(h *httpmsg.Head) {
	v, _ := h.Value("x-sum")
	s.trailer = string(v)
	close(s.done)
}
func (s *sink) OnReset(r httpmsg.ResetReason) { s.reset = r; close(s.done) }
func (s *sink) OnDrain()                      {}

func TestClientTalksToStandardServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.Copy(w, r.Body)
		w.Header().Set("X-Sum", "done")
	})}
	srv.Protocols.SetUnencryptedHTTP2(true)
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(l) })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := newSocket(c)
	e := NewClient(s, &Options{})
	wg.Go(func() { s.read(&e.engine) })
	wg.Go(func() { s.write(&e.engine) })
	var sinks []*sink
	content := strings.Repeat("0123456789", 30000)
	for range 20 {
		k := &sink{done: make(chan struct{})}
		sinks = append(sinks, k)
		s.mu.Lock()
		st := e.Open(k)
		request(st, "POST", false)
		st.SendData([]byte(content), true)
		s.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i, k := range sinks {
		select {
		case <-k.done:
		case <-ctx.Done():
			t.Fatalf("call %d has %d bytes", i, k.body.Len())
		}
		if k.status != 200 || k.body.String() != content || k.trailer != "done" {
			t.Errorf("call %d: %d, %d bytes, trailer %q, %+v", i, k.status, k.body.Len(), k.trailer, k.reset)
		}
	}
	s.mu.Lock()
	e.Drain()
	s.mu.Unlock()
	srv.Close()
	wg.Wait()
}
