package relay

import (
	"io"
	"net"
	"testing"
	"time"

	"sluice/internal/config"
)

// The idle timeout counts from the last byte that moved, also when that was in the
// kernel or out of a buffer and nobody was called: an upload that a slow server
// took until just now isn't idle, and its answer comes.
func TestIdleTimeoutCountsFromTheLastByteThatMoved(t *testing.T) {
	const idle, size, pieces = 800 * time.Millisecond, 32 << 20, 40
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		begin, b := time.Now(), make([]byte, size/pieces)
		for k := range pieces {
			time.Sleep(time.Until(begin.Add(idle * 9 / 10 / pieces * time.Duration(k))))
			if n, err := io.ReadFull(c, b); err != nil {
				t.Errorf("piece %d: %d bytes and %v", k, n, err)
				return
			}
		}
		time.Sleep(idle / 2)
		io.WriteString(c, "taken")
	}()
	_, at := serve(t, &config.TCPProxy{StatPrefix: "t", IdleTimeout: idle}, nil, l.Addr().String())
	c := dial(t, at)
	begin := time.Now()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	sent := time.Since(begin)
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Errorf("no answer: %v after %s; all was sent after %s", err, time.Since(begin), sent)
	}
}
