package export

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/upstream"
	"sluice/upstream/call"
)

// rig is an Exporter with a collector that keeps what it gets, and answers once
// it is let go.
type rig struct {
	t        *testing.T
	post     func(func())
	exporter *Exporter
	got      chan string
	let      chan struct{}
	told     chan [2]int // outcome and number
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, got: make(chan string, 100), let: make(chan struct{}, 100), told: make(chan [2]int, 5000)}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		r.got <- q.URL.Path + " " + string(b)
		<-r.let
	}))
	w, err := worker.New(worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clusters := upstream.New(upstream.Options{Workers: []*worker.Worker{w}, Sets: []*telemetry.Set{telemetry.NewSet()}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	wg.Go(func() { clusters.Run(ctx) })
	t.Cleanup(func() { close(r.let); cancel(); wg.Wait(); collector.Close() })
	c := &config.Cluster{Meta: config.Meta{Name: "c"}, ClusterOptions: &config.ClusterOptions{ConnectTimeout: time.Second}}
	for i := range c.Breakers {
		c.Breakers[i] = config.Breaker{Connections: 100, Pending: 100, Requests: 100, Retries: 3, Pools: config.Unlimited, PerHostConnections: config.Unlimited}
	}
	at := netip.MustParseAddrPort(collector.Listener.Addr().String())
	c.Load = &config.LoadAssignment{Localities: []config.Locality{{Endpoints: []config.Endpoint{{Address: config.Address{IP: at}, Weight: 1}}}}}
	if err := clusters.Apply(ctx, &config.Snapshot{Clusters: map[string]*config.Cluster{"c": c}}); err != nil {
		t.Fatal(err)
	}
	r.post = w.Post
	r.exporter = New(&call.Caller{Worker: w, Clusters: clusters.Local(0), Random: rand.NewPCG(1, 2)})
	return r
}

// to gives a destination at a cluster.
func (r *rig) to(cluster string) *Destination {
	return &Destination{Interval: time.Hour,
		Request: func(entries []byte, n int) *call.Request {
			return &call.Request{Cluster: cluster, Body: bytes.Clone(entries), Head: func(h *httpmsg.Head) {
				h.SetMethod([]byte("POST"))
				h.SetPath([]byte("/" + strconv.Itoa(n)))
				h.SetScheme([]byte("http"))
				h.SetAuthority([]byte("c"))
			}}
		},
		Told: func(_ *worker.Worker, n int, o Outcome) { r.told <- [2]int{int(o), n} }}
}

func (r *rig) add(to *Destination, entries ...string) {
	r.post(func() {
		for _, e := range entries {
			r.exporter.Add(to, []byte(e))
		}
	})
}

func (r *rig) wants(request string) {
	r.t.Helper()
	select {
	case got := <-r.got:
		if got != request {
			r.t.Errorf("sent %q, want %q", got, request)
		}
	case <-time.After(5 * time.Second):
		r.t.Fatalf("%q was not sent", request)
	}
}

func (r *rig) tells(o Outcome, n int) {
	r.t.Helper()
	select {
	case got := <-r.told:
		if got != [2]int{int(o), n} {
			r.t.Errorf("told %v, want %v", got, [2]int{int(o), n})
		}
	case <-time.After(5 * time.Second):
		r.t.Fatalf("nobody told of %d", n)
	}
}

func TestABatchGoesWhenItIsFullOrOld(t *testing.T) {
	r := start(t)
	bySize, byNumber, byTime := r.to("c"), r.to("c"), r.to("c")
	bySize.Bytes, byNumber.Entries, byTime.Interval = 6, 3, time.Millisecond
	r.add(bySize, "aaa", "bbb", "ccc")
	r.wants("/2 aaabbb")
	r.add(byNumber, "a", "b", "c", "d")
	r.wants("/3 abc")
	r.add(byTime, "x", "y")
	r.wants("/2 xy")
	r.let <- struct{}{}
	select {
	case got := <-r.told:
		if got[0] != int(Delivered) {
			t.Errorf("told %v", got)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("nobody told")
	}
}

func TestMoreThanFourCallsWait(t *testing.T) {
	r := start(t)
	to := r.to("c")
	to.Entries = 1
	r.add(to, "1", "2", "3", "4", "5", "6")
	for range flights {
		<-r.got
	}
	select {
	case got := <-r.got:
		t.Fatalf("sent %q with four calls under way", got)
	case <-time.After(20 * time.Millisecond):
	}
	r.let <- struct{}{}
	r.wants("/2 56")
}

func TestWhatIsLostIsTold(t *testing.T) {
	r := start(t)
	nowhere := r.to("none")
	nowhere.Entries = 2
	r.add(nowhere, "a", "b")
	r.tells(Failed, 2)
	partly := r.to("c")
	partly.Entries, partly.Lost = 3, func(*call.Answer, int) int { return 1 }
	r.add(partly, "a", "b", "c")
	r.let <- struct{}{}
	r.tells(Delivered, 2)
	r.tells(Failed, 1)
	greedy := r.to("c")
	r.add(greedy, strings.Repeat("x", waiting), "y")
	r.tells(Dropped, 1)
}

func TestAnIdleDestinationIsForgotten(t *testing.T) {
	r := start(t)
	to := r.to("c")
	to.Entries = 1
	r.add(to, "a")
	r.let <- struct{}{}
	r.tells(Delivered, 1)
	left := make(chan int)
	r.post(func() { left <- len(r.exporter.batches) })
	if n := <-left; n != 0 {
		t.Errorf("%d batches left", n)
	}
}

func TestAFlushEndsWhenAllIsAnswered(t *testing.T) {
	r := start(t)
	done := make(chan struct{}, 1)
	flush := func() { r.exporter.Flush(func() { done <- struct{}{} }) }
	r.post(flush)
	<-done
	r.add(r.to("c"), "a", "b")
	r.post(flush)
	r.wants("/2 ab")
	select {
	case <-done:
		t.Fatal("done before the answer")
	case <-time.After(10 * time.Millisecond):
	}
	r.let <- struct{}{}
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("never done")
	}
}
