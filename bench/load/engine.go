package load

import (
	"bytes"
	"errors"
	"fmt"

	"sluice/bench/wire"
)

// engine is a protocol on one connection, without I/O.
type engine interface {
	// begin appends the bytes of a new unit whose clock starts at the time from.
	begin(out []byte, from int64) []byte
	// slots is how many more units may begin now.
	slots() int
	// feed takes an answer's bytes, tells r of finished units, and appends what
	// the protocol wants sent.
	feed(in, out []byte, r *recorder) (used int, reply []byte, err error)
}

func newEngine(s Spec) (engine, error) {
	switch s.Kind {
	case "h1":
		return &h1{body: wire.Body(s.Size)}, nil
	case "h2", "grpc", "stream":
		return newH2(s), nil
	case "pingpong":
		return &pingPong{message: wire.Body(s.Size)}, nil
	case "down":
		return &down{chunk: wire.Body(chunk)}, nil
	}
	return nil, fmt.Errorf("unknown load %q", s.Kind)
}

// chunk is what source and sink repeat; it is origin.Chunk, which the test compares.
const chunk = 256 << 10

// h1 sends GET requests of the shape a client library sends, and checks status,
// length and every byte of each answer.
type h1 struct {
	body    []byte
	from    int64
	flying  bool
	inBody  bool
	arrived int
}

// Request is what an HTTP/1.1 client sends.
const Request = "GET /api/v1/items?id=42 HTTP/1.1\r\nHost: svc.test\r\nUser-Agent: bench/1\r\nAccept: */*\r\nx-a: b\r\n\r\n"

func (h *h1) begin(out []byte, from int64) []byte {
	h.from, h.flying = from, true
	return append(out, Request...)
}

func (h *h1) slots() int {
	if h.flying {
		return 0
	}
	return 1
}

func (h *h1) feed(in, out []byte, r *recorder) (used int, _ []byte, err error) {
	for used < len(in) {
		if !h.inBody {
			i := bytes.Index(in[used:], []byte("\r\n\r\n"))
			if i < 0 {
				return used, out, nil
			}
			if err := h.head(in[used : used+i+2]); err != nil {
				return used, out, err
			}
			used, h.inBody, h.arrived = used+i+4, true, 0
		}
		n := min(len(in)-used, len(h.body)-h.arrived)
		if !bytes.Equal(in[used:used+n], h.body[h.arrived:h.arrived+n]) {
			return used, out, fmt.Errorf("wrong bytes after %d of a body", h.arrived)
		}
		used, h.arrived = used+n, h.arrived+n
		if h.arrived == len(h.body) {
			h.inBody, h.flying = false, false
			r.done(h.from)
		}
	}
	return used, out, nil
}

func (h *h1) head(head []byte) error {
	if !h.flying {
		return errors.New("an answer that was not asked for")
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("answer %q", bytes.SplitN(head, []byte("\r\n"), 2)[0])
	}
	length := -1
	for rest := head; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		line := rest[:i]
		rest = rest[i+1:]
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			length = decimal(line[len(name):])
		}
	}
	if length != len(h.body) {
		return fmt.Errorf("answer of %d bytes, want %d", length, len(h.body))
	}
	return nil
}

func decimal(b []byte) (n int) {
	for _, c := range b {
		if c >= '0' && c <= '9' {
			n = n*10 + int(c-'0')
		}
	}
	return n
}

// pingPong sends a message and wants the same back.
type pingPong struct {
	message []byte
	from    int64
	flying  bool
}

func (p *pingPong) begin(out []byte, from int64) []byte {
	p.from, p.flying = from, true
	return append(out, p.message...)
}

func (p *pingPong) slots() int {
	if p.flying {
		return 0
	}
	return 1
}

func (p *pingPong) feed(in, out []byte, r *recorder) (int, []byte, error) {
	if len(in) < len(p.message) {
		return 0, out, nil
	}
	if !p.flying || !bytes.Equal(in, p.message) {
		return 0, out, errors.New("an echo that isn't what was sent")
	}
	p.flying = false
	r.done(p.from)
	return len(in), out, nil
}

// down takes what a source sends; units are bytes.
type down struct {
	chunk []byte
	at    int
}

func (d *down) begin(out []byte, _ int64) []byte { return out }
func (d *down) slots() int                       { return 0 }

func (d *down) feed(in, out []byte, r *recorder) (int, []byte, error) {
	for rest := in; len(rest) > 0; {
		n := min(len(rest), len(d.chunk)-d.at)
		if !bytes.Equal(rest[:n], d.chunk[d.at:d.at+n]) {
			return 0, out, fmt.Errorf("wrong bytes at %d of a chunk", d.at)
		}
		rest, d.at = rest[n:], (d.at+n)%len(d.chunk)
	}
	r.moved(len(in))
	return len(in), out, nil
}
