package xdsclient

import (
	"fmt"
	"runtime"
	"testing"

	"sluice/internal/config"
	"sluice/xdsclient/translate"
)

// loaded is a client that is live with n clusters and their endpoints.
func loaded(tb testing.TB, n int) *Client {
	tb.Helper()
	c := New(Options{ADS: &config.ADS{Delta: true, Cluster: "x", CDS: true}, Translate: translate.Default()})
	c.answer(bigClusters(tb, n))
	c.answer(bigEndpoints(tb, n, "1", 80))
	if !c.facts.Live {
		tb.Fatalf("not live: %+v", c.facts)
	}
	return c
}

// allocated gives the bytes that f allocates, on average over n calls.
func allocated(n int, f func(i int)) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		f(i)
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
}

func TestAnEndpointChangeCostsTheSameAmongManyClusters(t *testing.T) {
	cost := func(n int) uint64 {
		c := loaded(t, n)
		var pushes []*answer
		for i := range 50 {
			pushes = append(pushes, bigEndpoints(t, 1, fmt.Sprint("v", i), uint32(81+i%2)))
		}
		return allocated(len(pushes), func(i int) { c.answer(pushes[i]) })
	}
	few, many := cost(10), cost(5000)
	t.Logf("an endpoint change allocates %d bytes among 10 clusters, %d among 5000", few, many)
	if many > few+few/2+2048 {
		t.Errorf("%d bytes among 5000 clusters, %d among 10", many, few)
	}
}
