// Package buffer is envoy.filters.http.buffer: it holds a request back until its
// content has come whole, so that nothing behind it waits for a slow client, and
// refuses content that is longer than it may be.
package buffer

import (
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct{ policy *config.Buffer }

// New makes the filter.
func New(p *config.Buffer) *Filter { return &Filter{policy: p} }

// Decode implements filter.HTTP. A request whose length was open goes on with a
// content-length.
func (f *Filter) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	if x.End {
		return filter.Continue
	}
	if !x.Whole || len(x.Content) > f.policy.MaxBytes {
		x.Limit, x.Partial = f.policy.MaxBytes, false
		return filter.Gather
	}
	if !x.Request.Has(httpmsg.ContentLength) {
		x.Scratch = strconv.AppendInt(x.Scratch[:0], int64(len(x.Content)), 10)
		x.Request.AddID(httpmsg.ContentLength, x.Scratch)
	}
	return filter.Continue
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(*filter.Exchange, *filter.Slot) {}
