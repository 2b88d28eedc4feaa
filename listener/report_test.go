package listener

import (
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/listener/downstream"
	"sluice/listener/tcpproxy"
)

func TestConnectionsAreReportedAtTheirStartAndEachInterval(t *testing.T) {
	var mu sync.Mutex
	var reports []uint64
	r := newRig(t, func(o *Options) {
		o.TCP.Interval = func(*downstream.Connection) time.Duration { return 20 * time.Millisecond }
		o.TCP.Report = func(x *tcpproxy.Record) bool {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, x.Received)
			return true
		}
	})
	count := func(want uint64) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return slices.Contains(reports, want) }
	}
	r.apply(listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"})))
	c := r.dial("l")
	waitFor(t, "a report of the beginning", count(0))
	io.WriteString(c, "12345")
	waitFor(t, "a report of the bytes", count(5))
	c.CloseWrite()
	io.Copy(io.Discard, c)
	r.recorded(1)
	mu.Lock()
	n := len(reports)
	mu.Unlock()
	time.Sleep(60 * time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	if len(reports) != n {
		t.Error("a connection that is over was reported")
	}
}
