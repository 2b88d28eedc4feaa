// Package wire is what the load generator and the back ends agree on: the bytes
// of a body, and the little of HTTP/2 that both of them speak. Header blocks use
// only the static table and literals without indexing, so that neither side
// keeps a state for them.
package wire

import "encoding/binary"

// Kinds of HTTP/2 frames and their flags.
const (
	Data, Headers, Reset, Settings, Ping, GoAway, WindowUpdate = 0, 1, 3, 4, 6, 7, 8
	End, Ack, EndHeaders                                       = 1, 1, 4
	bigWindow                                                  = 1<<31 - 1
)

// Preface is what a client sends first.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Body gives n bytes that repeat with a long period, so that a lost, doubled or
// moved piece shows.
func Body(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = 'a' + byte(x>>24)%26
	}
	return b
}

// Head is the head of a frame.
type Head struct {
	Length      int
	Kind, Flags byte
	Stream      uint32
}

// Parse reads a frame from the front of b; false when it isn't all there.
func Parse(b []byte) (h Head, payload []byte, ok bool) {
	if len(b) < 9 {
		return h, nil, false
	}
	h = Head{Length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]), Kind: b[3], Flags: b[4], Stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31)}
	if len(b) < 9+h.Length {
		return h, nil, false
	}
	return h, b[9 : 9+h.Length], true
}

// Frame appends a frame to b.
func Frame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// Window appends a WINDOW_UPDATE to b.
func Window(b []byte, stream uint32, n int) []byte {
	b = append(b, 0, 0, 4, WindowUpdate, 0)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// Literal appends a header field without indexing; name and value are shorter than 127 bytes.
func Literal(b []byte, name, value string) []byte {
	b = append(b, 0, byte(len(name)))
	b = append(b, name...)
	b = append(b, byte(len(value)))
	return append(b, value...)
}

// Hello appends SETTINGS with windows that never close, and the connection's window.
func Hello(b []byte) []byte {
	s := []byte{0, 4}
	s = binary.BigEndian.AppendUint32(s, bigWindow)
	s = append(s, 0, 3)
	s = binary.BigEndian.AppendUint32(s, 1<<20)
	b = Frame(b, Settings, 0, 0, s)
	return Window(b, 0, bigWindow-65535)
}

// Message is a gRPC message of n bytes with its five bytes of prefix.
func Message(n int) []byte {
	b := append(make([]byte, 5, n+5), Body(n)...)
	binary.BigEndian.PutUint32(b[1:], uint32(n))
	return b
}
