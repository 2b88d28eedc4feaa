package conform

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	recordChangeCipher = 20
	recordAlert        = 21
	recordHandshake    = 22
	recordData         = 23
)

// receivedAlert is a fatal alert of the server.
type receivedAlert byte

// Error names the alert as records do.
func (a receivedAlert) Error() string { return "alert " + alertNames[uint64(a)] }

// conn12 is the record layer of the TLS 1.2 client. One goroutine reads.
type conn12 struct {
	net.Conn
	in      []byte // bytes of unfinished records
	pending []byte // handshake bytes, then data, not yet taken
	opening bool   // the server encrypts
	open    direction

	writing sync.Mutex
	sealing bool // we encrypt
	seal    direction
	holding bool
	held    []byte
}

// direction is AES-GCM of one direction.
type direction struct {
	aead cipher.AEAD
	salt []byte
	seq  uint64
}

func (d *direction) additional(kind byte, size int) []byte {
	out := binary.BigEndian.AppendUint64(nil, d.seq)
	return append(out, kind, 3, 3, byte(size>>8), byte(size))
}

func (c *conn12) setKeys(ours, ourSalt, theirs, theirSalt []byte) error {
	for _, one := range []struct {
		d         *direction
		key, salt []byte
	}{{&c.seal, ours, ourSalt}, {&c.open, theirs, theirSalt}} {
		block, err := aes.NewCipher(one.key)
		if err != nil {
			return err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return err
		}
		*one.d = direction{aead: aead, salt: one.salt}
	}
	return nil
}

func (c *conn12) writeRecord(kind byte, body []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.sealing {
		explicit := binary.BigEndian.AppendUint64(nil, c.seal.seq)
		nonce := append(append([]byte{}, c.seal.salt...), explicit...)
		body = c.seal.aead.Seal(explicit, nonce, body, c.seal.additional(kind, len(body)))
		c.seal.seq++
	}
	version := byte(3)
	if !c.sealing && len(body) > 0 && kind == recordHandshake && body[0] == hsClientHello {
		version = 1
	}
	record := append([]byte{kind, 3, version, byte(len(body) >> 8), byte(len(body))}, body...)
	if c.holding {
		c.held = append(c.held, record...)
		return nil
	}
	_, err := c.Conn.Write(record)
	return err
}

// hold keeps records back until release sends them in one write: a server that
// refuses the first would answer the second with a RST that overtakes its alert.
func (c *conn12) hold() { c.holding = true }

func (c *conn12) release() error {
	c.holding = false
	_, err := c.Conn.Write(c.held)
	c.held = nil
	return err
}

// readRecord is the next record, decrypted. Unfinished bytes stay for the next call.
func (c *conn12) readRecord() (byte, []byte, error) {
	for len(c.in) < 5 || len(c.in) < 5+int(binary.BigEndian.Uint16(c.in[3:])) {
		var part [16 << 10]byte
		n, err := c.Conn.Read(part[:])
		c.in = append(c.in, part[:n]...)
		if len(c.in) >= 2 && (c.in[0] < recordChangeCipher || c.in[0] > recordData || c.in[1] != 3) {
			return 0, nil, errWrongVersion
		}
		if err != nil && n == 0 {
			return 0, nil, err
		}
	}
	size := int(binary.BigEndian.Uint16(c.in[3:]))
	kind, body := c.in[0], c.in[5:5+size]
	c.in = c.in[5+size:]
	if !c.opening {
		return kind, body, nil
	}
	if len(body) < 24 {
		return 0, nil, errBadRecord
	}
	nonce := append(append([]byte{}, c.open.salt...), body[:8]...)
	plain, err := c.open.aead.Open(nil, nonce, body[8:], c.open.additional(kind, len(body)-24))
	if err != nil {
		return 0, nil, errBadRecord
	}
	c.open.seq++
	return kind, plain, nil
}

var (
	errWrongVersion = errors.New("tls: wrong version number")
	errBadRecord    = errors.New("tls: bad record")
)

// take takes one record into pending; kinds other than want are dealt with.
func (c *conn12) take(want byte) error {
	kind, body, err := c.readRecord()
	if err != nil {
		return err
	}
	switch {
	case kind == recordAlert && len(body) == 2 && body[1] == 0:
		return io.EOF
	case kind == recordAlert && len(body) == 2:
		return receivedAlert(body[1])
	case kind == recordChangeCipher:
		c.opening = true
	case kind == want:
		c.pending = append(c.pending, body...)
	}
	return nil
}

// message is one whole handshake message with its header.
func (c *conn12) message() ([]byte, error) {
	for {
		if len(c.pending) >= 4 {
			n := 4 + (int(c.pending[1])<<16 | int(c.pending[2])<<8 | int(c.pending[3]))
			if len(c.pending) >= n {
				m := append([]byte{}, c.pending[:n]...)
				c.pending = c.pending[n:]
				return m, nil
			}
		}
		if err := c.take(recordHandshake); err != nil {
			return nil, err
		}
	}
}

// Read reads application data.
func (c *conn12) Read(p []byte) (int, error) {
	for len(c.pending) == 0 {
		if err := c.take(recordData); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

// Write writes application data.
func (c *conn12) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n := min(16<<10, len(p)-done)
		if err := c.writeRecord(recordData, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

// CloseWrite sends close_notify.
func (c *conn12) CloseWrite() error { return c.writeRecord(recordAlert, []byte{1, 0}) }

// client12 does the handshake by hand on w, with the session of d.resume if it has
// one.
func client12(w *wire, d dialing, deadline time.Time) (*wire, string) {
	c := &conn12{Conn: w.tcp}
	h := &handshake12{conn: c, spec: d.tls}
	if d.resume != nil {
		h.offered, h.spec = d.resume.session12, d.resume.session12.spec
	}
	if h.spec.Cert != "" {
		cert, err := loadCert(d.folder, h.spec.Cert)
		if err != nil {
			w.closeBy("fin")
			return nil, "error:" + err.Error()
		}
		h.cert = cert
	}
	_ = w.tcp.SetDeadline(deadline)
	err := h.do()
	_ = w.tcp.SetDeadline(time.Time{})
	if err != nil {
		w.closeBy("fin")
		return nil, failedHandshake(err)
	}
	h.session.spec = h.spec
	w.conn, w.session12 = c, &h.session
	w.tls = object{"version": "TLSv1.2", "alpn": nil, "peer": nil}
	if h.alpn != "" {
		w.tls["alpn"] = h.alpn
	}
	if h.session.peer != nil {
		w.tls["peer"] = peerName(h.session.peer)
	}
	if d.resume != nil {
		w.tls["resumed"] = h.resumed
	}
	return w, ""
}

// failedHandshake is the word for a handshake that did not work.
func failedHandshake(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "timeout"
	}
	if how := endWord(err); strings.HasPrefix(how, "tls:") || how == "rst" {
		return how
	}
	return "tls:CLOSED"
}
