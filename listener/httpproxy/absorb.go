package httpproxy

import (
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
)

// absorbs reports whether a filter puts the content of a response into its head.
func (r *request) absorbs(h *httpmsg.Head) bool {
	if !r.chain.bodies {
		return false
	}
	for i, f := range r.chain.filters {
		if a, ok := f.(filter.Absorber); ok && i < r.at && a.Absorbs(&r.x, r.slot(i), h) {
			return true
		}
	}
	return false
}

// absorb keeps the head of such a response back until its content has come.
func (t *attempt) absorb(h *httpmsg.Head) {
	t.r.resp.CopyFrom(h)
	t.absorbing = true
	t.r.local.worker.Stop(&t.r.perTry)
}

// absorbed takes content of such a response.
func (t *attempt) absorbed(p []byte, end bool) {
	r := t.r
	r.touch()
	r.absorbed = append(r.absorbed, p[:min(len(p), filter.AbsorbLimit-len(r.absorbed))]...)
	if !end {
		return
	}
	t.absorbing = false
	r.rec.LocalBody = r.absorbed
	r.rec.ResponseEnd = r.local.worker.Now()
	var h httpmsg.Head
	h.CopyFrom(&r.resp)
	r.respond(&h, true)
}

// trailersAsData sends trailers as content where a filter wants that.
func (r *request) trailersAsData() bool {
	for i := len(r.chain.filters) - 1; i >= 0; i-- {
		f, ok := r.chain.filters[i].(filter.TrailersAsData)
		if !ok {
			continue
		}
		if p, ok := f.TrailersAsData(&r.x, r.slot(i), &r.tail); ok {
			r.rec.Trailers = nil
			r.rec.BytesOut += uint64(len(p))
			r.rec.ResponseEnd = r.local.worker.Now()
			r.down.SendData(p, true)
			r.finish()
			return true
		}
	}
	return false
}
