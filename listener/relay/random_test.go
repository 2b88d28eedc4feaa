package relay

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/tcpproxy"
)

// Connections of random sizes end in random ways, half-closed, closed, reset,
// while scrapes go on: the counters add up to exactly what the records say, and
// what a peer was sent whole it got whole.
func TestCountersAddUpToTheRecords(t *testing.T) {
	w := &telemetry.Registry{}
	r, at := serve(t, &config.TCPProxy{StatPrefix: "t", IdleTimeout: time.Minute, AccessLogOnStart: true, AccessLogOnConnected: true, FlushAccessLogInterval: 5 * time.Millisecond}, nil, echo(t))
	w.Register(r.post, r.set)
	gather := func() map[string]uint64 {
		got := map[string]uint64{}
		for _, m := range w.Gather(context.Background()) {
			got[m.Name] = m.Value
		}
		return got
	}
	const conns = 90 // the cluster allows 100
	var wg sync.WaitGroup
	var over atomic.Bool
	scraped := make(chan struct{})
	go func() {
		defer close(scraped)
		last := uint64(0)
		for !over.Load() {
			now := gather()["tcp.t.downstream_cx_rx_bytes_total"]
			if now < last || now > 1<<40 {
				t.Errorf("received bytes went from %d to %d", last, now)
			}
			last = now
			time.Sleep(2 * time.Millisecond)
		}
	}()
	for i := range conns {
		c := dial(t, at)
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 7))
			size := rnd.IntN([]int{10, 100 << 10, 3 << 20}[rnd.IntN(3)])
			sent := make(chan struct{})
			end := rnd.IntN(4)
			go func() {
				defer close(sent)
				c.Write(make([]byte, size))
				if end == 0 {
					c.CloseWrite()
				}
			}()
			switch want := int64(size); end {
			case 0: // half-close: everything comes back
				if n, err := io.Copy(io.Discard, c); n != want || err != nil {
					t.Errorf("%d of %d bytes came back: %v", n, want, err)
				}
			case 1: // close after a part
				io.CopyN(io.Discard, c, want/2)
			case 2: // reset after a part
				io.CopyN(io.Discard, c, want/2)
				c.SetLinger(0)
			default: // all, then close
				if n, err := io.CopyN(io.Discard, c, want); err != nil {
					t.Errorf("%d of %d bytes came back: %v", n, want, err)
				}
			}
			c.Close()
			<-sent
		})
	}
	wg.Wait()
	ended := func() (n int, rx, tx, urx, utx uint64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, x := range r.records {
			if x.Log == tcpproxy.AtEnd {
				n++
				rx, tx, urx, utx = rx+x.Received, tx+x.Sent, urx+x.UpstreamReceived, utx+x.UpstreamSent
			}
		}
		return
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if n, _, _, _, _ := ended(); n == conns {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d of %d connections ended", n, conns)
		}
	}
	over.Store(true)
	<-scraped
	_, rx, tx, urx, utx := ended()
	got := gather()
	for name, want := range map[string]uint64{"tcp.t.downstream_cx_rx_bytes_total": rx, "tcp.t.downstream_cx_tx_bytes_total": tx, "tcp.t.downstream_cx_total": conns,
		"cluster.c.upstream_cx_rx_bytes_total": urx, "cluster.c.upstream_cx_tx_bytes_total": utx,
		"cluster.c.upstream_cx_active": 0, "cluster.c.upstream_rq_active": 0, "cluster.c.upstream_cx_total": conns} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
}
