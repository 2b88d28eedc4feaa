package tlsconn

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	headerLen       = 5
	recordCCS       = 20
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23
	maxPlain        = 16384
	maxCipher       = maxPlain + 256

	msgTicket    = 4
	msgKeyUpdate = 24

	// maxIdleRecords bounds records in a row that carry no application data:
	// tickets, KeyUpdates, empty ones. A flood costs us key derivations.
	maxIdleRecords = 32
	// maxRekeys bounds KeyUpdates in a row with less than rekeyData bytes before
	// each: one costs as much as opening two thousand bytes, or ten records of one.
	maxRekeys = 32
	rekeyData = 4 << 10
	// maxTicket bounds a handshake message after the handshake.
	maxTicket = 64 << 10
	// rekeyAfter records our side changes its key, well below the limit of
	// 2^24.5 that RFC 8446 section 5.5 sets for AES-GCM.
	rekeyAfter = 1 << 23
)

// records is the TLS 1.3 record layer after the handshake: a worker.Layer that
// works in the worker's buffers. It answers KeyUpdates, drops session tickets
// and turns what must not come into an alert.
type records struct {
	rd, wr  *half
	client  bool
	alert   byte   // what SealClose sends instead of close_notify
	owesKey bool   // the peer asked for a KeyUpdate of ours
	closed  bool   // an alert is out: nothing may follow
	idle    int    // records in a row without data
	rekeys  int    // the peer's KeyUpdates in a row that came early
	data    int    // bytes since the last one
	partial []byte // a handshake message in several records
	eof     bool
	learner *learner // nil: tickets are dropped
}

// Open implements worker.Layer.
func (r *records) Open(wire []byte) (plain []byte, used int, err error) {
	w := 0
	for !r.eof {
		in := wire[used:]
		if len(in) < headerLen {
			break
		}
		n := int(binary.BigEndian.Uint16(in[3:]))
		if in[0] != recordData {
			return wire[:w], used, r.fatal(alertUnexpected, "record of type %d", in[0])
		}
		if n > maxCipher {
			return wire[:w], used, r.fatal(alertOverflow, "record of %d bytes", n)
		}
		if len(in) < headerLen+n {
			break
		}
		used += headerLen + n
		if r.learner != nil && !r.learner.see(in[:headerLen+n]) {
			r.learner = nil
		}
		kind, p, ok := r.rd.open(wire[w:], in[:headerLen+n])
		if !ok {
			return wire[:w], used, r.fatal(alertBadMAC, "record doesn't authenticate")
		}
		if len(p) > maxPlain {
			return wire[:w], used, r.fatal(alertOverflow, "plaintext of %d bytes", len(p))
		}
		if r.learner != nil && !r.learner.learn(kind, p) {
			r.learner = nil
		}
		if kind == recordData && len(p) > 0 && len(r.partial) == 0 {
			r.idle = 0
			r.data += len(p)
			w += len(p) // which is at wire[w:]
			continue
		}
		if err := r.control(kind, p); err != nil {
			return wire[:w], used, err
		}
	}
	if r.eof {
		return wire[:w], len(wire), io.EOF
	}
	return wire[:w], used, nil
}

// control handles a record without data.
func (r *records) control(kind byte, p []byte) error {
	if r.idle++; r.idle > maxIdleRecords {
		return r.fatal(alertUnexpected, "too many records without data")
	}
	switch {
	case kind == recordAlert && len(p) == 2:
		return r.peerAlert(p[1])
	case kind == recordHandshake && len(p) > 0:
		return r.handshake(p)
	case kind == recordData && len(r.partial) == 0:
		return nil
	}
	return r.fatal(alertUnexpected, "inner type %d", kind)
}

func (r *records) peerAlert(code byte) error {
	switch code {
	case alertClose:
		r.eof = true
		return nil
	case alertCanceled:
		return nil
	}
	r.closed = true // RFC 8446 section 6.2: no answer to a fatal alert
	return remoteAlert(code)
}

// handshake takes handshake messages, which may span records.
func (r *records) handshake(p []byte) error {
	r.partial = append(r.partial, p...)
	for len(r.partial) >= 4 {
		n := 4 + int(r.partial[1])<<16 + int(r.partial[2])<<8 + int(r.partial[3])
		if n > maxTicket {
			return r.fatal(alertUnexpected, "handshake message of %d bytes", n)
		}
		if len(r.partial) < n {
			return nil
		}
		msg := r.partial[:n]
		r.partial = r.partial[n:]
		if err := r.message(msg[0], msg[4:]); err != nil {
			return err
		}
	}
	if len(r.partial) == 0 {
		r.partial = nil
	}
	return nil
}

func (r *records) message(kind byte, body []byte) error {
	switch {
	case kind == msgTicket && r.client:
		return nil
	case kind == msgKeyUpdate && len(body) == 1 && body[0] <= 1:
		if len(r.partial) > 0 { // section 5.1: a key change ends its record
			return r.fatal(alertUnexpected, "message after KeyUpdate")
		}
		if r.rekeys++; r.data >= rekeyData {
			r.rekeys = 0
		}
		if r.data = 0; r.rekeys > maxRekeys {
			return r.fatal(alertUnexpected, "too many KeyUpdates")
		}
		r.owesKey = r.owesKey || body[0] == 1
		if err := r.rd.next(); err != nil {
			return r.fatal(alertInternal, "%v", err)
		}
		return nil
	}
	return r.fatal(alertUnexpected, "handshake message %d", kind)
}

func (r *records) fatal(alert byte, format string, args ...any) error {
	r.alert = alert
	return localAlert(alert, fmt.Sprintf(format, args...))
}

// Seal implements worker.Layer.
func (r *records) Seal(dst, plain []byte) []byte {
	if r.closed {
		return dst
	}
	if r.owesKey || r.wr.seq >= rekeyAfter {
		dst = r.updateKey(dst)
	}
	for len(plain) > 0 {
		n := min(len(plain), maxPlain)
		dst = r.wr.seal(dst, recordData, plain[:n])
		plain = plain[n:]
	}
	return dst
}

// updateKey tells the peer of our next key and takes it.
func (r *records) updateKey(dst []byte) []byte {
	r.owesKey = false
	dst = r.wr.seal(dst, recordHandshake, []byte{msgKeyUpdate, 0, 0, 1, 0})
	if err := r.wr.next(); err != nil {
		r.closed = true // HKDF and AES don't fail on keys of the right length
	}
	return dst
}

// SealClose implements worker.Layer.
func (r *records) SealClose(dst []byte) []byte {
	if r.closed {
		return dst
	}
	r.closed = true
	level := byte(2)
	if r.alert == alertClose {
		level = 1
	}
	return r.wr.seal(dst, recordAlert, []byte{level, r.alert})
}
