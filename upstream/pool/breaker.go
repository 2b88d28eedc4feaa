package pool

import (
	"sync/atomic"

	"sluice/internal/config"
)

// Limit is one circuit breaker threshold. It is shared by the workers and exact
// over them; without a limit it counts nothing, so that the default costs no
// shared memory traffic.
type Limit struct {
	max     uint32
	counted bool
	n       atomic.Int64
}

func (l *Limit) set(max uint32, always bool) {
	l.max = max
	l.counted = max != config.Unlimited || always
}

// Allow reports whether one more is within the limit.
func (l *Limit) Allow() bool { return !l.counted || l.n.Load() < int64(l.max) }

// Inc and Dec count one.
func (l *Limit) Inc() {
	if l.counted {
		l.n.Add(1)
	}
}

// Dec takes one off.
func (l *Limit) Dec() {
	if l.counted {
		l.n.Add(-1)
	}
}

// Count is the number now, 0 when it isn't counted.
func (l *Limit) Count() int64 { return l.n.Load() }

// Open is 1 while the limit is reached.
func (l *Limit) Open() uint64 {
	if l.Allow() {
		return 0
	}
	return 1
}

// Remaining is what is left; a bound of zero holds.
func (l *Limit) Remaining() uint64 {
	if n := int64(l.max) - l.n.Load(); n > 0 {
		return uint64(n)
	}
	return 0
}

// Breakers are a cluster's limits of one priority.
type Breakers struct {
	Connections, Pending, Requests, Retries, Pools Limit
	Budget                                         *config.RetryBudget
	Track                                          bool
	PerHost                                        uint32
}

// Configure sets the limits; counts stay.
func (b *Breakers) Configure(c *config.Breaker) {
	always := c.TrackRemaining || c.Budget != nil
	b.Connections.set(c.Connections, c.TrackRemaining)
	b.Pending.set(c.Pending, always)
	b.Requests.set(c.Requests, always)
	b.Retries.set(c.Retries, always)
	b.Pools.set(c.Pools, c.TrackRemaining)
	b.Budget, b.Track, b.PerHost = c.Budget, c.TrackRemaining, c.PerHostConnections
}

// AllowRetry reports whether one more retry may be under way: within
// max_retries, or within the budget where there is one.
func (b *Breakers) AllowRetry() bool {
	if b.Budget == nil {
		return b.Retries.Allow()
	}
	active := float64(b.Requests.Count() + b.Pending.Count())
	limit := max(int64(active*b.Budget.Percent/100), int64(b.Budget.MinConcurrency))
	return b.Retries.Count() < limit
}

// PoolsLeft is remaining_cx_pools; without a limit Envoy counts down from the
// largest number.
func (b *Breakers) PoolsLeft() uint64 {
	if b.Pools.max == config.Unlimited {
		return ^uint64(0) - uint64(b.Pools.Count())
	}
	return b.Pools.Remaining()
}
