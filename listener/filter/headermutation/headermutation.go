// Package headermutation is the header mutation filter: literal header edits of
// requests and responses.
package headermutation

import (
	"sluice/internal/config"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct{ request, response *route.Mutations }

// New makes the filter.
func New(p *config.HeaderMutationFilter) *Filter {
	return &Filter{request: route.CompileMutations(p.Request), response: route.CompileMutations(p.Response)}
}

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	f.request.Apply(x.Request, x.Eval, &x.Edits)
	return filter.Continue
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(x *filter.Exchange, _ *filter.Slot) {
	f.response.Apply(x.Response, x.Eval, &x.Edits)
}
