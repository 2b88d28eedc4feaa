package load

import (
	"bytes"
	"errors"
	"fmt"

	"sluice/bench/wire"
)

// flight is one stream of an HTTP/2 connection.
type flight struct {
	id      uint32
	from    int64
	arrived int
	open    bool
}

// h2 sends requests on HTTP/2: GET (h2), unary calls (grpc), or messages that
// come back on streams that stay open (stream). It checks the status, the bytes
// and the end of each.
type h2 struct {
	kind           string
	block, message []byte // of a request
	want           []byte // of an answer
	next           uint32
	flights        []flight
	index          []int32 // stream/2 modulo its length → flight
	greeted        bool
	received       int
}

func newH2(s Spec) *h2 {
	h := &h2{kind: s.Kind, next: 1, block: requestBlock(s.Kind != "h2"), flights: make([]flight, max(s.Streams, 1)), index: make([]int32, 4096)}
	h.want = wire.Body(s.Size)
	if s.Kind != "h2" {
		h.message = wire.Message(s.Size)
		h.want = h.message
	}
	return h
}

func requestBlock(grpc bool) []byte {
	lit := wire.Literal
	if !grpc {
		b := []byte{0x82, 0x86} // :method GET, :scheme http
		return lit(lit(lit(b, ":path", "/api/v1/items?id=42"), ":authority", "svc.test"), "user-agent", "bench/1")
	}
	b := []byte{0x83, 0x86}
	b = lit(lit(b, ":path", "/bench.Echo/Call"), ":authority", "svc.test")
	return lit(lit(lit(b, "content-type", "application/grpc"), "te", "trailers"), "user-agent", "grpc-go/1.85.0")
}

func (h *h2) free() int {
	for i := range h.flights {
		if !h.flights[i].open {
			return i
		}
	}
	return -1
}

func (h *h2) slots() (n int) {
	for i := range h.flights {
		if !h.flights[i].open {
			n++
		}
	}
	return n
}

func (h *h2) begin(out []byte, from int64) []byte {
	if !h.greeted {
		h.greeted = true
		out = wire.Hello(append(out, wire.Preface...))
	}
	i := h.free()
	f := &h.flights[i]
	fresh := h.kind != "stream" || f.id == 0
	f.from, f.open, f.arrived = from, true, 0
	if fresh {
		f.id = h.next
		h.next += 2
		h.index[f.id/2%uint32(len(h.index))] = int32(i)
		flags := byte(wire.EndHeaders)
		if h.message == nil {
			flags |= wire.End
		}
		out = wire.Frame(out, wire.Headers, flags, f.id, h.block)
	}
	if h.message != nil {
		flags := byte(0)
		if h.kind == "grpc" {
			flags = wire.End
		}
		out = wire.Frame(out, wire.Data, flags, f.id, h.message)
	}
	return out
}

func (h *h2) feed(in, out []byte, r *recorder) (used int, _ []byte, err error) {
	for {
		f, payload, ok := wire.Parse(in[used:])
		if !ok {
			return used, out, nil
		}
		used += 9 + f.Length
		if out, err = h.frame(f, payload, out, r); err != nil {
			return used, out, err
		}
	}
}

func (h *h2) frame(f wire.Head, payload, out []byte, r *recorder) ([]byte, error) {
	switch f.Kind {
	case wire.Settings:
		if f.Flags&wire.Ack == 0 {
			return wire.Frame(out, wire.Settings, wire.Ack, 0, nil), nil
		}
	case wire.Ping:
		if f.Flags&wire.Ack == 0 {
			return wire.Frame(out, wire.Ping, wire.Ack, 0, payload), nil
		}
	case wire.Reset:
		return out, fmt.Errorf("stream %d was reset", f.Stream)
	case wire.GoAway:
		return out, errors.New("GOAWAY")
	case wire.Headers, wire.Data:
		if f.Kind == wire.Data {
			out = h.credit(out, f.Length)
		}
		return out, h.answer(f, payload, r)
	}
	return out, nil
}

// credit opens the connection's window again.
func (h *h2) credit(out []byte, n int) []byte {
	if h.received += n; h.received > 1<<20 {
		out = wire.Window(out, 0, h.received)
		h.received = 0
	}
	return out
}

func (h *h2) answer(f wire.Head, payload []byte, r *recorder) error {
	s := &h.flights[h.index[f.Stream/2%uint32(len(h.index))]]
	if s.id != f.Stream || !s.open && f.Kind == wire.Data {
		return fmt.Errorf("a frame of stream %d, which isn't open", f.Stream)
	}
	end := f.Flags&wire.End != 0
	if f.Kind == wire.Headers {
		if s.arrived == 0 && !isOK(payload) && !end {
			return fmt.Errorf("stream %d does not begin with status 200", f.Stream)
		}
	} else {
		if s.arrived+len(payload) > len(h.want) || !bytes.Equal(payload, h.want[s.arrived:s.arrived+len(payload)]) {
			return fmt.Errorf("wrong bytes after %d of a body", s.arrived)
		}
		s.arrived += len(payload)
	}
	if h.kind == "stream" {
		if end {
			return fmt.Errorf("stream %d ended", f.Stream)
		}
		if s.arrived == len(h.want) {
			s.open, s.arrived = false, 0
			r.done(s.from)
		}
		return nil
	}
	if end {
		if s.arrived != len(h.want) || (h.kind == "grpc") != (f.Kind == wire.Headers) {
			return fmt.Errorf("stream %d ended after %d bytes, want %d", f.Stream, s.arrived, len(h.want))
		}
		s.open = false
		r.done(s.from)
	}
	return nil
}

// isOK says whether a header block begins with the indexed :status 200, after
// any change of the table's size.
func isOK(block []byte) bool {
	for len(block) > 0 && block[0]&0xe0 == 0x20 {
		more := block[0] == 0x3f
		for block = block[1:]; more && len(block) > 0; block = block[1:] {
			more = block[0]&0x80 != 0
		}
	}
	return len(block) > 0 && block[0] == 0x88
}
