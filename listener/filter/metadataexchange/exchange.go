// Package metadataexchange is istio.metadata_exchange on TCP: two proxies that
// agreed on its ALPN protocol each put a frame about themselves before their
// first byte, inside TLS. The frame is a layer around the TLS layer, so that
// neither side waits for the other: a server that speaks first is heard though
// its client has said nothing yet. listener builds the downstream side; upstream
// wraps the connections of clusters that have the filter.
package metadataexchange

import (
	"encoding/binary"

	"sluice/internal/worker"
	"sluice/listener/downstream"
)

const (
	magic     = 0x3D230467
	headerLen = 8
	maxFrame  = 64 << 10
)

// Frame is the wire form of a protobuf Any.
func Frame(msg []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, magic)
	b = binary.BigEndian.AppendUint32(b, uint32(len(msg)))
	return append(b, msg...)
}

// Filter is the downstream side.
type Filter struct {
	protocol string
	frame    []byte
	got      func(c *downstream.Connection, msg []byte)
}

// New makes the filter. frame (of Frame) is sent, nil: nothing is; got takes
// the peer's Any, valid during the call, and may be nil.
func New(protocol string, frame []byte, got func(c *downstream.Connection, msg []byte)) *Filter {
	return &Filter{protocol: protocol, frame: frame, got: got}
}

// Admit implements downstream.Filter. Without the agreed protocol it does nothing.
func (f *Filter) Admit(c *downstream.Connection, _ func()) downstream.Admission {
	if c.TLS == nil || c.TLS.ALPN != f.protocol || c.Conn.Layer() == nil {
		return downstream.Pass
	}
	c.Conn.SetLayer(Wrap(c.Conn.Layer(), f.frame, func(msg []byte) {
		if f.got != nil {
			f.got(c, msg)
		}
	}))
	return downstream.Pass
}

// layer strips the peer's frame and puts ours before the first byte.
type layer struct {
	worker.Layer
	frame []byte // nil: sent
	head  []byte // the peer's frame so far
	open  bool   // the peer's frame is over
	got   func(msg []byte)
}

// Wrap puts the exchange around a connection's TLS layer; see New.
func Wrap(inner worker.Layer, frame []byte, got func(msg []byte)) worker.Layer {
	return &layer{Layer: inner, frame: frame, got: got}
}

// Open implements worker.Layer. A first byte that begins no frame is data: the
// peer has the protocol but not the filter.
func (l *layer) Open(wire []byte) (plain []byte, used int, err error) {
	plain, used, err = l.Layer.Open(wire)
	if l.open || len(plain) == 0 {
		return plain, used, err
	}
	l.head = append(l.head, plain...)
	n, known := frameLen(l.head)
	switch {
	case known && n == 0:
		// Bytes that were held back may be more than this record had, so that
		// they may not fit in its place; they are short of a header, and go first.
		l.open = true
		return l.release(wire, 0), used, err
	case !known || len(l.head) < n:
		return wire[:0], used, err
	}
	l.open = true
	l.got(l.head[headerLen:n])
	return l.release(wire, n), used, err
}

// release gives what was held back after n bytes. It always fits: the frame's
// header is longer than what can be held back before it is told to be none, and
// records take more than their plaintext.
func (l *layer) release(wire []byte, n int) []byte {
	k := copy(wire, l.head[n:])
	l.head = nil
	return wire[:k]
}

// frameLen tells the length of the frame at the front of b, 0 if there is none.
func frameLen(b []byte) (n int, known bool) {
	var m [4]byte
	binary.BigEndian.PutUint32(m[:], magic)
	k := min(len(b), len(m))
	if string(b[:k]) != string(m[:k]) {
		return 0, true
	}
	if len(b) < headerLen {
		return 0, false
	}
	size := binary.BigEndian.Uint32(b[4:])
	if size > maxFrame {
		return 0, true
	}
	return headerLen + int(size), true
}

// Seal implements worker.Layer.
func (l *layer) Seal(dst, plain []byte) []byte {
	if l.frame != nil && len(plain) > 0 {
		dst = l.Layer.Seal(dst, l.frame)
		l.frame = nil
	}
	return l.Layer.Seal(dst, plain)
}
