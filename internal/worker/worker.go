// Package worker is the event loop of the data path: one goroutine with its own
// epoll instance, timers, mailbox and buffers, which owns every socket it
// accepts or dials. It moves bytes and knows no protocol: engines and relays
// implement Handler, TLS implements Layer. listener and upstream build on it.
//
// Everything but Post is called on the worker's own goroutine only; a Conn never
// changes its worker. A turn is: wait, read what is ready and hand it to the
// handlers, mailbox, timers, deferred calls, flush, pieces of long work. Nothing
// here blocks, waits for a lock or, in steady state, allocates.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ReadSize is what one read takes of a connection that has brought much: OnData
// calls that long mean bulk.
const ReadSize = 64 << 10

const (
	eventsPerTurn = 512
	firstRead     = 16 << 10
	bigRead       = 128 << 10 // of a socket with a layer, see ReadBig
	maxCarry      = 192 << 10 // bytes a handler may leave unconsumed before its socket is not read any more
	flushRounds   = 8         // flush, tell OnDrain, flush what that wrote, ...
)

// Options of a Worker.
type Options struct {
	Index int
	// VisibleWait makes every wait one that the Go scheduler knows of; see wait.go.
	VisibleWait bool
	Log         *slog.Logger // nil: silent
	// Base is the zero of Now; workers that share it have one clock. Zero: now.
	Base time.Time
	// StallLimit logs turns longer than that, with the last Stage; 0 is off.
	StallLimit time.Duration
	// Thread is told the id of the thread that Run keeps, before anything else; may be nil.
	Thread func(id int)
}

// Worker is one event loop. See the package comment for what may be called from where.
type Worker struct {
	opts      Options
	ep, efd   int
	events    []unix.EpollEvent
	got, seen int // events that came, and those that were handled
	fds       []entry
	gen       int32
	listening map[int]*Listening // by descriptor
	in        []byte             // shared read buffer: carried bytes, then what a read gave
	seal      []byte             // shared buffer for sealed records
	scratch   []byte
	buffers   bufferPool
	pipes     pipePool
	trims     []func()
	mail      mailbox
	wheel     wheel
	deferred  deferredList
	pieces    deferredList // of long work, see Spare
	dirty     []*Conn      // have output, or a close or drain to report
	again     []*Conn      // have bytes to present or a read budget that ran out
	spareA    []*Conn
	spareD    []*Conn
	base      time.Time
	wall      time.Time
	now       int64
	stage     string
	turns     turns
	share     share
	conns     atomic.Int64
	accepts   AcceptCounters
	ends      []func()
	calls     Calls
}

// entry is what a descriptor belongs to. gen tells a reused descriptor's events
// from those of its predecessor, which epoll may still hold in the same batch.
type entry struct {
	conn    *Conn
	gen     int32
	accepts bool // a listening socket, see Worker.listening
}

// New makes a worker's epoll instance and eventfd. It starts nothing: Run does.
func New(o Options) (*Worker, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making epoll instance: %w", err)
	}
	efd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("making eventfd: %w", err)
	}
	w := &Worker{
		opts: o, ep: ep, efd: efd,
		events:    make([]unix.EpollEvent, eventsPerTurn),
		in:        make([]byte, maxCarry+bigRead),
		base:      o.Base,
		listening: map[int]*Listening{},
	}
	if o.Base.IsZero() {
		w.base = time.Now()
	}
	if o.Log == nil {
		w.opts.Log = slog.New(slog.DiscardHandler)
	}
	if runtime.GOMAXPROCS(0) == 1 {
		w.opts.VisibleWait = true // a raw wait would keep the only P
	}
	w.wheel.init()
	w.tick()
	if e := epollCtl(ep, unix.EPOLL_CTL_ADD, efd, unix.EPOLLIN, 0); e != 0 {
		unix.Close(ep)
		unix.Close(efd)
		return nil, fmt.Errorf("watching eventfd: %w", e)
	}
	return w, nil
}

// Index is the worker's number, from 0.
func (w *Worker) Index() int { return w.opts.Index }

// Now is a monotonic clock in nanoseconds, read once a turn.
func (w *Worker) Now() int64 { return w.now }

// Wall is the wall clock of this turn.
func (w *Worker) Wall() time.Time { return w.wall }

// Conns is the number of open connections, accepted and dialed. It may be called
// from any goroutine.
func (w *Worker) Conns() int { return int(w.conns.Load()) }

// Stage names what runs now; a stall's log line carries the last name given.
func (w *Worker) Stage(name string) { w.stage = name }

// Scratch is a 64 KiB buffer for whoever asks, valid until the next Scratch.
func (w *Worker) Scratch() []byte {
	if w.scratch == nil {
		w.scratch = make([]byte, 64<<10)
	}
	return w.scratch
}

// AtEnd has f called on the worker's goroutine when it is closed, after its sockets are.
func (w *Worker) AtEnd(f func()) { w.ends = append(w.ends, f) }

// Run is the loop. It returns when ctx ends, after closing every socket of the
// worker; handlers are not told. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	defer w.keepThread()()
	stop := context.AfterFunc(ctx, func() { w.Post(func() {}) })
	defer stop()
	defer w.Close()
	for ctx.Err() == nil {
		if err := w.Step(); err != nil {
			return err
		}
	}
	return nil
}

// Step is one round of Run: it waits for something to happen and handles it. It
// is for who drives a worker without Run, on one goroutine, to know what a turn costs.
func (w *Worker) Step() error {
	n := 0
	if w.seen == w.got { // else a turn was too short for what came
		var err error
		if n, err = w.wait(); err != nil {
			return fmt.Errorf("waiting for events: %w", err)
		}
	}
	w.turn(n)
	return nil
}

// turn gives each stage its time. What a stage has no time for is left to the
// next turn, before anything newer: ten thousand connections that all want
// something cost their neighbours some turns, not a long one.
func (w *Worker) turn(n int) {
	w.tick()
	began := w.now
	if n > 0 {
		w.seen, w.got = 0, n
	}
	if w.opts.StallLimit > 0 && (w.now-w.turns.sampledAt >= int64(sampleEvery) || w.turns.sampledAt == 0) {
		w.turns.sample(w.now)
	}
	w.begin("read")
	w.share.ends = w.now + int64(stageTime)
	w.share.divide(len(w.again) + w.got - w.seen)
	w.presentAgain()
	for ; w.seen < w.got && !w.Late(); w.seen++ {
		w.dispatch(&w.events[w.seen])
	}
	w.stage = "mailbox"
	w.runMail()
	w.begin("timers")
	w.wheel.advance(w.now, w.Late)
	w.runDeferred()
	w.begin("flush")
	w.flush()
	w.runPieces()
	if w.opts.StallLimit > 0 {
		w.noteTurn(began)
	}
}

func (w *Worker) tick() {
	w.wall = time.Now()
	w.now = int64(w.wall.Sub(w.base))
}

func (w *Worker) dispatch(ev *unix.EpollEvent) {
	fd := int(ev.Fd)
	if fd == w.efd {
		w.mail.drain(fd)
		return
	}
	if fd >= len(w.fds) || w.fds[fd].gen != ev.Pad {
		return
	}
	switch e := &w.fds[fd]; {
	case e.conn != nil:
		e.conn.event(ev.Events)
	case e.accepts:
		w.listening[fd].acceptMany()
	}
}

// presentAgain gives bytes that a handler left, or could not be read for
// fairness, another turn.
func (w *Worker) presentAgain() {
	if len(w.again) == 0 {
		return
	}
	list := w.again
	w.again = w.spareA[:0]
	for i, c := range list {
		if w.Late() {
			w.again, w.spareA = leave(list, i, w.again)
			return
		}
		list[i] = nil
		c.flags &^= inAgain
		c.pump()
	}
	w.spareA = list[:0]
}

// flush writes the output of the turn and reports closes and drains. What
// those calls write is flushed too, but not without end.
func (w *Worker) flush() {
	for round := 0; round < flushRounds && (len(w.dirty) > 0 || len(w.again) > 0 || w.deferred.first != nil); round++ {
		list := w.dirty
		w.dirty = w.spareD[:0]
		for i, c := range list {
			if w.Late() {
				w.dirty, w.spareD = leave(list, i, w.dirty)
				return
			}
			list[i] = nil
			c.flags &^= inDirty
			c.settle()
		}
		w.spareD = list[:0]
		if round < flushRounds-1 {
			w.presentAgain()
			w.runDeferred()
		}
	}
}

// busy reports whether the next turn must not wait.
func (w *Worker) busy() bool {
	return len(w.dirty) > 0 || len(w.again) > 0 || w.deferred.first != nil || w.pieces.first != nil || w.mail.left()
}

func (w *Worker) register(fd int, e entry, events uint32) error {
	for len(w.fds) <= fd {
		w.fds = append(w.fds, make([]entry, max(256, len(w.fds)))...)
	}
	w.gen++
	e.gen = w.gen
	w.fds[fd] = e
	w.calls.Others++
	if en := epollCtl(w.ep, unix.EPOLL_CTL_ADD, fd, events, e.gen); en != 0 {
		w.fds[fd] = entry{}
		return fmt.Errorf("watching socket: %w", en)
	}
	return nil
}

// Close is the end of Run, and of a worker that is driven by Step: it closes every
// socket of the worker; handlers are not told.
func (w *Worker) Close() {
	for fd := range w.fds {
		if e := &w.fds[fd]; e.conn != nil || e.accepts {
			*e = entry{}
			unix.Close(fd)
		}
	}
	w.pipes.close()
	w.mail.close()
	unix.Close(w.ep)
	unix.Close(w.efd)
	for _, f := range w.ends {
		f()
	}
}

// ErrConnectTimeout is given to OnConnect when DialOptions.Timeout ran out.
var ErrConnectTimeout = errors.New("connection timeout")
