package h1

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"sluice/internal/httpmsg"
)

// socket drives a server over a net.Conn as a worker does.
type socket struct {
	c      net.Conn
	out    []byte
	paused bool
	shut   bool
}

func (s *socket) Grab() []byte      { return s.out }
func (s *socket) Put(b []byte)      { s.out = b }
func (s *socket) Pending() int      { return len(s.out) }
func (s *socket) PauseRead()        { s.paused = true }
func (s *socket) ResumeRead()       { s.paused = false }
func (s *socket) CloseWhenFlushed() { s.shut = true }
func (s *socket) Abort()            { s.shut = true }

func (s *socket) run(e *Server) {
	defer s.c.Close()
	buf := make([]byte, 0, 64<<10)
	for !s.shut {
		n, err := s.c.Read(buf[len(buf):cap(buf)])
		if err != nil {
			e.EOF()
			return
		}
		buf = buf[:len(buf)+n]
		for len(buf) > 0 && !s.paused {
			k, _ := e.Feed(buf)
			if buf = buf[:copy(buf, buf[k:])]; k == 0 {
				break
			}
		}
		if len(s.out) > 0 {
			s.c.Write(s.out)
			s.out = s.out[:0]
			e.Flushed()
		}
	}
}

// echo answers with the request's content in chunks.
type echo struct{ s httpmsg.Stream }

func (e *echo) OnStream(s httpmsg.Stream) httpmsg.Receiver { e.s = s; return e }
func (e *echo) OnGone()                                    {}
func (e *echo) OnHead(h *httpmsg.Head, end bool) {
	var r httpmsg.Head
	r.Status = 200
	r.Add([]byte("x-path"), h.Path())
	e.s.SendHead(&r, end)
}
func (e *echo) OnData(p []byte, end bool)   { e.s.SendData(p, end) }
func (e *echo) OnTrailers(t *httpmsg.Head)  { e.s.SendTrailers(t) }
func (e *echo) OnReset(httpmsg.ResetReason) {}
func (e *echo) OnDrain()                    {}

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
			s := &socket{c: c}
			wg.Go(func() { s.run(NewServer(s, &echo{}, &Options{EnableTrailers: true})) })
		}
	})
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	for i := range 60 {
		body := bytes.Repeat([]byte{byte(i)}, i*3000)
		var in io.Reader = bytes.NewReader(body)
		if i%2 == 0 {
			in = io.MultiReader(in) // length unknown: chunks
		}
		req, err := http.NewRequest("POST", "http://"+l.Addr().String()+"/p?q", in)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			req.Trailer = http.Header{"X-T": {"v"}}
		}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || !bytes.Equal(got, body) || r.Header.Get("X-Path") != "/p?q" || i%2 == 0 && r.Trailer.Get("X-T") != "v" {
			t.Errorf("call %d: %d of %d bytes, %v, %v, %v", i, len(got), len(body), r.Header, r.Trailer, err)
		}
	}
	client.CloseIdleConnections()
	l.Close()
	wg.Wait()
}
