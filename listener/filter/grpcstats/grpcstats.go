// Package grpcstats is the gRPC statistics filter: it counts the messages of
// calls, for the record and the counters.
package grpcstats

import (
	"bytes"
	"slices"
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct{ policy *config.GRPCStats }

// New makes the filter.
func New(p *config.GRPCStats) *Filter { return &Filter{policy: p} }

// The slot's numbers are the framing states of the two directions: the bytes
// left of a message, and how much of a 5-byte prefix was read, with its length
// so far.
const (
	requestState = iota
	responseState
	flags
)

// The flags of a call.
const (
	counted = 1 << iota
	answers // its response is gRPC
)

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	x.Record.MessageState = f.policy.EmitFilterState && x.Record.GRPC
	return filter.Continue
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(x *filter.Exchange, s *filter.Slot) {
	if route.IsGRPC(x.Response.Get(httpmsg.ContentType)) {
		s.N[flags] |= answers // whatever the request said it was
		x.Record.MessageState = f.policy.EmitFilterState
	}
}

// DecodeData implements filter.Body.
func (f *Filter) DecodeData(x *filter.Exchange, s *filter.Slot, p []byte, _ bool) []byte {
	if x.Record.GRPC {
		x.Record.MessagesIn += messages(&s.N[requestState], p)
	}
	return p
}

// EncodeData implements filter.Body.
func (f *Filter) EncodeData(x *filter.Exchange, s *filter.Slot, p []byte, _ bool) []byte {
	if x.Record.GRPC || s.N[flags]&answers != 0 {
		x.Record.MessagesOut += messages(&s.N[responseState], p)
	}
	return p
}

// messages counts the messages that begin in p. The state keeps the prefix bytes
// read in its top byte, and the length below: of the prefix, or of the rest of
// the message.
func messages(state *uint64, p []byte) (n uint64) {
	read, left := *state>>56, *state&(1<<56-1)
	inBody := read == 5
	for len(p) > 0 {
		if inBody {
			k := min(uint64(len(p)), left)
			p, left = p[k:], left-k
			if left == 0 {
				inBody, read = false, 0
			}
			continue
		}
		if read > 0 {
			left = left<<8 | uint64(p[0])
		} else {
			left = 0
		}
		read++
		p = p[1:]
		if read == 5 {
			n++
			if inBody = left > 0; !inBody {
				read = 0
			}
		}
	}
	*state = read<<56 | left
	return n
}

// EncodeTrailers implements filter.Trailers.
func (f *Filter) EncodeTrailers(*filter.Exchange, *filter.Slot, *httpmsg.Head) {}

// Log implements filter.Logger: the call is counted in its cluster, by service
// and method where the policy says so.
func (f *Filter) Log(x *filter.Exchange, s *filter.Slot) {
	r := x.Record
	if !r.GRPC || s.N[flags]&counted != 0 || r.Cluster == "" {
		return
	}
	s.N[flags] |= counted
	name, ok := f.base(s.B, x.Request.Path())
	s.B = name
	if !ok {
		return
	}
	g := x.Set.Named("cluster", r.Cluster)
	if status, known := r.GRPCStatus(); known {
		g.Count(strconv.AppendInt(name, int64(status), 10), 1)
		if status == 0 {
			g.Count(append(name, "success"...), 1)
		} else {
			g.Count(append(name, "failure"...), 1)
		}
	}
	g.Count(append(name, "total"...), 1)
	g.Count(append(name, "request_message_count"...), r.MessagesIn)
	g.Count(append(name, "response_message_count"...), r.MessagesOut)
}

// base appends the front of the names of a call's counters, with room for their
// ends; ok is false for a path that isn't a call's, /service/method.
func (f *Filter) base(b, path []byte) (name []byte, ok bool) {
	path, _, _ = bytes.Cut(path, []byte("?"))
	service, method, ok := bytes.Cut(bytes.TrimPrefix(path, []byte("/")), []byte("/"))
	ok = ok && len(service) > 0 && len(method) > 0 && bytes.IndexByte(method, '/') < 0
	b = append(slices.Grow(b, len(path)+32), "grpc."...)
	if f.policy.AllMethods || ok && f.lists(service, method) {
		b = append(append(append(append(b, service...), '.'), method...), '.')
	}
	return b, ok
}

func (f *Filter) lists(service, method []byte) bool {
	for _, m := range f.policy.Methods[string(service)] {
		if m == string(method) {
			return true
		}
	}
	return false
}
