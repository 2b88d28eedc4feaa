package conform

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wire is a socket, plain or TLS, and what was read from it. Every way it can
// end has one word: fin, rst, closed (by ourselves), tls:REASON, error:TEXT.
// One goroutine reads (fill and what calls it); writes may come from others.
type wire struct {
	conn   net.Conn // the TLS connection, or tcp
	tcp    *net.TCPConn
	buf    []byte // read and not yet taken
	tls    object // version, alpn, peer, sni, resumed; nil without TLS
	shared bool   // a reading goroutine owns buf: a writer must not read

	session   *sessionStore
	config    *tls.Config
	session12 *session12 // of the TLS 1.2 client by hand

	mu  sync.Mutex
	how string
}

func newWire(tcp *net.TCPConn) *wire { return &wire{conn: tcp, tcp: tcp} }

// end is how the peer ended, empty while open.
func (w *wire) end() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.how
}

// endOr is end with a word for an open wire.
func (w *wire) endOr(open string) string {
	if end := w.end(); end != "" {
		return end
	}
	return open
}

// setEnd keeps the first word.
func (w *wire) setEnd(how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.how == "" {
		w.how = how
	}
}

// fill reads once into buf. False when the peer ended or the deadline passed.
// What has arrived is read even when the deadline lies behind.
func (w *wire) fill(deadline time.Time) bool {
	if w.end() != "" {
		return false
	}
	if soon := after(500 * time.Microsecond); deadline.Before(soon) {
		deadline = soon
	}
	_ = w.conn.SetReadDeadline(deadline)
	var part [16 << 10]byte
	n, err := w.conn.Read(part[:])
	w.buf = append(w.buf, part[:n]...)
	if n > 0 {
		return true
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		how := endWord(err)
		if how == "rst" && w.tls != nil {
			how = "fin" // records do not tell them apart when they read TLS
		}
		w.setEnd(how)
	}
	return false
}

// send sends all; false when the peer ended first or the deadline passed.
func (w *wire) send(data []byte, deadline time.Time) bool {
	if end := w.end(); len(data) > 0 && end != "" && end != "fin" {
		return false
	}
	_ = w.conn.SetWriteDeadline(deadline)
	_, err := w.conn.Write(data)
	if err == nil || len(data) == 0 {
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	// What the peer said before it closed tells more than the failed write.
	if w.shared {
		for soon := after(200 * time.Millisecond); w.end() == "" && left(soon) > 0; {
			time.Sleep(time.Millisecond)
		}
	} else {
		w.drain(after(200 * time.Millisecond))
	}
	w.setEnd(endWord(err))
	return false
}

func (w *wire) take(n int) []byte {
	n = min(n, len(w.buf))
	data := w.buf[:n:n]
	w.buf = w.buf[n:]
	return data
}

func (w *wire) takeAll() []byte { return w.take(len(w.buf)) }

// drain reads until the peer ends or the deadline passes.
func (w *wire) drain(deadline time.Time) {
	for w.fill(deadline) {
	}
}

// need reads until n bytes stand in buf; false when they did not come.
func (w *wire) need(n int, deadline time.Time) bool {
	for len(w.buf) < n {
		if !w.fill(deadline) {
			return false
		}
	}
	return true
}

// line takes a line without its CRLF; false when none came.
func (w *wire) line(deadline time.Time) (string, bool) {
	for {
		if at := bytes.Index(w.buf, []byte("\r\n")); at >= 0 {
			return latin1(w.take(at + 2)[:at]), true
		}
		if !w.fill(deadline) {
			return "", false
		}
	}
}

// halfClose sends close_notify (on TLS) and FIN, and reads on.
func (w *wire) halfClose() {
	w.closeNotify()
	_ = w.tcp.CloseWrite()
}

// closeBy closes with rst or, for any other word, with FIN.
func (w *wire) closeBy(how string) {
	if how == "rst" {
		_ = w.tcp.SetLinger(0)
	} else {
		w.closeNotify()
		_ = w.tcp.CloseWrite()
		_ = w.tcp.CloseRead()
	}
	_ = w.tcp.Close()
}

// awaitFIN waits for the FIN that follows a close_notify: before it, a proxy that
// forwards TLS as bytes has not seen the end.
func (w *wire) awaitFIN() {
	_ = w.tcp.SetReadDeadline(after(50 * time.Millisecond))
	var rest [512]byte
	for {
		if _, err := w.tcp.Read(rest[:]); err != nil {
			return
		}
	}
}

func (w *wire) closeNotify() {
	if c, ok := w.conn.(interface{ CloseWrite() error }); ok && w.tls != nil {
		_ = c.CloseWrite()
	}
}

func endWord(err error) string {
	var alert *net.OpError
	var received receivedAlert
	switch {
	case errors.As(err, &received):
		return "tls:" + alertNames[uint64(received)]
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "fin"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "rst"
	case errors.Is(err, net.ErrClosed):
		return "closed"
	case errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error"):
		return "tls:" + alertWord(alert)
	}
	if word := tlsWord(err); word != "" {
		return "tls:" + word
	}
	return "error:" + err.Error()
}

// dialing is where a connection goes to and comes from.
type dialing struct {
	address string // 127.0.0.1 when empty
	port    int
	source  string // ADDRESS or ADDRESS:PORT, any when empty
	first   []byte // goes out before TLS
	tls     *tlsSpec
	resume  *wire // whose session is offered
	folder  string
}

// dial connects. Without a connection the word says why: refused, timeout, rst,
// fin, tls:REASON.
func dial(d dialing, deadline time.Time) (*wire, string) {
	if d.address == "" {
		d.address = host
	}
	dialer := net.Dialer{Deadline: deadline, KeepAlive: -1}
	if d.source != "" {
		from, port, _ := net.SplitHostPort(d.source)
		if from == "" {
			from = d.source
		}
		number, _ := strconv.Atoi(port)
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from), Port: number}
		dialer.Control = reuseAddress
	}
	conn, err := dialer.DialContext(context.Background(), "tcp", net.JoinHostPort(d.address, strconv.Itoa(d.port)))
	if err != nil {
		var timeout net.Error
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil, "refused"
		case errors.As(err, &timeout) && timeout.Timeout():
			return nil, "timeout"
		}
		return nil, endWord(err)
	}
	w := newWire(conn.(*net.TCPConn))
	if len(d.first) > 0 && !w.send(d.first, deadline) {
		w.closeBy("fin")
		return nil, w.endOr("timeout")
	}
	if d.tls != nil {
		return clientTLS(w, d, deadline)
	}
	return w, ""
}

func reuseAddress(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})
	return errors.Join(err, failed)
}
