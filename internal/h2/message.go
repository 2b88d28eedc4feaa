package h2

import "sluice/internal/httpmsg"

// finishBlock handles a complete header block.
func (e *engine) finishBlock() *fault {
	b := &e.block
	id, h := b.id, b.head
	b.id, b.head = 0, nil // a receiver may end the engine, which frees the block's head
	e.dec.Trim()
	var f *fault
	if st := e.find(id); st != nil && !b.discard {
		f = e.message(st, h)
	}
	e.pool.PutHead(h)
	if cap(b.rest) > 4096 {
		b.rest = nil
	}
	if cap(b.cookie) > 4096 {
		b.cookie = nil
	}
	return f
}

// message hands a head or trailers to the stream's receiver.
func (e *engine) message(st *stream, h *httpmsg.Head) *fault {
	b := &e.block
	if b.bad == "" {
		e.complete(st, h)
	}
	if b.bad != "" {
		return e.invalid(st)
	}
	if b.cookies > 0 {
		h.AddID(httpmsg.Cookie, b.cookie)
	}
	h.Major, h.Minor = 2, 0
	e.upgraded(st, h)
	rcv := st.rcv
	switch {
	case b.trailer:
		st.inDone = true
		if st.outDone {
			e.release(st)
		}
		if h.Live() == 0 {
			rcv.OnData(nil, true)
		} else {
			rcv.OnTrailers(h)
		}
		return nil
	case e.client && h.Status < 200 && h.Status != 101:
		rcv.OnHead(h, false)
		return nil
	}
	st.headIn, st.left = true, b.length
	if e.client && (h.Status == 204 || h.Status == 304) {
		if st.headOnly = true; h.Status == 204 {
			h.Del(httpmsg.ContentLength) // RFC 9110 section 8.6
		}
	}
	if b.end {
		st.inDone = true
		if st.outDone {
			e.release(st)
		}
	}
	rcv.OnHead(h, b.end)
	return nil
}

// upgraded turns an extended CONNECT, or the answer that accepts one, into the
// upgrade of HTTP/1 that it stands for.
func (e *engine) upgraded(st *stream, h *httpmsg.Head) {
	switch {
	case e.block.trailer:
		return
	case !e.client && e.block.seen&sawProtocol != 0:
		st.protocol = string(h.Protocol())
		h.SetMethod([]byte("GET"))
		h.SetProtocol(nil)
	case e.client && st.protocol != "" && h.Status == 200:
		h.Status = 101
		h.Del(httpmsg.ContentLength)
	default:
		return
	}
	h.AddString(httpmsg.Upgrade, st.protocol)
	h.AddString(httpmsg.Connection, "upgrade")
}

// complete checks a message as a whole (RFC 9113 section 8).
func (e *engine) complete(st *stream, h *httpmsg.Head) {
	b := &e.block
	ok := true
	switch {
	case b.trailer:
		// The body must be whole, and trailers must not change framing or routing.
		ok = b.end && st.left <= 0 && b.length < 0 && !h.Has(httpmsg.Host)
		if st.headOnly {
			ok = b.end
		}
	case e.client:
		ok = b.seen&sawStatus != 0 && h.Status != 101
		if h.Status < 200 && (b.end || b.length >= 0) {
			ok = false
		}
		if b.end && b.length > 0 && !st.headOnly && h.Status != 204 && h.Status != 304 {
			ok = false
		}
	default:
		ok = e.completeRequest(h)
	}
	if !ok {
		b.bad = detailMessage
	}
}

func (e *engine) completeRequest(h *httpmsg.Head) bool {
	b := &e.block
	if b.end && b.length > 0 {
		return false
	}
	need := uint8(sawMethod | sawPath | sawScheme)
	if string(h.Method()) == "CONNECT" && b.seen&sawProtocol == 0 {
		return b.seen&(sawMethod|sawAuthority|sawPath|sawScheme) == sawMethod|sawAuthority
	}
	if b.seen&need != need || !h.HasAuthority() {
		return false
	}
	if b.seen&sawProtocol != 0 && string(h.Method()) != "CONNECT" {
		return false
	}
	p := h.Path()
	return p[0] == '/' || string(p) == "*" && string(h.Method()) == "OPTIONS"
}

// invalid ends the stream of a broken message, or the connection.
func (e *engine) invalid(st *stream) *fault {
	r := httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Detail: e.block.bad}
	switch r.Detail {
	case detailTooLarge, detailTooMany, detailUnderscore:
		if r.Kind = httpmsg.ResetHeaderLimit; e.client {
			r.Kind = httpmsg.ResetRemote
		}
		e.abort(st, CodeInternal, r)
		return nil
	}
	e.opts.Counters.RxMessagingError++
	if e.opts.StreamErrorOnInvalid {
		e.abort(st, CodeProtocol, r)
		return nil
	}
	e.drop(st, r)
	return faultMessage
}
