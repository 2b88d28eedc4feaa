package h2

import (
	"sluice/internal/h2/hpack"
	"sluice/internal/httpmsg"
)

// block is a header block on its way in. It is decoded as its frames come, so
// that a block without end costs its limit and not more.
type block struct {
	id      uint32 // of the stream, 0 when no CONTINUATION is due
	end     bool   // END_STREAM
	trailer bool
	discard bool // decoded only to keep the tables right
	regular bool // a field that isn't a pseudo header came
	seen    uint8
	length  int64 // content-length, -1 none
	fields  int
	size    int
	wasted  int    // bytes decoded after the message was given up
	bad     string // response code detail of what is wrong
	head    *httpmsg.Head
	cookie  []byte // crumbs, joined
	cookies int
	rest    []byte // undecoded bytes, the front of a field
}

// Pseudo headers seen.
const (
	sawMethod = 1 << iota
	sawPath
	sawScheme
	sawAuthority
	sawProtocol
	sawStatus
	sawHost
)

// headers begins a block.
func (e *engine) headers(flags byte, id uint32, p []byte) *fault {
	if id%2 == 0 {
		return faultStreamID
	}
	p, f := unpad(flags, p)
	if f != nil {
		return f
	}
	if flags&flagPriority != 0 {
		if len(p) < 5 {
			return faultFrameSize
		}
		p = p[5:]
	}
	end := flags&flagEndStream != 0
	if f := e.empties(len(p) == 0 && !end); f != nil {
		return f
	}
	if f := e.begin(id, end); f != nil {
		return f
	}
	e.dec.Start()
	return e.fragment(p, flags&flagEndHeaders != 0)
}

// begin finds out what the block of a stream is: a request, a response,
// trailers, or something late.
func (e *engine) begin(id uint32, end bool) *fault {
	e.block = block{id: id, end: end, length: -1, rest: e.block.rest[:0], cookie: e.block.cookie[:0]}
	if st := e.find(id); st != nil {
		e.block.trailer = st.headIn
		if st.inDone {
			e.abort(st, CodeClosed, httpmsg.ResetReason{Kind: httpmsg.ResetProtocolError, Detail: detailReset})
			e.block.discard = true
		}
	} else if !e.client && id > e.lastID {
		if f := e.admit(id); f != nil {
			return f
		}
	} else {
		if e.client && id > e.lastID {
			return faultStreamID
		}
		if f := e.late(); f != nil {
			return f
		}
		e.block.discard = true
	}
	e.block.head = e.pool.Head()
	return nil
}

// admit opens a stream for a request, or refuses it.
func (e *engine) admit(id uint32) *fault {
	e.lastID = id
	switch {
	case e.leaving:
		e.block.discard = true // above the last id of our GOAWAY
	case e.active >= int(e.opts.MaxConcurrentStreams):
		if e.acked {
			return faultStreams
		}
		e.sendReset(id, CodeRefused)
		e.block.discard = true
	default:
		e.in.requests++
		st := e.open(id)
		if rcv := e.handler.OnStream(st); st.id == id {
			st.rcv = rcv
		}
	}
	return nil
}

func (e *engine) continuation(flags byte, id uint32, p []byte) *fault {
	if e.block.id == 0 {
		return faultContinue
	}
	if f := e.empties(len(p) == 0); f != nil {
		return f
	}
	return e.fragment(p, flags&flagEndHeaders != 0)
}

// fragment decodes the fields that are complete.
func (e *engine) fragment(p []byte, last bool) *fault {
	b := &e.block
	if len(b.rest) > 0 {
		b.rest = append(b.rest, p...)
		p = b.rest
	}
	var f hpack.Field
	for {
		rest, ok, err := e.dec.Next(p, &f)
		if err == hpack.ErrMore && !last {
			e.giveUp()
			return e.keepRest(rest)
		}
		if err != nil {
			return faultCompression
		}
		if !ok {
			break
		}
		p = rest
		if b.discard || b.bad != "" {
			if b.wasted += len(f.Name) + len(f.Value) + 32; b.wasted > 16*e.opts.MaxHeaderBytes {
				return faultHeaders
			}
			continue
		}
		e.field(&f)
	}
	b.rest = b.rest[:0]
	if !last {
		e.giveUp()
		return nil
	}
	return e.finishBlock()
}

// giveUp ends the stream of a block that is over a limit before its end comes,
// which it may never.
func (e *engine) giveUp() {
	b := &e.block
	switch b.bad {
	case detailTooLarge, detailTooMany:
		if st := e.find(b.id); st != nil && !b.discard {
			b.discard = true
			_ = e.invalid(st) // a stream error
		}
	}
}

// keepRest keeps the front of a field for the CONTINUATION.
func (e *engine) keepRest(p []byte) *fault {
	if len(p) > e.opts.MaxHeaderBytes+maxFrame {
		return faultHeaders
	}
	e.block.rest = append(e.block.rest[:0], p...)
	return nil
}

// field checks and takes one field.
func (e *engine) field(f *hpack.Field) {
	b := &e.block
	b.fields++
	if b.size += len(f.Name) + len(f.Value); b.size > e.opts.MaxHeaderBytes {
		b.bad = detailTooLarge
		return
	}
	if b.fields > e.opts.MaxHeaders {
		b.bad = detailTooMany
		e.opts.Counters.HeaderOverflow++
		return
	}
	if len(f.Name) > 0 && f.Name[0] == ':' {
		if b.trailer || b.regular || !e.pseudo(f) {
			b.bad = detailField
		}
		return
	}
	b.regular = true
	if f.Check&(hpack.NameOK|hpack.ValueOK) != hpack.NameOK|hpack.ValueOK {
		b.bad = detailField
		return
	}
	if f.Check&hpack.Underscore != 0 && !e.client && e.opts.Underscores != httpmsg.UnderscoresAllow {
		e.underscore()
		return
	}
	e.regular(f)
}

func (e *engine) underscore() {
	if e.opts.Underscores == httpmsg.UnderscoresReject {
		e.opts.Counters.RequestsRejectedWithUnderscores++
		e.block.bad = detailUnderscore
		return
	}
	e.opts.Counters.DroppedHeadersWithUnderscores++
}

// regular takes a field that isn't a pseudo header.
func (e *engine) regular(f *hpack.Field) {
	b := &e.block
	switch f.ID {
	case httpmsg.Connection, httpmsg.KeepAlive, httpmsg.ProxyConnection, httpmsg.TransferEncoding, httpmsg.Upgrade:
		b.bad = detailField
		return
	case httpmsg.TE:
		if string(f.Value) != "trailers" {
			b.bad = detailField
			return
		}
	case httpmsg.ContentLength:
		if b.length >= 0 {
			b.bad = detailField
			return
		}
		if b.length = number(f.Value); b.length < 0 {
			b.bad = detailField
			return
		}
	case httpmsg.Host:
		if e.host(f) {
			return
		}
	case httpmsg.Cookie:
		if !e.client && !b.trailer {
			if b.cookies++; b.cookies > 1 {
				b.cookie = append(b.cookie, ';', ' ')
			}
			b.cookie = append(b.cookie, f.Value...)
			return
		}
	}
	if f.Sensitive {
		b.head.AddSensitive(f.Name, f.Value)
	} else {
		b.head.AddKnown(f.ID, f.Name, f.Value)
	}
}

// host takes Host for the authority when there is none, and drops it.
func (e *engine) host(f *hpack.Field) bool {
	b := &e.block
	if e.client || b.trailer {
		return false
	}
	if b.seen&sawHost != 0 || len(f.Value) == 0 || !validAuthority(f.Value) {
		b.bad = detailField
		return true
	}
	b.seen |= sawHost
	if b.seen&sawAuthority == 0 {
		b.head.SetAuthority(f.Value)
	}
	return true
}

// pseudo takes a pseudo header, and says whether it is one, in place and valid.
func (e *engine) pseudo(f *hpack.Field) bool {
	b, h := &e.block, e.block.head
	var bit uint8
	ok := true
	switch string(f.Name) {
	case ":method":
		bit = sawMethod
		ok = validToken(f.Value)
		h.SetMethod(f.Value)
	case ":path":
		bit = sawPath
		ok = len(f.Value) > 0 && validPath(f.Value)
		h.SetPath(f.Value)
	case ":scheme":
		bit = sawScheme
		ok = validScheme(f.Value)
		h.SetScheme(f.Value)
	case ":authority":
		bit = sawAuthority
		ok = len(f.Value) > 0 && validAuthority(f.Value)
		h.SetAuthority(f.Value)
	case ":protocol":
		bit = sawProtocol
		ok = e.opts.AllowConnect && validToken(f.Value)
		h.SetProtocol(f.Value)
	case ":status":
		bit = sawStatus
		h.Status = status(f.Value)
		ok = h.Status >= 100
	default:
		return false
	}
	if b.seen&bit != 0 || e.client != (bit == sawStatus) {
		return false
	}
	b.seen |= bit
	return ok
}
