package tlsconn

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"time"

	"crypto/tls"

	"sluice/internal/worker"
)

// maxWaiting bounds what a peer may send ahead of the handshake.
const maxWaiting = 128 << 10

// maxTaken bounds what a handshake may be in all. BoringSSL takes certificates of
// 100 KB, and what else there is has a few; crypto/tls would take 256 KB and more
// round them, and parse them for 6 ms before anything is known of the peer.
const maxTaken = 116 << 10

var errGone = errors.New("connection closed during the handshake")

// handshake is both ends of a hand-over: the worker's Handler, which collects
// what arrives, and the net.Conn of crypto/tls in a coroutine. Output leaves a
// flight at a time, when a piece is done.
type handshake struct {
	pool   *Pool
	c      *worker.Conn
	w      *worker.Worker
	done   func(*State, error)
	setup  func() (*tls.Conn, error)
	timer  worker.Timer
	piece  worker.Deferred
	client bool
	long   bool // a piece takes longer than a worker should

	// The worker's.
	arrived []byte // while a piece was under way
	begun   bool
	home    *home // once begun
	busy    bool  // a piece is under way or waits for its turn
	ended   bool  // no more bytes will come
	over    bool  // done was called

	// The piece's while one is under way, then the worker's.
	co            *coroutine // nil before the first piece and after the last
	shaken        bool       // there is a result
	result        result
	judge         func() // what a goroutine does of the piece, see aside
	in            []byte // unread bytes of the peer
	out           []byte // bytes for the wire
	eof           bool   // nothing comes after in
	err           error
	left          int    // bytes of the current record that crypto/tls hasn't had
	taken         int    // bytes of all records so far
	sent          []byte // everything written, to count records under the last key
	inKey         []byte // traffic secrets, once known
	outKey        []byte
	hsKey         []byte // our handshake secret
	suite         uint16
	version       uint16
	keepsSessions bool   // a client's
	remote        string // a client's: where it connected to
	peer          *identity
	untrusted     bool // peer is taken as it is: nobody vouches for it
	needSNI       bool
	verdict       *Error // why verification failed; its alert replaces crypto/tls's
	alerted       bool
	local         *tls.Certificate // what we showed
	mem           *memory          // takes over from the net.Conn for a legacy layer
}

// OnData collects, and goes on when a whole record is there.
func (h *handshake) OnData(c *worker.Conn, b []byte) int {
	h.arrived = append(h.arrived, b...)
	if len(h.arrived) > maxWaiting {
		c.PauseRead()
	}
	if !h.busy {
		h.takeArrived()
		if h.fed() {
			h.goOn()
		}
	}
	return len(b)
}

// takeArrived gives what arrived to the next piece.
func (h *handshake) takeArrived() {
	if len(h.in) == 0 {
		h.in, h.arrived = h.arrived, nil
	} else {
		h.in, h.arrived = append(h.in, h.arrived...), nil
	}
	h.eof = h.ended
}

// fed says whether what a piece would wait for is there.
func (h *handshake) fed() bool {
	return wholeRecords(h.in) > 0 || !looksLikeTLS(h.in) || h.eof || h.err != nil
}

// goOn begins a piece: on the worker, after the turn's output, or on a goroutine;
// the first one's place is that of all.
func (h *handshake) goOn() {
	if !h.begun {
		if !h.pool.admit() {
			h.abandon(&Error{Text: "TLS_error:|too many handshakes:TLS_error_end"})
			h.c.Close()
			return
		}
		h.begun = true
		if h.long || h.w.Pieces() >= maxPieces || h.pool.open.Load() > storm {
			h.home = &h.pool.away
		} else {
			h.home = h.pool.homeOf(h.w)
		}
	}
	h.busy = true
	if h.home == &h.pool.away {
		h.pool.give(h)
	} else {
		h.w.Spare(&h.piece)
	}
}

func (h *handshake) onWorker() {
	h.compute()
	h.computed()
}

// computed takes the outcome of a piece up, on the worker.
func (h *handshake) computed() {
	if h.judge != nil {
		return // the piece isn't done
	}
	h.busy = false
	switch {
	case h.over:
		h.giveUp()
	case h.shaken:
		h.finish(h.result)
	default:
		h.flushOut()
		if h.takeArrived(); h.fed() {
			h.goOn()
		}
	}
}

// looksLikeTLS is false for a whole record header that can be none.
func looksLikeTLS(b []byte) bool {
	return len(b) < headerLen || b[0] >= recordCCS && b[0] <= recordData && b[1] == 3
}

// notTLS ends a handshake before crypto/tls sees it, as BoringSSL does: HTTP
// is closed without a word, the rest is told the version is wrong.
func (h *handshake) notTLS() {
	h.verdict = &Error{Text: boring(247, "WRONG_VERSION_NUMBER", "")}
	switch {
	case isHTTP(h.in):
		h.verdict.Text = boring(156, "HTTP_REQUEST", "")
	case string(h.in[:headerLen]) == "CONNE":
		h.verdict.Text = boring(155, "HTTPS_PROXY_REQUEST", "")
	default:
		h.out = append(h.out, recordAlert, 3, 1, 0, 2, 2, alertVersion)
	}
	h.alerted, h.err = true, h.verdict
}

// OnEOF ends the handshake, after what came before: that may be an alert.
func (h *handshake) OnEOF(c *worker.Conn) {
	if !h.noMore() {
		c.Close()
	}
}

// noMore has the handshake use up what came and end; false: none has begun.
func (h *handshake) noMore() bool {
	if !h.begun {
		return false
	}
	h.ended = true
	if !h.busy && !h.over {
		h.takeArrived()
		h.goOn()
	}
	return true
}

// OnDrain has nothing to do: a flight is bounded.
func (h *handshake) OnDrain(*worker.Conn) {}

// OnConnect can't happen: the connection is up.
func (h *handshake) OnConnect(*worker.Conn, error) {}

// OnClose ends the handshake like OnEOF: a reset may have an alert before it.
func (h *handshake) OnClose(_ *worker.Conn, err error) {
	if h.over || h.noMore() {
		return
	}
	if err == nil {
		err = errGone
	}
	h.abandon(&Error{Kind: Gone, Cause: err})
}

// abandon tells the caller and ends the coroutine. It runs on the worker.
func (h *handshake) abandon(e *Error) {
	h.w.Stop(&h.timer)
	over := h.over
	h.over = true
	if !h.busy {
		h.giveUp()
	}
	if !over {
		h.c.SetHandler(nobody{})
		h.done(nil, e)
	}
}

// giveUp ends a coroutine that waits for the peer.
func (h *handshake) giveUp() {
	switch {
	case h.co == nil:
	case h.home == &h.pool.away:
		h.err, h.busy = errGone, true
		h.pool.give(h)
	default:
		h.err = errGone
		h.compute()
	}
}

// Read gives crypto/tls at most the rest of one record, so that nothing after
// the handshake is swallowed.
func (h *handshake) Read(p []byte) (int, error) {
	if h.mem != nil {
		return h.mem.Read(p)
	}
	if h.left == 0 && !h.waitRecord() {
		return 0, h.err
	}
	n := min(len(p), h.left, len(h.in))
	copy(p, h.in[:n])
	h.in = h.in[n:]
	h.left -= n
	return n, nil
}

// waitRecord waits for a whole record, or for bytes that are none.
func (h *handshake) waitRecord() bool {
	for h.err == nil {
		if !looksLikeTLS(h.in) {
			h.notTLS()
			break
		}
		if wholeRecords(h.in) > 0 {
			h.take()
			return true
		}
		if h.eof {
			h.err = io.EOF
			break
		}
		if !h.co.wait() {
			h.err = errGone
		}
	}
	return false
}

// take begins a record. One that is too much is made one that crypto/tls refuses,
// with an alert that only it can seal.
func (h *handshake) take() {
	h.left = min(len(h.in), headerLen+int(binary.BigEndian.Uint16(h.in[3:])))
	if h.taken += h.left; h.taken > maxTaken && h.verdict == nil {
		h.verdict = &Error{Text: boring(150, "EXCESSIVE_MESSAGE_SIZE", ""), alert: alertIllegal}
		h.in[3], h.in[4] = 0xff, 0xff
	}
}

// Write keeps a flight until the piece ends.
func (h *handshake) Write(p []byte) (int, error) {
	if h.mem != nil {
		return h.mem.Write(p)
	}
	n := len(p)
	if h.verdict != nil {
		if h.alerted {
			return n, nil
		}
		h.alerted = true
		p = h.alertRecord(p)
	} else if !h.client {
		h.sent = append(h.sent, p...)
	}
	h.out = append(h.out, p...)
	return n, nil
}

// flushOut sends what a piece wrote.
func (h *handshake) flushOut() {
	if len(h.out) > 0 {
		h.c.WriteNow(h.out) // at once: after a failure the caller may close without waiting
		h.out = h.out[:0]
	}
}

// Close and the rest complete net.Conn.
func (h *handshake) Close() error         { return nil }
func (h *handshake) LocalAddr() net.Addr  { return nil }
func (h *handshake) RemoteAddr() net.Addr { return &net.TCPAddr{} } // crypto/tls prints it

func (h *handshake) SetDeadline(time.Time) error      { return nil }
func (h *handshake) SetReadDeadline(time.Time) error  { return nil }
func (h *handshake) SetWriteDeadline(time.Time) error { return nil }

// keyLog is a tls.Config's KeyLogWriter: the only public way to the secrets.
type keyLog struct{ h *handshake }

func (k keyLog) Write(line []byte) (int, error) {
	f := bytes.Fields(line)
	if len(f) != 3 {
		return len(line), nil
	}
	secret := make([]byte, hex.DecodedLen(len(f[2])))
	if _, err := hex.Decode(secret, f[2]); err != nil {
		return 0, err
	}
	h := k.h
	ours, theirs, early := "SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0", "SERVER_HANDSHAKE_TRAFFIC_SECRET"
	if h.client {
		ours, theirs, early = theirs, ours, "CLIENT_HANDSHAKE_TRAFFIC_SECRET"
	}
	switch string(f[0]) {
	case ours:
		h.outKey = secret
	case theirs:
		h.inKey = secret
	case early:
		h.hsKey = secret
	}
	return len(line), nil
}

// takeover makes our record layer. A server may have sent session tickets under
// the last key already: they are found among what it wrote.
func (h *handshake) takeover(suite uint16) (*records, error) {
	rd, err := newHalf(suite, h.inKey)
	if err != nil {
		return nil, err
	}
	wr, err := newHalf(suite, h.outKey)
	if err != nil {
		return nil, err
	}
	if !h.client {
		wr.seq = countUnder(wr, h.sent)
	}
	return &records{rd: rd, wr: wr, client: h.client}, nil
}

// countUnder counts the last records of b that are sealed with k: the first one
// that opens with sequence number 0, and all after it.
func countUnder(k *half, b []byte) uint64 {
	var n uint64
	for len(b) >= headerLen {
		size := min(len(b), headerLen+int(binary.BigEndian.Uint16(b[3:])))
		if n > 0 {
			n++
		} else if b[0] == recordData && size > headerLen+k.aead.Overhead() {
			rec := bytes.Clone(b[:size])
			if _, _, ok := k.open(rec, rec); ok {
				n = 1
			}
		}
		b = b[size:]
	}
	return n
}

// alertRecord is the alert that Envoy would send for the verdict. crypto/tls
// says bad_certificate to everything a callback refuses; p is its record.
func (h *handshake) alertRecord(p []byte) []byte {
	body := []byte{2, h.verdict.alert}
	if len(p) == headerLen+2 && p[0] == recordAlert {
		return append(bytes.Clone(p[:headerLen-2]), 0, 2, 2, h.verdict.alert)
	}
	key := h.outKey
	if h.client {
		key = h.hsKey
	}
	if key == nil || !owns(h.suite) {
		return p
	}
	k, err := newHalf(h.suite, key)
	if err != nil {
		return p
	}
	if !h.client {
		k.seq = countUnder(k, h.sent)
	}
	return k.seal(nil, recordAlert, body)
}
