package telemetry

import (
	"google.golang.org/protobuf/encoding/protowire"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// ALS appends the record r as one log_entry of an access log service's message:
// an HTTPAccessLogEntry, or a TCPAccessLogEntry (envoy.data.accesslog.v3).
func (w *Formatter) ALS(dst []byte, l *config.GRPCLog, r *Record) []byte {
	dst, entry := begin(dst, 1)
	dst, common := begin(dst, 1)
	dst = end(w.alsCommon(dst, r), common)
	if l.TCP {
		var bytes int
		dst, bytes = begin(dst, 2)
		return end(end(appendCount(appendCount(dst, 1, r.BytesIn), 2, r.BytesOut), bytes), entry)
	}
	dst = appendCount(dst, 2, uint64(r.Protocol)) // the numbers are the same
	dst, request := begin(dst, 3)
	dst = end(alsRequest(dst, l, r), request)
	dst, response := begin(dst, 4)
	return end(end(w.alsResponse(dst, l, r), response), entry)
}

// alsRequest appends the content of HTTPRequestProperties.
func alsRequest(dst []byte, l *config.GRPCLog, r *Record) []byte {
	if h := r.Request; h != nil {
		dst = appendCount(dst, 1, methodNumber(string(h.Method())))
		dst = appendNamed(dst, 2, h.Scheme())
		dst = appendNamed(dst, 3, h.Authority())
		dst = appendNamed(dst, 5, h.Path())
		dst = appendNamed(dst, 6, h.Get(httpmsg.UserAgent))
		dst = appendHeader(dst, 7, h, "referer")
		dst = appendNamed(dst, 8, h.Get(httpmsg.XForwardedFor))
		dst = appendNamed(dst, 9, h.Get(httpmsg.XRequestID))
		dst = appendNamed(dst, 10, h.Get(httpmsg.XEnvoyOriginalPath))
		dst = appendCount(dst, 11, uint64(headBytes(h)))
	}
	dst = appendCount(dst, 12, r.BytesIn)
	dst = appendHeaders(dst, 13, r.Request, l.RequestHeaders)
	return appendCount(appendCount(dst, 14, r.UpHeadOut), 15, r.DownHeadIn)
}

// alsResponse appends the content of HTTPResponseProperties.
func (w *Formatter) alsResponse(dst []byte, l *config.GRPCLog, r *Record) []byte {
	if r.Code != 0 {
		var code int
		dst, code = begin(dst, 1)
		dst = end(appendCount(dst, 1, uint64(r.Code)), code)
	}
	if r.Response != nil {
		dst = appendCount(dst, 2, uint64(headBytes(r.Response)))
	}
	dst = appendCount(dst, 3, r.BytesOut)
	dst = appendHeaders(dst, 4, r.Response, l.RespHeaders)
	dst = appendHeaders(dst, 5, r.Trailers, l.Trailers)
	dst = w.appendOp(dst, 6, "RESPONSE_CODE_DETAILS", r)
	return appendCount(appendCount(dst, 7, r.UpHeadIn), 8, r.DownHeadOut)
}

// appendOp appends the text of an operator that has a value.
func (w *Formatter) appendOp(dst []byte, field protowire.Number, op string, r *Record) []byte {
	out, k := w.op(w.scratch[:0], &config.FormatItem{Op: op}, r)
	w.scratch = out[:0]
	if k == missing {
		return dst
	}
	return appendNamed(dst, field, out)
}

// headBytes is what Envoy counts of a head: names and values, with those that
// HTTP/2 has in the place of a start line.
func headBytes(h *httpmsg.Head) int {
	n := 0
	for i := range h.Len() {
		if _, name, value, ok := h.Field(i); ok {
			n += len(name) + len(value)
		}
	}
	if h.Status != 0 {
		return n + len(":status200")
	}
	for _, v := range [...]struct {
		name  string
		value []byte
	}{{":method", h.Method()}, {":path", h.Path()}, {":authority", h.Authority()}, {":scheme", h.Scheme()}} {
		if len(v.value) > 0 {
			n += len(v.name) + len(v.value)
		}
	}
	return n
}

func appendHeader(dst []byte, field protowire.Number, h *httpmsg.Head, name string) []byte {
	v, _ := Header(h, name)
	return appendNamed(dst, field, v)
}

// appendHeaders appends those of names that are there, as a map.
func appendHeaders(dst []byte, field protowire.Number, h *httpmsg.Head, names []string) []byte {
	for _, name := range names {
		if v, ok := Header(h, name); ok {
			var pair int
			dst, pair = begin(dst, field)
			dst = end(appendNamed(appendBytes(dst, pairKey, name), pairValue, v), pair)
		}
	}
	return dst
}

// methodNumber is a value of envoy.config.core.v3.RequestMethod, 0 for others.
func methodNumber(method string) uint64 {
	for i, m := range [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"} {
		if m == method {
			return uint64(i) + 1
		}
	}
	return 0
}
