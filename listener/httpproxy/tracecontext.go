package httpproxy

import (
	"bytes"
	"strconv"

	"sluice/internal/httpmsg"
)

// traceContext is what a request's headers tell of the caller's span.
type traceContext struct {
	high, low, span, parent uint64
	found                   bool // there is one
	decided, sampled        bool // whether it is reported is decided, and how
}

// readB3 reads the b3 header, or else those of B3's longer form. It isn't ok
// where they say something that can't be read.
func readB3(h *httpmsg.Head) (c traceContext, ok bool) {
	if b := h.Get(httpmsg.B3); len(b) > 0 {
		return readSingleB3(b)
	}
	if v := h.Get(httpmsg.XB3Sampled); len(v) > 0 {
		c.decided, c.sampled = true, string(v) == "1" || string(v) == "true"
	} else if string(h.Get(httpmsg.XB3Flags)) == "1" {
		c.decided, c.sampled = true, true
	}
	trace, span := h.Get(httpmsg.XB3TraceID), h.Get(httpmsg.XB3SpanID)
	if len(trace) == 0 || len(span) == 0 {
		return c, true
	}
	c.found = true
	return c, c.trace(trace) && identifier(&c.span, span) && c.caller(h.Get(httpmsg.XB3ParentSpanID))
}

// readSingleB3 reads TRACE-SPAN[-SAMPLED[-PARENT]], or SAMPLED alone.
func readSingleB3(b []byte) (c traceContext, ok bool) {
	if len(b) == 1 {
		return c, c.flag(b)
	}
	parts := bytes.SplitN(b, []byte{'-'}, 5)
	if len(parts) < 2 || len(parts) > 4 {
		return c, false
	}
	c.found = true
	ok = c.trace(parts[0]) && identifier(&c.span, parts[1])
	if len(parts) > 2 {
		ok = ok && c.flag(parts[2])
	}
	if len(parts) > 3 {
		ok = ok && identifier(&c.parent, parts[3])
	}
	return c, ok
}

// readTraceparent gives the span of a W3C traceparent, or c if it has no good one.
// Of a later version the part that this one knows counts (Trace Context, "Versioning
// of traceparent").
func readTraceparent(h *httpmsg.Head, c traceContext) traceContext {
	p := h.Get(httpmsg.Traceparent)
	if len(p) < 55 || p[2] != '-' || p[35] != '-' || p[52] != '-' {
		return c
	}
	version, err := strconv.ParseUint(string(p[:2]), 16, 8)
	if err != nil || version == 0xff || len(p) > 55 && (version == 0 || p[55] != '-') {
		return c
	}
	flags, err := strconv.ParseUint(string(p[53:55]), 16, 8)
	w := traceContext{found: true, decided: true, sampled: flags&1 != 0}
	if err != nil || !w.trace(p[3:35]) || !identifier(&w.span, p[36:52]) {
		return c
	}
	return w
}

// trace reads 32 digits, or 16.
func (c *traceContext) trace(digits []byte) bool {
	if len(digits) == 32 {
		high, err := strconv.ParseUint(string(digits[:16]), 16, 64)
		if err != nil {
			return false
		}
		c.high, digits = high, digits[16:]
	}
	low, err := strconv.ParseUint(string(digits), 16, 64)
	c.low = low
	return err == nil && len(digits) == 16 && c.high|c.low != 0
}

func (c *traceContext) caller(digits []byte) bool {
	return len(digits) == 0 || identifier(&c.parent, digits)
}

func (c *traceContext) flag(b []byte) bool {
	switch string(b) {
	case "1", "d":
		c.sampled = true
	case "0":
	default:
		return false
	}
	c.decided = true
	return true
}

func identifier(to *uint64, digits []byte) bool {
	n, err := strconv.ParseUint(string(digits), 16, 64)
	*to = n
	return err == nil && len(digits) == 16
}
