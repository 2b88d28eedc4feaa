package localratelimit

import (
	"container/list"
	"sync"

	"sluice/internal/config"
	"sluice/listener/filter/tokenbucket"
)

// limiter is the buckets of one policy.
type limiter struct {
	rest  *tokenbucket.Bucket // nil: what nothing fits passes
	spare bool                // rest is only for what nothing fits
	exact map[string]*limit   // by description
	open  []*open
}

// limit is the bucket of one description.
type limit struct {
	*tokenbucket.Bucket
	shadow bool
}

// open is a descriptor that leaves values open: each has a bucket, made when it
// is first seen. Only the max values seen last are kept.
type open struct {
	entries []config.RateEntry
	config  config.TokenBucket
	shadow  bool
	max     int

	mu     sync.Mutex
	values map[string]*list.Element // by description; elements are seen
	latest list.List
}

type seen struct {
	description string
	limit       *limit
}

func newLimiter(p *config.LocalRateLimit) *limiter {
	l := &limiter{spare: p.SpareBucket, exact: make(map[string]*limit)}
	if p.Bucket != nil {
		l.rest = tokenbucket.New(*p.Bucket)
	}
	for i := range p.Descriptors {
		d := &p.Descriptors[i]
		var description []byte
		whole := true
		for _, e := range d.Entries {
			description = appendEntry(description, e.Key, e.Value)
			whole = whole && e.Value != ""
		}
		if whole {
			l.exact[string(description)] = &limit{tokenbucket.New(d.Bucket), d.Shadow}
			continue
		}
		l.open = append(l.open, &open{entries: d.Entries, config: d.Bucket, shadow: d.Shadow, max: max(1, p.MaxDynamic),
			values: make(map[string]*list.Element)})
	}
	return l
}

// outcome is what happens to a request.
type outcome uint8

const (
	allowed  outcome = iota
	limited          // there was no token
	shadowed         // there was none, but only shadows say so
)

// verdict is an outcome and the bucket that says most of it; nil: none was asked.
type verdict struct {
	outcome outcome
	bucket  *tokenbucket.Bucket
}

// take takes a token of each bucket that fits the request, of the slowest first,
// and of the rest's. The first that is empty decides; what the others gave
// until then is spent.
func (l *limiter) take(now int64, fit []*limit) verdict {
	sort(fit)
	v := verdict{}
	for _, b := range fit {
		switch {
		case b.Take(now):
		case !b.shadow:
			return verdict{limited, b.Bucket}
		case v.outcome == allowed:
			v = verdict{shadowed, b.Bucket}
		}
	}
	if l.rest != nil && (len(fit) == 0 || !l.spare) {
		if !l.rest.Take(now) {
			return verdict{limited, l.rest}
		}
		if len(fit) == 0 {
			v.bucket = l.rest
		}
	}
	if v.bucket == nil && len(fit) > 0 {
		v.bucket = fit[0].Bucket
	}
	return v
}

// sort puts the slowest bucket first; there are few.
func sort(fit []*limit) {
	for i := 1; i < len(fit); i++ {
		for j := i; j > 0 && fit[j].Slower(fit[j-1].Bucket); j-- {
			fit[j], fit[j-1] = fit[j-1], fit[j]
		}
	}
}

// find gives the limit of a description, nil without.
func (l *limiter) find(description []byte) *limit {
	if b := l.exact[string(description)]; b != nil {
		return b
	}
	for _, o := range l.open {
		if o.fits(description) {
			return o.limit(description)
		}
	}
	return nil
}

// fits reports whether the description has the entries, with any value where
// they leave it open.
func (o *open) fits(description []byte) bool {
	for i := range o.entries {
		e := &o.entries[i]
		var key, value []byte
		if key, description = cutPart(description); key == nil || string(key) != e.Key {
			return false
		}
		if value, description = cutPart(description); e.Value != "" && string(value) != e.Value {
			return false
		}
	}
	return len(description) == 0
}

// limit gives the bucket of a description that fits.
func (o *open) limit(description []byte) *limit {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.values[string(description)]; e != nil {
		o.latest.MoveToFront(e)
		return e.Value.(*seen).limit
	}
	if o.latest.Len() >= o.max {
		last := o.latest.Back()
		delete(o.values, o.latest.Remove(last).(*seen).description)
	}
	n := &seen{string(description), &limit{tokenbucket.New(o.config), o.shadow}}
	o.values[n.description] = o.latest.PushFront(n)
	return n.limit
}
