// Package tokenbucket is the token bucket of the rate limiting filters, of
// connections and of requests: one number that all workers move on, so that a
// limit holds for the process. It counts time, not tokens, and has no timer.
package tokenbucket

import (
	"math"
	"sync/atomic"
	"time"

	"sluice/internal/config"
)

// Bucket holds tokens. It keeps the moment at which it was, or will be, empty:
// one number, which takers on all workers move on by compare-and-swap.
type Bucket struct {
	token int64        // how long one token takes to come, ns
	whole int64        // how long a full bucket takes to come, ns
	max   uint32       // tokens when full
	empty atomic.Int64 // ns of Worker.Now
}

// longest bounds the time a full bucket takes to come, so that sums of moments
// can't overflow: 146 years.
const longest = math.MaxInt64 / 2

// New makes a full bucket.
func New(c config.TokenBucket) *Bucket {
	b := &Bucket{token: max(1, int64(c.Interval)/int64(max(1, c.Fill))), max: c.Max}
	b.whole = longest
	if int64(c.Max) < longest/b.token {
		b.whole = b.token * int64(c.Max)
	}
	b.empty.Store(-b.whole)
	return b
}

// Take takes a token at now and says whether there was one.
func (b *Bucket) Take(now int64) bool {
	for {
		at := b.empty.Load()
		next := max(at, now-b.whole) + b.token
		if next > now {
			return false
		}
		if b.empty.CompareAndSwap(at, next) {
			return true
		}
	}
}

// Max is how many tokens a full bucket holds.
func (b *Bucket) Max() uint32 { return b.max }

// Left is how many tokens there are at now.
func (b *Bucket) Left(now int64) uint32 {
	return uint32(max(0, min((now-b.empty.Load())/b.token, int64(b.max))))
}

// Wait is how long it takes from now until there is a token; 0: there is one.
func (b *Bucket) Wait(now int64) time.Duration {
	return time.Duration(max(0, b.empty.Load()+b.token-now))
}

// Slower reports whether b fills more slowly than o.
func (b *Bucket) Slower(o *Bucket) bool { return b.token > o.token }
