// Package h2 is the HTTP/2 engine, both roles (RFC 9113): frames in, calls of
// httpmsg.Receivers out, and bounded output into an httpmsg.Conn. It enforces
// message rules, flow control and the limits on a peer's behaviour that Envoy
// has, and behaves as Envoy does on the wire when they are broken.
//
// It has no sockets, timers or goroutines; its callers are listener/httpproxy
// and upstream/pool, on one worker.
package h2

import "sluice/internal/httpmsg"

// Options are the settings of an engine, shared by many and never changed. Zero
// numbers mean Envoy's defaults, given in the comments.
type Options struct {
	HeaderTableSize        uint32 // announced; 4096
	MaxConcurrentStreams   uint32 // announced; 1024
	InitialStreamWindow    uint32 // announced; 16 MiB
	InitialConnWindow      uint32 // 24 MiB
	MaxHeaders             int    // fields of a head; 100
	MaxHeaderBytes         int    // decoded names and values; 60 KiB, for a client 80 KiB
	MaxOutboundFrames      uint32 // not yet taken by the kernel; 10000
	MaxOutboundControl     uint32 // of these, PING and SETTINGS ACKs and RST_STREAM; 1000
	MaxConsecutiveEmpty    uint32 // empty frames in a row without END_STREAM; 1
	MaxPriorityPerStream   uint32 // 100
	MaxWindowUpdatePerData uint32 // 10
	MaxEarlyResets         uint32 // rapid reset: requests before the share of early resets counts; 500
	AllowConnect           bool   // extended CONNECT, RFC 8441
	StreamErrorOnInvalid   bool   // a broken message ends its stream, not the connection
	Underscores            httpmsg.Underscores
	Pool                   *Pool     // the worker's; nil makes one per engine
	Counters               *Counters // the worker's; may be nil

	complete bool
}

// WithDefaults gives a copy with every zero replaced by its default. Engines
// take such a copy as it is and make their own of other Options, so a caller
// that makes it once saves that memory per connection.
func (o *Options) WithDefaults(client bool) *Options {
	n := *o
	n.complete = true
	for _, d := range []struct {
		v     *uint32
		value uint32
	}{
		{&n.HeaderTableSize, 4096}, {&n.MaxConcurrentStreams, 1024}, {&n.InitialStreamWindow, 16 << 20},
		{&n.InitialConnWindow, 24 << 20}, {&n.MaxOutboundFrames, 10000}, {&n.MaxOutboundControl, 1000},
		{&n.MaxConsecutiveEmpty, 1}, {&n.MaxPriorityPerStream, 100}, {&n.MaxWindowUpdatePerData, 10},
		{&n.MaxEarlyResets, 500},
	} {
		if *d.v == 0 {
			*d.v = d.value
		}
	}
	n.InitialConnWindow = max(n.InitialConnWindow, 65535) // it can't be made smaller
	if n.MaxHeaders == 0 {
		n.MaxHeaders = 100
	}
	if n.MaxHeaderBytes == 0 {
		n.MaxHeaderBytes = 60 << 10
		if client {
			n.MaxHeaderBytes = 80 << 10
		}
	}
	if n.Pool == nil {
		n.Pool = &Pool{}
	}
	if n.Counters == nil {
		n.Counters = &Counters{}
	}
	return &n
}

// Counters count, per worker, what operators watch. The names are Envoy's, of
// the http2 scope.
type Counters struct {
	Used                                                                       bool // by any connection
	RxReset, TxReset, RxMessagingError, HeaderOverflow                         uint64
	DroppedHeadersWithUnderscores, RequestsRejectedWithUnderscores             uint64
	OutboundFlood, OutboundControlFlood, InboundEmptyFramesFlood               uint64
	InboundPriorityFramesFlood, InboundWindowUpdateFramesFlood, PrematureReset uint64
	GoawaySent, KeepaliveTimeout, TxFlushTimeout                               uint64
	StreamRefusedErrors, Trailers                                              uint64
}

// Each gives every counter with its name below the http2 scope.
func (c *Counters) Each(emit func(name string, value uint64)) {
	emit("dropped_headers_with_underscores", c.DroppedHeadersWithUnderscores)
	emit("goaway_sent", c.GoawaySent)
	emit("header_overflow", c.HeaderOverflow)
	emit("inbound_empty_frames_flood", c.InboundEmptyFramesFlood)
	emit("inbound_priority_frames_flood", c.InboundPriorityFramesFlood)
	emit("inbound_window_update_frames_flood", c.InboundWindowUpdateFramesFlood)
	emit("keepalive_timeout", c.KeepaliveTimeout)
	emit("outbound_control_flood", c.OutboundControlFlood)
	emit("outbound_flood", c.OutboundFlood)
	emit("premature_resets", c.PrematureReset)
	emit("requests_rejected_with_underscores_in_headers", c.RequestsRejectedWithUnderscores)
	emit("rx_messaging_error", c.RxMessagingError)
	emit("rx_reset", c.RxReset)
	emit("stream_refused_errors", c.StreamRefusedErrors)
	emit("trailers", c.Trailers)
	emit("tx_flush_timeout", c.TxFlushTimeout)
	emit("tx_reset", c.TxReset)
}

// Pool keeps heads, buffers and streams of one worker's engines for reuse. Not
// safe for concurrent use; the zero value is ready.
type Pool struct {
	httpmsg.Pool
	free *stream
	n    int
}

func (p *Pool) stream() *stream {
	st := p.free
	if st == nil {
		return &stream{}
	}
	p.free, p.n = st.next, p.n-1
	st.next = nil
	return st
}

func (p *Pool) putStream(st *stream) {
	chunks := st.chunks[:0]
	*st = stream{chunks: chunks}
	if p.n < 4096 {
		st.next, p.free, p.n = p.free, st, p.n+1
	}
}
