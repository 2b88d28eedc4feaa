package weather

import (
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const burst = 5000

// handshakes opens all connections first; then every client shakes hands at
// once, asks one thing and keeps its connection.
func handshakes(f facts, up func(), over <-chan struct{}) error {
	config, err := clientTLS()
	if err != nil {
		return err
	}
	conns := make([]io.Closer, burst)
	for i := range conns {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(subject+viaTLS))
		if err != nil {
			return err
		}
		conns[i] = c
	}
	defer closeAll(conns)
	var wg sync.WaitGroup
	var done, failed atomic.Int64
	began := time.Now()
	for _, c := range conns {
		wg.Go(func() {
			if err := greet(tls.Client(c.(net.Conn), config)); err != nil {
				failed.Add(1)
				return
			}
			done.Add(1)
		})
	}
	wg.Wait()
	f["milliseconds"], f["handshakes"], f["failed"] = int(time.Since(began).Milliseconds()), int(done.Load()), int(failed.Load())
	up()
	<-over
	return nil
}

func greet(c *tls.Conn) error {
	if err := c.Handshake(); err != nil {
		return err
	}
	if _, err := io.WriteString(c, question); err != nil {
		return err
	}
	return readAnswer(c, make([]byte, 512))
}
