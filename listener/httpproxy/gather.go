package httpproxy

import (
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

// gathered reports whether the content is whole, as the filter at r.at wants it,
// and shows it to the filter. Without, the request waits for it, or was refused.
func (r *request) gathered() bool {
	if r.enough() {
		r.x.Content = r.body
		return true
	}
	if len(r.body) > r.x.Limit {
		r.tooLarge()
		return false
	}
	if r.downEnd {
		r.x.Whole, r.x.Content = true, r.body
		return true
	}
	r.parked, r.gathering = true, true
	if r.heldDown {
		r.heldDown = false
		r.down.Resume()
	}
	return false
}

// enough says that the filter has as much of the content as it wants.
func (r *request) enough() bool { return r.x.Partial && len(r.body) >= r.x.Limit }

// gather keeps content that a filter waits for.
func (r *request) gather(p []byte) {
	if len(r.body)+len(p) > r.x.Limit && !r.x.Partial {
		r.tooLarge()
		return
	}
	r.body = append(r.body, p...)
}

// goOn shows the filter what was gathered.
func (r *request) goOn() {
	r.gathering, r.parked = false, false
	r.decode()
}

// tooLarge refuses a request whose content outgrew what a filter gathers.
func (r *request) tooLarge() {
	r.parked, r.gathering = false, false
	r.group.Values[rqTooLarge]++
	r.reply(filter.Reply{Status: 413, Body: "Payload Too Large", Details: "request_payload_too_large", Flag: telemetry.FlagNone, GRPC: -1})
}

// catchUp shows filter i, which the request is about to pass, the content that
// came before.
func (r *request) catchUp(i int) {
	if !r.chain.bodies || r.x.End || len(r.body) == 0 && !r.downEnd {
		return
	}
	if b, ok := r.chain.filters[i].(filter.Body); ok {
		r.body = append(r.body[:0], b.DecodeData(&r.x, r.slot(i), r.body, r.downEnd && !r.hasTail)...)
		r.x.Content = r.body
	}
}
