// Package grpcweb is the gRPC-Web filter: requests of browsers, binary or base64
// text, become gRPC, and the answer's trailers become its last message. It
// doesn't answer CORS; that is the cors filter's.
package grpcweb

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"

	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter has no policy; it is safe for all workers.
type Filter struct{}

// New makes the filter.
func New() *Filter { return &Filter{} }

// The slot's numbers: flags, and bytes of a base64 quantum that isn't complete.
const (
	flags = iota
	quantum
	pending
)

const (
	web        = 1 << iota // a gRPC-Web request
	textIn                 // in base64
	textOut                // answered in base64
	translated             // the answer isn't gRPC: its content becomes grpc-message
)

// Decode implements filter.HTTP.
func (*Filter) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	h := x.Request
	switch string(h.Get(httpmsg.ContentType)) {
	case "application/grpc-web", "application/grpc-web+proto":
		s.N[flags] = web
	case "application/grpc-web-text", "application/grpc-web-text+proto":
		s.N[flags] = web | textIn
	default:
		return filter.Continue
	}
	if accept, _ := h.Value("accept"); isText(accept) {
		s.N[flags] |= textOut
	}
	h.Del(httpmsg.ContentLength)
	h.SetString(httpmsg.ContentType, "application/grpc")
	h.SetString(httpmsg.TE, "trailers")
	h.DelName("grpc-accept-encoding")
	h.AddName("grpc-accept-encoding", []byte("identity"))
	x.Record.GRPC = true
	return filter.Continue
}

func isText(accept []byte) bool {
	return string(accept) == "application/grpc-web-text" || string(accept) == "application/grpc-web-text+proto"
}

// Absorbs implements filter.Absorber: an answer that isn't gRPC can't be read by
// a gRPC client, so its text becomes the message of its status.
func (*Filter) Absorbs(x *filter.Exchange, s *filter.Slot, h *httpmsg.Head) bool {
	return s.N[flags]&web != 0 && (h.Status != 200 || !route.IsGRPC(h.Get(httpmsg.ContentType)))
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(x *filter.Exchange, s *filter.Slot) {
	if s.N[flags]&web == 0 {
		return
	}
	h := x.Response
	if f.Absorbs(x, s, h) && !h.Has(httpmsg.GRPCStatus) {
		h.AddID(httpmsg.GRPCStatus, strconv.AppendInt(nil, int64(telemetry.HTTPToGRPC(h.Status)), 10))
		if len(x.Record.LocalBody) > 0 {
			h.AddID(httpmsg.GRPCMessage, percent(x.Record.LocalBody))
			x.Record.LocalBody = nil
		}
		h.SetString(httpmsg.ContentLength, "0")
		s.N[flags] |= translated
	}
	kind := "application/grpc-web+proto"
	if s.N[flags]&textOut != 0 {
		kind = "application/grpc-web-text+proto"
	}
	h.SetString(httpmsg.ContentType, kind)
}

// percent escapes a status message (gRPC over HTTP/2, "Status-Message").
func percent(b []byte) (out []byte) {
	const hex = "0123456789ABCDEF"
	for _, c := range b {
		if c < 0x20 || c > 0x7e || c == '%' {
			out = append(out, '%', hex[c>>4], hex[c&15])
		} else {
			out = append(out, c)
		}
	}
	return out
}

// DecodeData implements filter.Body: base64 becomes bytes, in whole quanta.
func (*Filter) DecodeData(x *filter.Exchange, s *filter.Slot, p []byte, end bool) []byte {
	if s.N[flags]&textIn == 0 {
		return p
	}
	out, ok := decode(s, p)
	if !ok || end && s.N[pending] > 0 {
		x.Reply(filter.Reply{Status: 400, Body: "Bad gRPC-web request, invalid base64 data.", Details: "grpc_base_64_decode_failed", GRPC: -1})
		return nil
	}
	return out
}

func decode(s *filter.Slot, p []byte) ([]byte, bool) {
	var q [4]byte
	var d [3]byte
	binary.LittleEndian.PutUint32(q[:], uint32(s.N[quantum]))
	n, out := int(s.N[pending]), s.B[:0]
	for _, c := range p {
		q[n] = c
		if n++; n < 4 {
			continue
		}
		k, err := base64.StdEncoding.Decode(d[:], q[:])
		if err != nil {
			return nil, false
		}
		out, n = append(out, d[:k]...), 0
	}
	s.B, s.N[quantum], s.N[pending] = out, uint64(binary.LittleEndian.Uint32(q[:])), uint64(n)
	return out, true
}

// EncodeData implements filter.Body.
func (*Filter) EncodeData(_ *filter.Exchange, s *filter.Slot, p []byte, _ bool) []byte {
	switch {
	case s.N[flags]&translated != 0:
		return nil
	case s.N[flags]&textOut != 0 && len(p) > 0:
		s.B = base64.StdEncoding.AppendEncode(s.B[:0], p)
		return s.B
	}
	return p
}

// TrailersAsData implements filter.TrailersAsData: a message of its own kind,
// since a browser can't read trailers.
func (*Filter) TrailersAsData(_ *filter.Exchange, s *filter.Slot, t *httpmsg.Head) (p []byte, ok bool) {
	if s.N[flags]&web == 0 {
		return nil, false
	}
	b := []byte{0x80, 0, 0, 0, 0}
	for i := range t.Len() {
		if _, name, value, live := t.Field(i); live {
			b = append(append(append(append(b, name...), ':'), value...), '\r', '\n')
		}
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
	if s.N[flags]&textOut != 0 {
		b = base64.StdEncoding.AppendEncode(nil, b)
	}
	return b, true
}
