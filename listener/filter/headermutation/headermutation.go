// Package headermutation is the header mutation filter: edits of the headers of
// requests and responses, and of the query.
package headermutation

import (
	"sluice/internal/config"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy and those that follow it; it is safe for all
// workers.
type Filter struct{ levels []level }

type level struct {
	request, response route.Sequence
	query             []config.QueryMutation
}

// New makes the filter.
func New(p *config.HeaderMutationFilter) *Filter {
	f := &Filter{}
	for ; p != nil; p = p.Next {
		f.levels = append(f.levels, level{route.CompileSequence(p.Request), route.CompileSequence(p.Response), p.Query})
	}
	return f
}

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	for i := range f.levels {
		l := &f.levels[i]
		l.request.Apply(x.Request, x.Eval, &x.Edits)
		if len(l.query) > 0 && len(x.Request.Path()) > 0 {
			x.Request.SetPath(route.EditQuery(x.Request.Path(), l.query, x.Eval))
		}
	}
	return filter.Continue
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(x *filter.Exchange, _ *filter.Slot) {
	for i := range f.levels {
		f.levels[i].response.Apply(x.Response, x.Eval, &x.Edits)
	}
}
