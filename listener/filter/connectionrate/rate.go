// Package connectionrate is envoy.filters.network.local_ratelimit: how many
// connections of a chain may come, by a token bucket that all workers share.
// listener makes buckets and builds the filter; it limits no requests.
package connectionrate

import (
	"sluice/listener/downstream"
	"sluice/listener/filter/tokenbucket"
)

// Filter takes a token for each connection.
type Filter struct {
	bucket  *tokenbucket.Bucket
	limited func()
}

// New makes the filter; limited counts each refusal, on the worker.
func New(b *tokenbucket.Bucket, limited func()) *Filter { return &Filter{b, limited} }

// Admit implements downstream.Filter.
func (f *Filter) Admit(c *downstream.Connection, _ func()) downstream.Admission {
	if f.bucket.Take(c.Conn.Worker().Now()) {
		return downstream.Pass
	}
	f.limited()
	return downstream.Refuse
}
