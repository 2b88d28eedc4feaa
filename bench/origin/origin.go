// Package origin is the back ends of the benchmark: HTTP/1.1, HTTP/2 and gRPC
// servers, an echo, a source and a sink, each on one epoll loop.
package origin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"sluice/bench/loop"
	"sluice/bench/wire"
)

// Chunk is what source and sink move at a time.
const Chunk = 256 << 10

// Serve runs the back end kind until ctx ends, and prints its address when it
// listens. size is the length of a response's body.
func Serve(ctx context.Context, kind string, listen netip.AddrPort, size int, out io.Writer) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	accept, err := handler(kind, size)
	if err != nil {
		return err
	}
	l, err := loop.New()
	if err != nil {
		return err
	}
	if err := l.Listen(listen, accept); err != nil {
		return err
	}
	fmt.Fprintln(out, listen)
	for ctx.Err() == nil {
		if err := l.Poll(100 * time.Millisecond); err != nil {
			return err
		}
		runtime.Gosched() // for the signal that ends ctx
	}
	return nil
}

func handler(kind string, size int) (func() loop.Handler, error) {
	body := wire.Body(size)
	switch kind {
	case "h1":
		answer := append([]byte("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: "+strconv.Itoa(size)+"\r\n\r\n"), body...)
		return func() loop.Handler { return &h1{answer: answer} }, nil
	case "h2", "grpc", "stream":
		a := newAnswers(kind, body)
		return func() loop.Handler { return &h2{answers: a} }, nil
	case "echo":
		return func() loop.Handler { return echo{} }, nil
	case "source":
		chunk := wire.Body(Chunk)
		return func() loop.Handler { return source{chunk: chunk} }, nil
	case "sink":
		chunk := wire.Body(Chunk)
		return func() loop.Handler { return &sink{chunk: chunk} }, nil
	}
	return nil, fmt.Errorf("unknown back end %q", kind)
}

// end is the part of a handler that has nothing to say about room and ends.
type end struct{}

// Drained implements loop.Handler.
func (end) Drained(*loop.Conn) {}

// Closed implements loop.Handler.
func (end) Closed(*loop.Conn, error) {}

// h1 answers every head with the same bytes; requests have no body.
type h1 struct {
	end
	answer []byte
}

// Feed implements loop.Handler.
func (h *h1) Feed(c *loop.Conn, in []byte) (used int, err error) {
	for {
		i := bytes.Index(in[used:], []byte("\r\n\r\n"))
		if i < 0 {
			return used, nil
		}
		used += i + 4
		c.Out = append(c.Out, h.answer...)
	}
}

type echo struct{ end }

// Feed implements loop.Handler.
func (echo) Feed(c *loop.Conn, in []byte) (int, error) {
	c.Out = append(c.Out, in...)
	return len(in), nil
}

// source writes as fast as the peer reads.
type source struct {
	end
	chunk []byte
}

// Feed implements loop.Handler.
func (source) Feed(_ *loop.Conn, in []byte) (int, error) { return len(in), nil }

// Drained implements loop.Handler.
func (s source) Drained(c *loop.Conn) {
	c.Out = append(c.Out, s.chunk...)
	c.Flush()
	c.WaitRoom()
}

// sink checks what comes against the chunk that is repeated.
type sink struct {
	end
	chunk []byte
	at    int
}

// Feed implements loop.Handler.
func (s *sink) Feed(_ *loop.Conn, in []byte) (int, error) {
	for rest := in; len(rest) > 0; {
		n := min(len(rest), len(s.chunk)-s.at)
		if !bytes.Equal(rest[:n], s.chunk[s.at:s.at+n]) {
			return 0, fmt.Errorf("wrong bytes at %d of a chunk", s.at)
		}
		rest, s.at = rest[n:], (s.at+n)%len(s.chunk)
	}
	return len(in), nil
}
