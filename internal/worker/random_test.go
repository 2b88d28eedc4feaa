package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// records is a Layer of the test: a length of two bytes, then as many bytes of
// which every bit is turned; length 0 is close_notify.
type records struct{}

func (records) Open(wire []byte) (plain []byte, used int, err error) {
	n := 0
	for len(wire)-used >= 2 {
		size := int(binary.BigEndian.Uint16(wire[used:]))
		if size == 0 {
			return wire[:n], used + 2, io.EOF
		}
		if len(wire)-used-2 < size {
			break
		}
		used += 2
		for _, b := range wire[used : used+size] {
			wire[n] = ^b
			n++
		}
		used += size
	}
	return wire[:n], used, nil
}

func (records) Seal(dst, plain []byte) []byte {
	for len(plain) > 0 {
		n := min(len(plain), 16<<10)
		dst = binary.BigEndian.AppendUint16(dst, uint16(n))
		for _, b := range plain[:n] {
			dst = append(dst, ^b)
		}
		plain = plain[n:]
	}
	return dst
}

func (records) SealClose(dst []byte) []byte { return append(dst, 0, 0) }

// driven is a Conn that a random walk drives, and what must be true of it.
type driven struct {
	t       *testing.T
	rnd     *rand.Rand
	w       *Worker
	c       *Conn
	peer    int
	layer   bool
	in, out byte // the next bytes that the conn must read and that it writes

	wrote, read int    // plaintext of the conn's side
	sent        []byte // by the peer, not taken by its socket yet
	sentPlain   int
	wire        []byte // received by the peer, not opened yet
	got         int    // plaintext the peer has
	notified    bool   // the peer has close_notify
	want        byte
	peerGone    bool
	peerEOF     bool // the peer saw FIN or RST
	closing     bool
	cut         bool // output may be lost
	closes      int
	log         []string
}

func (d *driven) say(f string, a ...any) { d.log = append(d.log, fmt.Sprintf(f, a...)) }

func (d *driven) fail(f string, a ...any) {
	d.t.Helper()
	tail := d.log[max(0, len(d.log)-60):]
	d.t.Fatalf("%s\nafter %q", fmt.Sprintf(f, a...), tail)
}

func (d *driven) OnData(c *Conn, b []byte) int {
	if d.closes > 0 || c.Paused() || d.closing {
		d.fail("data after close (%d), in a pause (%v) or a close (%v)", d.closes, c.Paused(), d.closing)
	}
	n := d.rnd.IntN(len(b) + 1)
	if d.rnd.IntN(3) > 0 || len(b) > maxCarry/2 {
		n = len(b)
	}
	for _, x := range b[:n] {
		if x != d.in {
			d.fail("byte %d read is %d, not %d", d.read, x, d.in)
		}
		d.in++
		d.read++
	}
	if d.rnd.IntN(4) == 0 {
		d.step()
	}
	return n
}

func (d *driven) OnEOF(c *Conn)            { d.say("eof"); d.mayStep() }
func (d *driven) OnDrain(c *Conn)          { d.say("drain"); d.mayStep() }
func (d *driven) OnConnect(*Conn, error)   { d.fail("connect of an accepted conn") }
func (d *driven) OnClose(c *Conn, e error) { d.say("close %v", e); d.closes++; d.mayStep() }

func (d *driven) mayStep() {
	if d.rnd.IntN(3) == 0 {
		d.step()
	}
}

// text makes n bytes of output.
func (d *driven) text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = d.out
		d.out++
	}
	if d.c.flags&(dead|finSent|closing|finAfter) == 0 && d.c.werr == 0 {
		d.wrote += n
	} else {
		d.out -= byte(n) // goes nowhere
		d.cut = d.cut || d.c.flags&finSent == 0
	}
	return b
}

func (d *driven) size() int {
	return d.rnd.IntN([]int{1, 10, 3000, 40 << 10, 200 << 10}[d.rnd.IntN(5)] + 1)
}

// step does one thing to the conn.
func (d *driven) step() {
	c := d.c
	over := c.flags&(finAfter|closing) != 0
	switch k := d.rnd.IntN(16); {
	case k < 3:
		if !over {
			n := d.size()
			d.say("write %d", n)
			c.Write(d.text(n))
		}
	case k < 6:
		if !over {
			n := d.size()
			d.say("writenow %d", n)
			c.WriteNow(d.text(n))
		}
	case k < 8:
		if !over {
			n := d.size()
			d.say("grab %d", n)
			c.Put(append(c.Grab(), d.text(n)...))
		}
	case k < 9:
		d.say("pause")
		if !d.closing {
			c.PauseRead()
		}
	case k < 12:
		d.say("resume")
		c.ResumeRead()
	case k < 13 && d.rnd.IntN(10) == 0:
		d.end()
	}
}

// end is one of the ways a conn is closed.
func (d *driven) end() {
	c := d.c
	switch d.rnd.IntN(7) {
	case 0:
		d.say("CloseWhenFlushed")
		c.SetLinger(time.Duration(d.rnd.IntN(2)) * time.Millisecond)
		c.CloseWhenFlushed()
		d.closing = true
	case 1:
		d.say("CloseDelayed")
		c.CloseDelayed(time.Duration(d.rnd.IntN(2)) * time.Millisecond)
		d.closing = true
	case 2:
		d.say("ResetWhenFlushed")
		c.ResetWhenFlushed()
		d.closing = true
	case 3:
		d.say("Close")
		c.Close()
		d.closing, d.cut = true, true
	case 4:
		d.say("Abort")
		c.Abort()
		d.closing, d.cut = true, true
	default:
		d.say("ShutdownWrite")
		c.ShutdownWrite()
	}
}

// peerStep lets the other end write, read, or go.
func (d *driven) peerStep() {
	if d.peerGone {
		return
	}
	switch k := d.rnd.IntN(100); {
	case k < 40:
		n := d.size()
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(d.sentPlain + i)
		}
		d.sentPlain += n
		if d.layer {
			b = records{}.Seal(nil, b)
		}
		d.sent = append(d.sent, b...)
		d.pushSent()
	case k < 60:
		d.pushSent()
	case k < 97:
		d.pull(d.size())
	case k < 98 && d.rnd.IntN(3) == 0:
		d.say("peer shutdown")
		unix.Shutdown(d.peer, unix.SHUT_WR)
		d.sent = nil
	case k < 99 && d.rnd.IntN(3) == 0:
		d.say("peer close")
		unix.Close(d.peer)
		d.peerGone, d.cut = true, true
	}
}

func (d *driven) pushSent() {
	if len(d.sent) == 0 {
		return
	}
	n, err := unix.Write(d.peer, d.sent[:1+d.rnd.IntN(len(d.sent))])
	if err != nil {
		n = 0
		if !errors.Is(err, unix.EAGAIN) {
			d.sent = nil
			return
		}
	}
	d.sent = d.sent[n:]
}

// pull reads what the conn sent and checks it.
func (d *driven) pull(n int) {
	if d.peerGone || d.peerEOF || n == 0 {
		return
	}
	b := make([]byte, n)
	n, err := unix.Read(d.peer, b)
	if err != nil {
		d.peerEOF = !errors.Is(err, unix.EAGAIN)
		return
	}
	if n == 0 {
		d.peerEOF = true
		return
	}
	d.wire = append(d.wire, b[:n]...)
	plain := d.wire
	if d.layer {
		p, used, err := records{}.Open(d.wire)
		if err == io.EOF {
			d.notified = true
		}
		plain = bytes.Clone(p)
		d.wire = bytes.Clone(d.wire[used:])
	} else {
		d.wire = nil
	}
	for _, x := range plain {
		if x != d.want {
			d.fail("byte %d that the peer got is %d, not %d", d.got, x, d.want)
		}
		d.want++
		d.got++
	}
}

// turn is one of the worker's, and what must hold after each.
func (d *driven) turn() {
	n := 0
	if d.w.seen == d.w.got {
		n, _ = unix.EpollWait(d.w.ep, d.w.events, 0)
	}
	d.w.turn(max(n, 0))
	c := d.c
	if h := c.held; h != nil && c.kept() == 0 && c.Pending() == 0 && !d.w.busy() {
		d.fail("nothing is kept or pending, and %+v is held", *h)
	}
	if c.closedForGood() && c.held != nil {
		d.fail("a closed conn holds %+v", *c.held)
	}
	if d.closes > 1 {
		d.fail("closed %d times", d.closes)
	}
	plain := 0
	if c.held != nil {
		plain = c.held.plain
	}
	if c.layer == nil {
		plain = c.kept()
	}
	if !d.closing && c.flags&dead == 0 && int(c.BytesRead()) != d.read+plain {
		d.fail("BytesRead is %d, read %d and %d kept", c.BytesRead(), d.read, plain)
	}
	if int(c.BytesWritten()) > d.wrote {
		d.fail("BytesWritten is %d of %d", c.BytesWritten(), d.wrote)
	}
}

func (c *Conn) closedForGood() bool { return c.flags&(dead|told) == dead|told }

// walk drives one conn to its end.
func walk(t *testing.T, w *Worker, seed uint64) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &driven{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), w: w, peer: fds[1]}
	d.say("seed %d", seed)
	d.c = w.Adopt(fds[0], d)
	if d.layer = seed%2 == 1; d.layer {
		d.c.SetLayer(records{})
	}
	for range 150 + d.rnd.IntN(200) {
		switch d.rnd.IntN(3) {
		case 0:
			d.step()
		case 1:
			d.peerStep()
		case 2:
			d.turn()
		}
	}
	d.finish()
}

// finish closes what is open still: every byte must have come.
func (d *driven) finish() {
	d.say("finish")
	if !d.closing {
		d.c.ResumeRead()
		d.c.SetLinger(0)
		d.c.CloseWhenFlushed()
		d.closing = true
	}
	for end := time.Now().Add(5 * time.Second); d.closes == 0; d.turn() {
		d.pull(1 << 20)
		if d.peerEOF && !d.peerGone {
			unix.Close(d.peer)
			d.peerGone = true
		}
		if time.Now().After(end) {
			d.fail("not closed, flags %b, pending %d", d.c.flags, d.c.Pending())
		}
	}
	for !d.peerEOF && !d.peerGone {
		d.pull(1 << 20)
	}
	if !d.peerGone {
		unix.Close(d.peer)
	}
	if !d.cut && d.c.werr == 0 && d.got != d.wrote && d.c.why() == nil {
		d.fail("the peer got %d bytes of %d", d.got, d.wrote)
	}
}

// Random orders of everything that may be done with a conn: no byte is lost or
// out of order, the counters say what went, and an idle conn holds no buffer.
func TestAnyOrderOfOperationsKeepsEveryByte(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for seed := range uint64(150) {
		walk(t, w, seed)
	}
	if w.Conns() != 0 {
		t.Errorf("%d conns are left", w.Conns())
	}
}

// A Conn that is closed while it connects has the time limit of every close once
// it is connected: a peer that takes nothing doesn't hold it.
func TestCloseWhileConnectingKeepsItsTimeLimit(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd, err := OpenListener(netip.MustParseAddrPort("127.0.0.1:0"), "", SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	closed := false
	c := w.Dial(SocketName(fd), "", DialOptions{Timeout: time.Minute}, &fake{close: func(*Conn, error) { closed = true }})
	c.Write(make([]byte, 16<<20))
	c.CloseWhenFlushed()
	for range 6 {
		for range 3 {
			n, _ := unix.EpollWait(w.ep, w.events, 10)
			w.turn(max(n, 0))
		}
		w.base = w.base.Add(-flushTimeout)
	}
	if !closed {
		t.Errorf("not closed after a minute, %d bytes pending", c.Pending())
	}
}

// A Conn with a layer that is closed at once still says close_notify, as FIN ends
// one without; behind output that is lost, or a reset, it says nothing.
func TestCloseNotifiesUnlessOutputIsLost(t *testing.T) {
	for _, c := range []struct {
		name  string
		end   func(c *Conn)
		notes bool
	}{
		{"idle", (*Conn).Close, true},
		{"reset", (*Conn).Abort, false},
		{"pending", func(c *Conn) { c.Write(make([]byte, 4<<20)); c.writeOut(); c.Close() }, false},
		{"pause", func(c *Conn) { c.CloseDelayed(time.Minute); c.settle(); c.Close() }, true},
	} {
		w, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		x := w.Adopt(fds[0], &fake{})
		x.SetLayer(records{})
		c.end(x)
		if !x.Closed() {
			t.Errorf("%s: not closed", c.name)
		}
		var got []byte
		for b := make([]byte, 64<<10); ; {
			n, err := unix.Read(fds[1], b)
			if n <= 0 || err != nil {
				break
			}
			got = append(got, b[:n]...)
		}
		unix.Close(fds[1])
		if _, _, err := (records{}).Open(got); (err == io.EOF) != c.notes {
			t.Errorf("%s: %d bytes end with %v", c.name, len(got), err)
		}
	}
}
