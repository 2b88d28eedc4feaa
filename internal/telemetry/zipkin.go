package telemetry

import (
	"strconv"
	"time"
)

// zipkin appends s as an entry of a Zipkin v2 list, with the comma after it.
func (w *Writer) zipkin(dst []byte, t *Tracer, s *Span, r *Record) []byte {
	dst = append(dst, `{"traceId":"`...)
	dst = AppendTraceID(dst, s)
	dst = AppendSpanID(append(dst, `","id":"`...), s.ID)
	if s.Parent != 0 {
		dst = AppendSpanID(append(dst, `","parentId":"`...), s.Parent)
	}
	kind, last := "CLIENT", "cr"
	if s.Server {
		kind, last = "SERVER", "ss"
	}
	dst = append(append(append(dst, `","kind":"`...), kind...), `","name":`...)
	if w.nameSpan(t, s, r) {
		dst = appendQuoted(dst, w.scratch)
	} else {
		dst = appendQuoted(dst, r.Request.Authority())
	}
	dst = strconv.AppendInt(append(dst, `,"timestamp":`...), r.Wall.UnixMicro(), 10)
	dst = strconv.AppendInt(append(dst, `,"duration":`...), max(1, (r.End-r.Start)/1e3), 10)
	if s.Shared {
		dst = append(dst, `,"shared":true`...)
	}
	dst = t.zipkinEndpoint(dst)
	dst = append(dst, `,"annotations":[`...)
	if t.Config.Verbose {
		dst = zipkinMoments(dst, r)
	}
	dst = append(zipkinMoment(dst, r, last, r.End), `],"tags":{`...)
	dst = w.tags.json(dst)
	return append(dst, "}},"...)
}

// ZipkinList is the content that reports entries made by a Writer.
func ZipkinList(entries []byte) []byte {
	dst := append(make([]byte, 0, len(entries)+1), '[')
	dst = append(dst, entries...)
	dst[len(dst)-1] = ']' // for the last comma
	return dst
}

func (t *Tracer) zipkinEndpoint(dst []byte) []byte {
	dst = append(dst, `,"localEndpoint":{"serviceName":`...)
	dst = appendQuoted(dst, t.Service)
	if a := t.Address.Unmap(); a.IsValid() {
		family := `,"ipv4":"`
		if a.Is6() {
			family = `,"ipv6":"`
		}
		dst = append(a.AppendTo(append(dst, family...)), '"')
	}
	return append(dst, `,"port":0}`...)
}

// zipkinMoments appends Envoy's annotations of verbose tracing.
func zipkinMoments(dst []byte, r *Record) []byte {
	for _, m := range [...]struct {
		name string
		at   int64
	}{
		{"last_downstream_rx_byte_received", r.RequestEnd},
		{"first_upstream_tx_byte_sent", r.UpstreamSend}, {"last_upstream_tx_byte_sent", r.UpstreamSent},
		{"first_upstream_rx_byte_received", r.ResponseHead}, {"last_upstream_rx_byte_received", r.ResponseEnd},
		{"first_downstream_tx_byte_sent", r.SendHead}, {"last_downstream_tx_byte_sent", r.SendEnd},
	} {
		if m.at != 0 {
			dst = append(zipkinMoment(dst, r, m.name, m.at), ',')
		}
	}
	return dst
}

// zipkinMoment appends an annotation at a monotonic time.
func zipkinMoment(dst []byte, r *Record, name string, at int64) []byte {
	wall := r.Wall.Add(time.Duration(at - r.Start)).UnixMicro()
	dst = strconv.AppendInt(append(dst, `{"timestamp":`...), wall, 10)
	return append(append(append(dst, `,"value":"`...), name...), `"}`...)
}

func (g *spanTags) json(dst []byte) []byte {
	begin, n := 0, 0
	for i, key := range g.keys {
		value := g.text[begin:g.ends[i]]
		begin = g.ends[i]
		if len(value) == 0 || g.replaced(i) {
			continue
		}
		if n++; n > 1 {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(dst, key), ':')
		dst = appendQuoted(dst, value)
	}
	return dst
}

// AppendTraceID appends the trace's identifier in hexadecimal digits: 32, or 16
// where it has 64 bits.
func AppendTraceID(dst []byte, s *Span) []byte {
	if s.High != 0 {
		dst = AppendSpanID(dst, s.High)
	}
	return AppendSpanID(dst, s.Low)
}

// AppendSpanID appends 16 hexadecimal digits.
func AppendSpanID(dst []byte, id uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[id>>shift&15])
	}
	return dst
}
