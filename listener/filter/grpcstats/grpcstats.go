// Package grpcstats is the gRPC statistics filter: it counts the messages of
// calls, for the record and the counters.
package grpcstats

import (
	"strconv"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
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
	counted
)

// Decode implements filter.HTTP.
func (f *Filter) Decode(*filter.Exchange, *filter.Slot) filter.Verdict { return filter.Continue }

// Encode implements filter.HTTP.
func (f *Filter) Encode(*filter.Exchange, *filter.Slot) {}

// DecodeData implements filter.Body.
func (f *Filter) DecodeData(x *filter.Exchange, s *filter.Slot, p []byte, _ bool) []byte {
	if x.Record.GRPC {
		x.Record.MessagesIn += messages(&s.N[requestState], p)
	}
	return p
}

// EncodeData implements filter.Body.
func (f *Filter) EncodeData(x *filter.Exchange, s *filter.Slot, p []byte, _ bool) []byte {
	if x.Record.GRPC {
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

// Log implements filter.Logger: the call is counted by service and method where
// the policy says so.
func (f *Filter) Log(x *filter.Exchange, s *filter.Slot) {
	r := x.Record
	if !r.GRPC || !f.policy.AllMethods || s.N[counted] != 0 || r.Cluster == "" {
		return
	}
	s.N[counted] = 1
	g := x.Set.Named("cluster", r.Cluster)
	path := strings.Trim(string(x.Request.Path()), "/")
	service, method, ok := strings.Cut(path, "/")
	if !ok {
		return
	}
	base := "grpc." + service + "." + method + "."
	status, known := r.GRPCStatus()
	if known {
		g.Inc(base + strconv.Itoa(status))
		if status == 0 {
			g.Inc(base + "success")
		} else {
			g.Inc(base + "failure")
		}
	}
	g.Inc(base + "total")
	g.Adjust(base+"request_message_count", int(r.MessagesIn))
	g.Adjust(base+"response_message_count", int(r.MessagesOut))
}
