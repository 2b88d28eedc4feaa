package budget

import (
	"encoding/binary"
	"testing"

	"sluice/internal/h2/hpack"
	"sluice/internal/httpmsg"
)

// Frames of HTTP/2, as many as a unary call needs.
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway, frameWindow = 0, 1, 3, 4, 7, 8
	endStream, endHeaders, ack                                                   = 1, 4, 1
	frameHead                                                                    = 9
)

func frame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// opening is what an end begins with: large windows, so that it never has to
// give any back.
func opening() []byte {
	const most = 1<<31 - 1
	b := frame(nil, frameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, most))
	return frame(b, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, most-65535))
}

// message is what one end says in a call: the first times with literal fields,
// later, when they are in the table, with indexed ones.
type message struct{ times [3][]byte }

func (m *message) on(stream uint32, count int) []byte {
	b := m.times[min(count, len(m.times)-1)]
	for at := 0; at < len(b); at += frameHead + length(b[at:]) {
		binary.BigEndian.PutUint32(b[at+5:], stream)
	}
	return b
}

func length(b []byte) int { return int(b[0])<<16 | int(b[1])<<8 | int(b[2]) }

// content is a gRPC message of 200 bytes.
func content() []byte { return append([]byte{0, 0, 0, 0, 200}, make([]byte, 200)...) }

func callMessage() (m message) {
	e := hpack.NewEncoder(4096)
	for i := range m.times {
		b := e.Scheme(e.Method(nil, []byte("POST")), []byte("http"))
		b = e.Authority(e.Path(b, []byte("/demo.Things/Get")), []byte("grpc.demo.svc.cluster.local:7070"))
		b = named(&e, b, "content-type", "application/grpc", "user-agent", "grpc-go/1.80.0", "te", "trailers", "x-tenant", "blue")
		m.times[i] = frame(frame(nil, frameHeaders, endHeaders, 0, b), frameData, endStream, 0, content())
	}
	return m
}

func answerMessage() (m message) {
	e := hpack.NewEncoder(4096)
	for i := range m.times {
		head := named(&e, e.Status(nil, 200), "content-type", "application/grpc")
		m.times[i] = frame(frame(nil, frameHeaders, endHeaders, 0, head), frameData, 0, 0, content())
		m.times[i] = frame(m.times[i], frameHeaders, endHeaders|endStream, 0, named(&e, nil, "grpc-status", "0", "grpc-message", ""))
	}
	return m
}

func named(e *hpack.Encoder, b []byte, list ...string) []byte {
	for i := 0; i < len(list); i += 2 {
		b = e.Field(b, httpmsg.LookupString(list[i]), []byte(list[i]), []byte(list[i+1]), false)
	}
	return b
}

// talk2 is a unary gRPC call.
type talk2 struct {
	t             *testing.T
	call, answer  message
	count         int
	stream, ended uint32 // of the client's call; of the last stream that ended
	opened        bool   // by the origin
	whole         func(b []byte) bool
}

func newGRPC(t *testing.T, name string) *path {
	t.Helper()
	p := newProxy(t, name, nil)
	k := &talk2{t: t, call: callMessage(), answer: answerMessage(), stream: 1}
	k.whole = k.ends // a method value would be made anew in each call
	p.talk = k
	p.write(p.client, append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), opening()...))
	return p
}

func (k *talk2) exchange(p *path) {
	p.write(p.client, k.call.on(k.stream, k.count))
	p.fromProxy(&p.origin, k.whole)
	if !k.opened {
		k.opened = true
		p.write(p.origin, opening())
	}
	p.write(p.origin, k.answer.on(k.ended, k.count))
	p.fromProxy(&p.client, k.whole)
	if k.ended != k.stream {
		k.t.Fatalf("stream %d ended, not %d", k.ended, k.stream)
	}
	k.count++
	k.stream += 2
}

// ends looks for the end of a stream among the frames that came to an end.
func (k *talk2) ends(b []byte) bool {
	if len(b) > 24 && string(b[:3]) == "PRI" {
		b = b[24:]
	}
	for len(b) >= frameHead && len(b) >= frameHead+length(b) {
		kind, flags, stream := b[3], b[4], binary.BigEndian.Uint32(b[5:])
		switch {
		case kind == frameReset || kind == frameGoAway:
			k.t.Fatalf("frame of type %d: %x", kind, b)
		case kind <= frameHeaders && flags&endStream != 0:
			k.ended = stream
			return true
		}
		b = b[frameHead+length(b):]
	}
	return false
}
