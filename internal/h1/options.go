// Package h1 is the HTTP/1 engine, both roles: bytes in, calls of an
// httpmsg.Receiver out, and bytes for the peer into an httpmsg.Conn. It frames
// messages and refuses every one whose end could be read in two ways (RFC 9112
// section 6.3, CWE-444).
//
// It has no sockets, timers or goroutines, and leaves hop-by-hop fields, routing
// and local replies to its caller (listener/httpproxy, upstream/pool).
package h1

import "sluice/internal/httpmsg"

// Options are the settings of an engine, shared by many and never changed. The
// zero value is Envoy's default but for AllowAbsoluteURL.
type Options struct {
	MaxHeaders     int // fields of a head or trailers; 0 means 100
	MaxHeaderBytes int // 0 means 60 KiB for requests and 80 KiB for responses

	AcceptHTTP10       bool
	DefaultHost        string // for HTTP/1.0 requests without Host
	AllowAbsoluteURL   bool   // take the authority out of an absolute target
	AllowCustomMethods bool
	EnableTrailers     bool // deliver and send trailers, else they are dropped
	AllowChunkedLength bool // drop Content-Length beside chunked, else refuse
	SendFullyQualified bool // client: absolute target
	ProperCase         bool // write names with capital first letters
	PreserveCase       bool // what is read is written on with its names as received
	PreserveElseProper bool // with PreserveCase: names we add get capitals
	ForwardReason      bool // with PreserveCase: keep the reason phrase
	Underscores        httpmsg.Underscores
	AutoContinue       bool                    // server: answer Expect: 100-continue and delete it
	IgnoreUpgrade      func(value []byte) bool // nil, or says which Upgrade values are dropped
	Pool               *httpmsg.Pool           // the worker's; nil makes one per engine
	Counters           *Counters               // the worker's; may be nil
}

// Counters count, per worker, what operators watch. The names are Envoy's.
type Counters struct {
	Used                                   bool // by any connection
	DroppedHeadersWithUnderscores          uint64
	RequestsRejectedWithUnderscoresInNames uint64
	ResponseFlood                          uint64
}

func (c *Counters) use() {
	if c != nil {
		c.Used = true
	}
}

// Each gives every counter with its name below the http1 scope.
func (c *Counters) Each(emit func(name string, value uint64)) {
	emit("dropped_headers_with_underscores", c.DroppedHeadersWithUnderscores)
	emit("requests_rejected_with_underscores_in_headers", c.RequestsRejectedWithUnderscoresInNames)
	emit("response_flood", c.ResponseFlood)
}

// style is that of heads read with o.
func (o *Options) style() httpmsg.NameStyle {
	switch {
	case o.PreserveCase && o.PreserveElseProper:
		return httpmsg.AsReceivedOrProper
	case o.PreserveCase:
		return httpmsg.AsReceived
	}
	return httpmsg.AsWritten
}

func (o *Options) maxHeaders() int {
	if o.MaxHeaders > 0 {
		return o.MaxHeaders
	}
	return 100
}

func (o *Options) maxBytes(request bool) int {
	switch {
	case o.MaxHeaderBytes > 0:
		return o.MaxHeaderBytes
	case request:
		return 60 << 10
	}
	return 80 << 10
}
