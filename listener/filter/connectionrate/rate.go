// Package connectionrate is envoy.filters.network.local_ratelimit: how many
// connections of a chain may come, by a token bucket that all workers share.
// listener makes buckets and builds the filter; it limits no requests.
package connectionrate

import (
	"sync/atomic"
	"time"

	"sluice/internal/config"
	"sluice/listener/downstream"
)

// Bucket holds tokens. It keeps the moment at which it was, or will be, empty:
// one number, which connections of all workers move on.
type Bucket struct {
	config config.TokenBucket
	empty  atomic.Int64 // ns of Worker.Now
}

// NewBucket makes a full bucket.
func NewBucket(c config.TokenBucket) *Bucket {
	b := &Bucket{config: c}
	b.empty.Store(-int64(b.whole()))
	return b
}

// token is how long one token takes to come.
func (b *Bucket) token() time.Duration {
	return max(1, b.config.Interval/time.Duration(max(1, b.config.Fill)))
}

// whole is how long a full bucket takes to come.
func (b *Bucket) whole() time.Duration { return b.token() * time.Duration(b.config.Max) }

// Take takes a token at now and says whether there was one.
func (b *Bucket) Take(now int64) bool {
	for {
		at := b.empty.Load()
		from := max(at, now-int64(b.whole()))
		next := from + int64(b.token())
		if next > now {
			return false
		}
		if b.empty.CompareAndSwap(at, next) {
			return true
		}
	}
}

// Filter takes a token for each connection.
type Filter struct {
	bucket  *Bucket
	limited func()
}

// New makes the filter; limited counts each refusal, on the worker.
func New(b *Bucket, limited func()) *Filter { return &Filter{b, limited} }

// Admit implements downstream.Filter.
func (f *Filter) Admit(c *downstream.Connection, _ func()) downstream.Admission {
	if f.bucket.Take(c.Conn.Worker().Now()) {
		return downstream.Pass
	}
	f.limited()
	return downstream.Refuse
}
