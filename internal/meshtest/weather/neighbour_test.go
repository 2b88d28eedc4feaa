package weather

import (
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	question = "GET /quick HTTP/1.1\r\nhost: a\r\n\r\n"
	answer   = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

	friends  = 4                     // connections of a neighbour
	interval = 12 * time.Millisecond // between the requests of one
)

// neighbour is an open loop through one proxy: requests have intended times, and
// latencies count from there.
type neighbour struct {
	mu      sync.Mutex
	took    []time.Duration
	failure error
}

// visit goes on until ctx ends.
func visit(ctx context.Context, wg *sync.WaitGroup, base int) *neighbour {
	n := &neighbour{}
	for i := range friends {
		wg.Go(func() {
			if err := n.talk(ctx, base, time.Duration(i)*interval/friends); err != nil {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.failure = err
			}
		})
	}
	return n
}

func (n *neighbour) talk(ctx context.Context, base int, shift time.Duration) error {
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(base+viaHTTP))
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 4096)
	for due := time.Now().Add(shift); ctx.Err() == nil; due = due.Add(interval) {
		time.Sleep(time.Until(due))
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(c, question); err != nil {
			return err
		}
		if err := readAnswer(c, buf); err != nil {
			return err
		}
		n.mu.Lock()
		n.took = append(n.took, time.Since(due))
		n.mu.Unlock()
	}
	return nil
}

// readAnswer reads until the body "ok" ends what came.
func readAnswer(c net.Conn, buf []byte) error {
	for n := 0; ; {
		k, err := c.Read(buf[n:])
		if err != nil {
			return err
		}
		if n += k; n > 4 && string(buf[n-6:n]) == "\r\n\r\nok" {
			return nil
		}
	}
}

// p99 is of what was measured since the last call.
func (n *neighbour) p99(t *testing.T) time.Duration {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failure != nil {
		t.Errorf("a neighbour's request failed: %v", n.failure)
	}
	if len(n.took) == 0 {
		t.Error("a neighbour had no answer at all")
		return time.Hour
	}
	slices.Sort(n.took)
	v := n.took[len(n.took)*99/100]
	n.took = n.took[:0]
	return v
}

// serveQuick is the neighbours' upstream.
func serveQuick(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(quickPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerQuick(c) // ends with the connection
		}
	}()
}

// answerQuick takes what it reads for one request: its peers don't pipeline.
func answerQuick(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}
