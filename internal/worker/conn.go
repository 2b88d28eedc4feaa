package worker

import (
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Handler is told what happens on a Conn, on the worker's goroutine.
type Handler interface {
	// OnData gets what can be read (plaintext when a Layer is set) and returns how
	// many bytes it consumed. b is valid during the call only. The rest is kept
	// and given again, with more bytes after it, when more arrives or after
	// ResumeRead or SetHandler.
	OnData(c *Conn, b []byte) int
	// OnEOF is the peer's FIN (or close_notify), after all data was delivered.
	OnEOF(c *Conn)
	// OnDrain says that Pending fell to LowWater after it was at HighWater or above.
	OnDrain(c *Conn)
	// OnClose is the last call: the socket is gone. err is nil if we closed it.
	OnClose(c *Conn, err error)
	// OnConnect is the end of a Dial. An error ends the Conn: no OnClose follows.
	// A Conn that is closed before has no call at all.
	OnConnect(c *Conn, err error)
}

// Layer transforms between the wire and plaintext; see SetLayer. An
// implementation is used by one worker at a time.
type Layer interface {
	// Open takes the whole records at the front of wire, decrypts them in place,
	// packs the plaintext at the front of wire and returns it with the number of
	// bytes it took. io.EOF is the peer's close_notify. After any other error
	// SealClose gives the alert to send.
	Open(wire []byte) (plain []byte, used int, err error)
	// Seal appends plain as records.
	Seal(dst, plain []byte) []byte
	// SealClose appends close_notify, or the alert that the last error calls for.
	SealClose(dst []byte) []byte
}

// Output above HighWater should make the writer pause its source until OnDrain.
const (
	HighWater = 16 << 10
	LowWater  = 4 << 10
)

type connFlags uint32

const (
	readable      connFlags = 1 << iota // an edge was seen and EAGAIN not yet
	blocked                             // a write gave EAGAIN
	hup                                 // FIN or RST seen by epoll
	paused                              // PauseRead
	present                             // kept bytes are to be presented though nothing new came
	eof                                 // read() gave 0 or the layer close_notify
	eofTold                             // OnEOF was called
	dead                                // descriptor closed
	told                                // OnClose or OnConnect(err) was called
	connecting                          // Dial is not over
	closing                             // CloseWhenFlushed
	finAfter                            // ShutdownWrite
	finSent                             // FIN is out
	resetAfter                          // ResetWhenFlushed
	closeSealed                         // close_notify is in wire
	keepOpen                            // CloseDelayed: no FIN before the end
	closedByLayer                       // the layer saw close_notify
	above                               // Pending was at HighWater
	bigReads                            // reads of 128 KiB
	timedOut                            // the peer didn't close in time
	patient                             // the flush may last
	inAgain                             // in worker.again
	inDirty                             // in worker.dirty
)

// Conn is a byte stream of one worker: a socket, with a Layer between it and
// its handler or not. While nothing is kept, pending or ending it is this struct
// and nothing else: most connections are idle most of the time.
type Conn struct {
	w      *Worker
	h      Handler
	layer  Layer
	held   *held // nil: no bytes are here
	ending *ending
	splice *splice
	feeder *Conn // whose splice writes to this conn
	rx, tx uint64
	fd     int32
	flags  connFlags
	stalls uint32
	linger int32 // milliseconds
	werr   unix.Errno
}

// held are the bytes of a Conn that are in user space.
type held struct {
	carry  []byte // kept bytes: plain ones first, then wire bytes of a partial record
	out    []byte // pending plaintext (without layer: bytes for the wire)
	wire   []byte // pending sealed bytes
	plain  int    // plain bytes at the front of carry
	outOff int
	wirOff int
}

// ending times what may not last, a connect, then the flush and the lingering
// close, and keeps why the end came.
type ending struct {
	timer Timer
	mark  uint64 // bytes written when the flush was last looked at
	err   error  // what OnClose or OnConnect will say
}

// hold gives the place for bytes.
func (c *Conn) hold() *held {
	if c.held == nil {
		c.held = c.w.takeHeld()
	}
	return c.held
}

// unhold gives the place back once no bytes are in it.
func (c *Conn) unhold() {
	if h := c.held; h != nil && h.carry == nil && h.out == nil && h.wire == nil {
		c.w.giveHeld(h)
		c.held = nil
	}
}

// ends gives the place for what concerns the end.
func (c *Conn) ends() *ending {
	if c.ending == nil {
		c.ending = &ending{}
	}
	return c.ending
}

// why is what the end's last call will say.
func (c *Conn) why() error {
	if c.ending == nil {
		return nil
	}
	return c.ending.err
}

// deadline starts the timer of what may not last.
func (c *Conn) deadline(d time.Duration, fire func()) {
	t := &c.ends().timer
	t.Fire = fire
	c.w.Start(t, d)
}

func (c *Conn) stopDeadline() {
	if c.ending != nil {
		c.w.Stop(&c.ending.timer)
	}
}

// defaultLinger is Envoy's delayed_close_timeout, in milliseconds.
const defaultLinger = 1000

// Adopt takes an accepted, non-blocking socket. TCP_NODELAY it has from the
// listening one, see OpenListener.
func (w *Worker) Adopt(fd int, h Handler) *Conn {
	c := &Conn{w: w, h: h, fd: int32(fd), linger: defaultLinger}
	w.conns.Add(1)
	if err := w.register(fd, entry{conn: c}, connEvents); err != nil {
		c.fail(err)
	}
	return c
}

const connEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | epollET

// SetHandler changes who is told. Bytes that the previous handler left are
// presented to h at once when the change happens inside OnData, else later in the turn.
func (c *Conn) SetHandler(h Handler) {
	c.h = h
	c.flags &^= eofTold
	if c.kept() > 0 || c.flags&(eof|readable|hup) != 0 {
		c.requeue()
	}
}

// Handler is who is told.
func (c *Conn) Handler() Handler { return c.h }

// SetLayer puts l between wire and handler. Kept bytes count as wire bytes from
// now on; output written before goes out unsealed, in order. The byte counters
// start anew.
func (c *Conn) SetLayer(l Layer) {
	if b := c.held; b != nil {
		if c.Pending() > 0 && c.layer == nil {
			b.wire, b.wirOff = b.out, b.outOff
			b.out, b.outOff = nil, 0
		}
		b.plain = 0
	}
	c.layer = l
	c.flags |= bigReads
	c.rx, c.tx = 0, 0
	if c.kept() > 0 {
		c.requeue()
	}
}

// ReadBig makes reads twice as long (SetLayer does too): for bytes that will be
// sealed or opened, which costs more than their way through the cache.
func (c *Conn) ReadBig() { c.flags |= bigReads }

// Layer is the layer that is set, or nil. A layer around another one is put in
// its place with SetLayer before any plaintext was given or written.
func (c *Conn) Layer() Layer { return c.layer }

// Worker is the conn's loop.
func (c *Conn) Worker() *Worker { return c.w }

// FD is the descriptor, for socket options; -1 once closed.
func (c *Conn) FD() int {
	if c.flags&dead != 0 {
		return -1
	}
	return int(c.fd)
}

// LocalAddr asks the kernel for the socket's own address: zero for a Unix socket
// and once closed.
func (c *Conn) LocalAddr() netip.AddrPort { return c.name(unix.SYS_GETSOCKNAME) }

// RemoteAddr asks the kernel for the peer's address: zero for a Unix socket and
// once the connection is gone.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.name(unix.SYS_GETPEERNAME) }

func (c *Conn) name(call uintptr) netip.AddrPort {
	var s sockaddr
	if c.flags&dead != 0 {
		return netip.AddrPort{}
	}
	c.w.calls.Others++
	if sysName(call, int(c.fd), &s) != 0 {
		return netip.AddrPort{}
	}
	return s.addrPort()
}

// Dead reports whether a FIN or RST was seen or the socket is closed: such a
// connection must not be reused.
func (c *Conn) Dead() bool { return c.flags&(dead|hup|eof) != 0 || c.werr != 0 }

// Truncated reports whether the peer's end came without the layer's close_notify:
// what came before it may be a part only.
func (c *Conn) Truncated() bool {
	return c.layer != nil && c.flags&(eof|closedByLayer) == eof
}

// Closed reports whether the socket is closed already.
func (c *Conn) Closed() bool { return c.flags&dead != 0 }

// BytesRead counts bytes given to handlers (plaintext), BytesWritten those the
// kernel took of what was written (plaintext). Spliced bytes count too.
func (c *Conn) BytesRead() uint64 { return c.rx }

// Discount takes n bytes out of BytesRead: a header that isn't the stream's.
func (c *Conn) Discount(n int) { c.rx -= uint64(n) }

// BytesWritten is explained at BytesRead.
func (c *Conn) BytesWritten() uint64 { return c.tx }

// PauseRead stops OnData until ResumeRead.
func (c *Conn) PauseRead() { c.flags |= paused }

// Paused reports whether reading is paused.
func (c *Conn) Paused() bool { return c.flags&paused != 0 }

// ResumeRead undoes PauseRead. Kept bytes are presented later in the turn.
func (c *Conn) ResumeRead() {
	if c.flags&paused == 0 {
		return
	}
	c.flags &^= paused
	c.requeue()
}

// Unread puts a copy of p in front of what is kept, as if it had just arrived.
func (c *Conn) Unread(p []byte) {
	if len(p) == 0 || c.flags&dead != 0 {
		return
	}
	h := c.hold()
	b := append(append(c.w.buffers.take(len(p)+len(h.carry)), p...), h.carry...)
	if h.carry != nil {
		c.w.buffers.give(h.carry)
	}
	h.carry, h.plain = b, 0
	c.requeue()
}

// Again gives what OnData leaves another turn, though nothing new comes.
func (c *Conn) Again() { c.requeue() }

// requeue presents what is kept later in the turn and reads on.
func (c *Conn) requeue() {
	c.flags |= present
	c.enqueue()
}

func (c *Conn) enqueue() {
	if c.flags&inAgain == 0 {
		c.flags |= inAgain
		c.w.again = append(c.w.again, c)
	}
}

// event takes one epoll event.
func (c *Conn) event(bits uint32) {
	if bits&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.flags |= hup | readable
	}
	if bits&unix.EPOLLIN != 0 {
		c.flags |= readable
	}
	if c.flags&connecting != 0 {
		if bits&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
			return
		}
		c.connected(bits&(unix.EPOLLERR|unix.EPOLLHUP) != 0)
	} else if bits&unix.EPOLLOUT != 0 && c.flags&blocked != 0 {
		c.flags &^= blocked
		c.touch()
		if c.feeder != nil {
			c.feeder.enqueue()
		}
	}
	if bits&unix.EPOLLERR != 0 && c.flags&dead == 0 && c.flags&(paused|eof) != 0 {
		// A socket that isn't read: this is the only news of a reset.
		c.w.calls.Others++
		if e := socketError(int(c.fd)); e != 0 {
			c.fail(e)
		}
		return
	}
	c.pump()
}

// pump reads and presents until the socket is drained, the handler pauses, or
// the turn's share is used up.
func (c *Conn) pump() {
	for i := 0; i < c.w.share.reads && (i == 0 || !c.w.Late()); i++ {
		if c.flags&(dead|paused|connecting) != 0 {
			return
		}
		if c.splice != nil {
			if !c.spliceOn() {
				return
			}
			continue
		}
		if !c.readOnce() {
			return
		}
	}
	if c.flags&(dead|paused) == 0 {
		c.enqueue()
	}
}

// readOnce does one read and presents its bytes behind the kept ones. It
// reports whether another could give more.
func (c *Conn) readOnce() bool {
	w := c.w
	k, got := c.kept(), 0
	if c.flags&readable != 0 && c.flags&eof == 0 && k <= maxCarry {
		w.calls.Reads++
		size := c.readSize()
		n, e := sysRead(int(c.fd), w.in[k:k+size])
		switch {
		case e == unix.EAGAIN:
			c.flags &^= readable | hup
			if c.werr != 0 {
				c.fail(c.werr)
				return false
			}
		case e == unix.EINTR:
			return true
		case e != 0:
			c.fail(e)
			return false
		case n == 0:
			c.flags |= eof
			c.flags &^= readable
		default:
			got = n
			if n < size && c.flags&hup == 0 {
				c.flags &^= readable // edge-triggered: a short read drained it
			}
		}
	}
	if got == 0 && c.flags&(present|eof) == 0 {
		return false
	}
	c.flags &^= present
	if c.flags&closing != 0 {
		return c.discard()
	}
	if k > 0 {
		plain := c.held.plain
		copy(w.in, c.held.carry)
		c.dropCarry()
		c.deliver(w.in[:k+got], plain)
	} else if got > 0 {
		c.deliver(w.in[:got], 0)
	}
	c.deliverEOF()
	return c.flags&eof == 0 && c.flags&readable != 0 && k <= maxCarry || c.flags&present != 0
}

// readSize is how much to ask for: no more than an eighth of what came before.
// What the other side's kernel has no room for stays here, ten thousand times
// with as many slow readers, and until theirs is full nobody knows that they are.
func (c *Conn) readSize() int {
	least, most := uint64(firstRead), uint64(ReadSize)
	if c.flags&bigReads != 0 {
		least, most = 2*firstRead, bigRead
	}
	return int(min(max(c.rx/8, least), most))
}

// discard is reading after CloseWhenFlushed: only the end is of interest.
func (c *Conn) discard() bool {
	c.dropCarry()
	if c.flags&eof != 0 {
		c.touch()
		return false
	}
	return c.flags&readable != 0
}

// kept is how many received bytes wait.
func (c *Conn) kept() int {
	if c.held == nil {
		return 0
	}
	return len(c.held.carry)
}

func (c *Conn) dropCarry() {
	if h := c.held; h != nil && h.carry != nil {
		c.w.buffers.give(h.carry)
		h.carry, h.plain = nil, 0
		c.unhold()
	}
}

// deliver opens records if there is a layer, and hands plaintext over. b begins
// with the bytes that were opened before.
func (c *Conn) deliver(b []byte, opened int) {
	var err error
	data, rest := b, []byte(nil)
	fresh := len(b) - opened
	if c.layer != nil {
		var p []byte
		var used int
		wire := b[opened:]
		p, used, err = c.layer.Open(wire)
		data, rest = b[:opened+len(p)], wire[used:]
		fresh = len(p)
	}
	c.rx += uint64(fresh)
	for layer := c.layer; len(data) > 0; {
		h := c.h
		data = data[h.OnData(c, data):]
		if c.flags&dead != 0 {
			return
		}
		if c.layer != layer { // set by the handler: what is left is wire bytes
			c.keep(data, rest)
			if c.held != nil {
				c.held.plain = 0
			}
			return
		}
		if c.h == h || c.flags&paused != 0 {
			break
		}
		c.flags &^= present
	}
	c.keep(data, rest)
	switch {
	case err == io.EOF:
		c.flags |= eof | closedByLayer
	case err != nil:
		h := c.hold()
		h.out, h.outOff = h.out[:0], 0
		h.wire = c.layer.SealClose(h.wire)
		c.writeWire()
		c.fail(err)
	}
}

// keep stores what a handler left. The bytes lie in the shared read buffer.
func (c *Conn) keep(plain, wire []byte) {
	n := len(plain) + len(wire)
	if n == 0 {
		return
	}
	h := c.hold()
	h.carry = append(append(c.w.buffers.take(n), plain...), wire...)
	h.plain = len(plain)
}

func (c *Conn) deliverEOF() {
	if c.flags&eof == 0 || c.flags&(eofTold|dead|paused) != 0 || c.flags&present != 0 {
		return
	}
	if c.werr != 0 {
		c.fail(c.werr)
		return
	}
	c.flags |= eofTold
	c.h.OnEOF(c)
}

// fail closes the socket because of err; the handler learns it later in the turn.
func (c *Conn) fail(err error) {
	if c.flags&dead != 0 {
		return
	}
	c.ends().err = err
	c.release()
}

// Close closes the socket at once, dropping pending output; when there is none a
// Layer's close_notify goes before. OnClose follows later in the turn.
func (c *Conn) Close() {
	if c.flags&dead == 0 {
		c.notify()
		c.closeNow()
	}
}

func (c *Conn) closeNow() {
	if c.ending != nil {
		c.ending.err = nil
	}
	c.release()
}

// Abort closes at once with RST.
func (c *Conn) Abort() {
	if c.flags&dead == 0 {
		resetOnClose(int(c.fd))
		c.closeNow()
	}
}

func (c *Conn) release() {
	w := c.w
	c.stopDeadline()
	c.unsplice()
	if c.feeder != nil {
		c.feeder.enqueue()
		c.feeder = nil
	}
	w.fds[c.fd] = entry{}
	sysClose(int(c.fd))
	w.calls.Others++
	w.conns.Add(-1)
	c.flags |= dead
	c.dropCarry()
	c.dropOut()
	c.touch()
}
