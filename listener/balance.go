package listener

import (
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// balance is Envoy's exact_balance: each connection of a listener goes to the
// worker that has fewest of them. The kernel spreads by a hash of the addresses,
// which of few connections that last may give one worker nearly all.
type balance struct {
	mu   sync.Mutex // held for a look at one number a worker
	open []int      // by worker
}

// pick counts a connection where there are fewest, at the acceptor's if it is among those.
func (b *balance) pick(acceptor int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	least := acceptor
	for i, n := range b.open {
		if n < b.open[least] {
			least = i
		}
	}
	b.open[least]++
	return least
}

func (b *balance) release(at int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[at]--
}

// give hands an accepted socket to another worker's share of this listener. If
// the listener is gone there, so is the connection.
func (a *active) give(to int, dst netip.AddrPort, fd int, peer netip.AddrPort) {
	o, name := a.all.perW[to], a.config.Name
	o.w.Post(func() {
		if x := o.byName[name]; x != nil && x.shared == a.shared {
			x.begin(a, dst, fd, peer)
			return
		}
		a.release(to)
		unix.Close(fd)
	})
}
