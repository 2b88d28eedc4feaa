package origin

import (
	"bytes"
	"strconv"

	"sluice/bench/loop"
	"sluice/bench/wire"
)

// answers are the frames of a response without their stream.
type answers struct {
	kind                 string
	head, body, trailers []byte
}

func newAnswers(kind string, body []byte) answers {
	a := answers{kind: kind, body: body}
	a.head = wire.Literal(wire.Literal([]byte{0x88}, "content-type", "text/plain"), "content-length", strconv.Itoa(len(body)))
	if kind != "h2" {
		a.head = wire.Literal([]byte{0x88}, "content-type", "application/grpc")
		a.body = wire.Message(len(body))
		a.trailers = wire.Literal(nil, "grpc-status", "0")
	}
	return a
}

// h2 answers every request that has ended (h2, grpc), or sends back the bytes of
// a stream as they come (stream).
type h2 struct {
	end
	answers  answers
	greeted  bool
	received int
}

// Feed implements loop.Handler.
func (h *h2) Feed(c *loop.Conn, in []byte) (used int, err error) {
	if !h.greeted {
		if len(in) < len(wire.Preface) || !bytes.HasPrefix(in, []byte(wire.Preface)) {
			return 0, nil
		}
		h.greeted, used = true, len(wire.Preface)
		c.Out = wire.Hello(c.Out)
	}
	for {
		f, payload, ok := wire.Parse(in[used:])
		if !ok {
			return used, nil
		}
		used += 9 + f.Length
		h.frame(c, f, payload)
	}
}

func (h *h2) frame(c *loop.Conn, f wire.Head, payload []byte) {
	switch {
	case f.Kind == wire.Settings && f.Flags&wire.Ack == 0:
		c.Out = wire.Frame(c.Out, wire.Settings, wire.Ack, 0, nil)
	case f.Kind == wire.Ping && f.Flags&wire.Ack == 0:
		c.Out = wire.Frame(c.Out, wire.Ping, wire.Ack, 0, payload)
	case f.Kind == wire.Data:
		if h.received += f.Length; h.received > 1<<20 {
			c.Out = wire.Window(c.Out, 0, h.received)
			h.received = 0
		}
		if h.answers.kind == "stream" && f.Length > 0 {
			c.Out = wire.Frame(c.Out, wire.Data, 0, f.Stream, payload)
		}
	case f.Kind == wire.Headers && h.answers.kind == "stream":
		c.Out = wire.Frame(c.Out, wire.Headers, wire.EndHeaders, f.Stream, h.answers.head)
	}
	if (f.Kind == wire.Headers || f.Kind == wire.Data) && f.Flags&wire.End != 0 {
		c.Out = h.answers.finish(c.Out, f.Stream)
	}
}

func (a *answers) finish(out []byte, stream uint32) []byte {
	if a.kind == "stream" {
		return wire.Frame(out, wire.Headers, wire.EndHeaders|wire.End, stream, a.trailers)
	}
	out = wire.Frame(out, wire.Headers, wire.EndHeaders, stream, a.head)
	if a.trailers == nil {
		return wire.Frame(out, wire.Data, wire.End, stream, a.body)
	}
	out = wire.Frame(out, wire.Data, 0, stream, a.body)
	return wire.Frame(out, wire.Headers, wire.EndHeaders|wire.End, stream, a.trailers)
}
