package weather

import (
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// bodyClients take a gigabyte each: as an HTTP/1.1 body, and on plain TCP.
const bodyClients = 2

// bigBodies takes 64 KB/s for as long as the weather lasts. What is under way is
// what the upstreams could write and the clients haven't had.
func bigBodies(written *atomic.Int64) func(facts, func(), <-chan struct{}) error {
	return func(f facts, up func(), over <-chan struct{}) error { return sipBoth(written, f, up, over) }
}

func sipBoth(written *atomic.Int64, f facts, up func(), over <-chan struct{}) error {
	var wg sync.WaitGroup
	var read atomic.Int64
	for port, ask := range map[int]string{viaHTTP: floodRequest, viaTCP: "x"} {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(subject+port))
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, ask); err != nil {
			return err
		}
		wg.Go(func() { sip(c, &read, over) })
	}
	up()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-over:
			wg.Wait()
			f["read"] = int(read.Load())
			return nil
		case <-look.C:
			f["under way"] = max(f["under way"], int(written.Load()-read.Load()))
		}
	}
}

func sip(c io.Reader, read *atomic.Int64, over <-chan struct{}) {
	buf := make([]byte, 6400)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		n, err := io.ReadFull(c, buf)
		read.Add(int64(n))
		if err != nil {
			return
		}
	}
}
