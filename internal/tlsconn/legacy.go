package tlsconn

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// legacy is a worker.Layer over a tls.Conn fed from memory: for TLS 1.2, for
// suites that records doesn't have, and when records are switched off.
type legacy struct {
	conn *tls.Conn
	mem  *memory
	err  error // what Seal met
}

// errEmpty is what a read of no bytes gives: temporary, so that crypto/tls goes
// on with the next ones.
type errEmpty struct{}

func (errEmpty) Error() string   { return "no bytes yet" }
func (errEmpty) Timeout() bool   { return true }
func (errEmpty) Temporary() bool { return true }

// memory is the net.Conn below a legacy layer: what Open was given, and what
// Seal is to return.
type memory struct {
	in  []byte
	out []byte
}

func (m *memory) Read(p []byte) (int, error) {
	if len(m.in) == 0 {
		return 0, errEmpty{}
	}
	n := copy(p, m.in)
	m.in = m.in[n:]
	return n, nil
}

func (m *memory) Write(p []byte) (int, error) {
	m.out = append(m.out, p...)
	return len(p), nil
}

func (m *memory) Close() error                     { return nil }
func (m *memory) LocalAddr() net.Addr              { return nil }
func (m *memory) RemoteAddr() net.Addr             { return nil }
func (m *memory) SetDeadline(time.Time) error      { return nil }
func (m *memory) SetReadDeadline(time.Time) error  { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

// Open implements worker.Layer. It gives crypto/tls whole records only, so that
// the plaintext fits where they were.
func (l *legacy) Open(wire []byte) (plain []byte, used int, err error) {
	used = wholeRecords(wire)
	l.mem.in = wire[:used]
	w := 0
	for w < used {
		// Read copies the record out of mem before it writes, and what was
		// written is never longer than what was read.
		n, err := l.conn.Read(wire[w:used])
		w += n
		if err == nil {
			continue
		}
		var empty errEmpty
		if errors.As(err, &empty) {
			break
		}
		l.mem.in = nil
		if errors.Is(err, io.EOF) {
			return wire[:w], len(wire), io.EOF
		}
		return wire[:w], used, asError(err)
	}
	l.mem.in = nil
	return wire[:w], used, nil
}

// wholeRecords is the length of the whole records at the front of b.
func wholeRecords(b []byte) int {
	at := 0
	for len(b)-at >= headerLen {
		n := headerLen + int(binary.BigEndian.Uint16(b[at+3:]))
		if n > headerLen+maxCipher+2048 {
			return len(b) // crypto/tls refuses it
		}
		if len(b)-at < n {
			break
		}
		at += n
	}
	return at
}

// Seal implements worker.Layer.
func (l *legacy) Seal(dst, plain []byte) []byte {
	l.mem.out = append(dst, l.mem.out...) // what Open made crypto/tls say comes first
	if _, err := l.conn.Write(plain); err != nil {
		l.err = err
	}
	dst = l.mem.out
	l.mem.out = nil
	return dst
}

// SealClose implements worker.Layer.
func (l *legacy) SealClose(dst []byte) []byte {
	l.mem.out = append(dst, l.mem.out...)
	l.conn.CloseWrite() // after an error its alert is in out already
	dst = l.mem.out
	l.mem.out = nil
	return dst
}
