package pool

import (
	"context"
	"net"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/h1"
	"sluice/internal/httpmsg"
	"sluice/internal/worker"
)

// user is told of its stream and nothing else.
type user struct {
	httpmsg.Receiver
	got chan<- bool
}

func (u *user) OnStream(httpmsg.Stream, *Conn) { u.got <- true }
func (u *user) OnNoStream(Failure)             { u.got <- false }
func (u *user) OnReset(httpmsg.ResetReason)    {}

// newPool is a pool to a server that takes every connection, and its worker.
func newPool(t *testing.T) (*Pool, *worker.Worker) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; l.Close() })
	var breakers [2]Breakers
	for i := range breakers {
		breakers[i].Configure(&config.Breaker{Connections: config.Unlimited, Pending: config.Unlimited, Requests: config.Unlimited,
			Retries: config.Unlimited, Pools: config.Unlimited, PerHostConnections: config.Unlimited})
	}
	id := uint64(0)
	c := &Cluster{Worker: w, Config: &config.Cluster{ClusterOptions: &config.ClusterOptions{}}, Breakers: &breakers, Stats: make([]uint64, len(Stats())), H1: &h1.Options{Counters: &h1.Counters{}},
		NextID: func() uint64 { id++; return id }}
	target := Target{Addr: l.Addr().(*net.TCPAddr).AddrPort()}
	return New(c, Key{}, target, nil, func() int { return 0 }), w
}

func TestManyConnectsAreSpreadOverTurns(t *testing.T) {
	const n = 50
	p, w := newPool(t)
	got := make(chan bool, n)
	requests := make([]Request, n)
	at := make(chan int, 1)
	w.Post(func() {
		for !w.Late() {
		}
		for i := range requests {
			requests[i].User = &user{got: got}
			p.Acquire(&requests[i])
		}
		at <- p.Conns()
	})
	if n := <-at; n != 0 {
		t.Errorf("%d connects in a turn whose time is over", n)
	}
	for i := range requests {
		select {
		case ok := <-got:
			if !ok {
				t.Fatal("a request had no stream")
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%d requests of %d have streams", i, n)
		}
	}
}
