package budget

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/telemetry"
	"sluice/internal/worker"
)

// path is a worker that is driven step by step, with a client and an origin that
// are nothing but the other ends of its sockets. What a unit takes is the time
// inside the worker's steps: waiting, reading, all that the proxy does, writing.
// The ends' own system calls are outside, and the sockets are Unix ones, the
// cheapest that a worker can have.
type path struct {
	t      *testing.T
	w      *worker.Worker
	files  *telemetry.Files // nil: no access log
	log    last
	set    *telemetry.Set
	listen int
	client int
	origin int // -1: not connected yet
	spent  time.Duration
	guard  worker.Timer // ends a step in which nothing happens
	ticks  int          // of guard
	in     []byte
	talk   talk
}

// talk is the protocol of the ends: one exchange.
type talk interface{ exchange(p *path) }

func newPath(t *testing.T) *path {
	t.Helper()
	w, err := worker.New(worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &path{t: t, w: w, listen: -1, origin: -1, in: make([]byte, 64<<10)}
	p.guard.Fire = func() { p.ticks++; w.Start(&p.guard, time.Second) }
	p.guard.Fire()
	t.Cleanup(func() {
		w.Close()
		for _, fd := range []int{p.listen, p.client, p.origin} {
			unix.Close(fd)
		}
	})
	return p
}

// pair gives a connection of the worker and its other end.
func (p *path) pair(h worker.Handler) (*worker.Conn, int) {
	p.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.w.Adopt(fds[0], h), fds[1]
}

// step lets the worker make one turn, on the clock.
func (p *path) step() {
	began := time.Now()
	err := p.w.Step()
	p.spent += time.Since(began)
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *path) write(fd int, b []byte) {
	if n, err := unix.Write(fd, b); n != len(b) {
		p.t.Fatalf("%d of %d bytes written: %v", n, len(b), err)
	}
}

// fromProxy steps until what came to an end is whole.
func (p *path) fromProxy(fd *int, whole func(b []byte) bool) {
	late := p.ticks + 3
	for got := 0; ; {
		p.step()
		if *fd < 0 {
			p.accept()
		}
		if *fd >= 0 {
			if n, _ := unix.Read(*fd, p.in[got:]); n > 0 {
				got += n
			}
		}
		if got > 0 && whole(p.in[:got]) {
			return
		}
		if p.ticks > late {
			n, _ := unix.Read(p.client, p.in[got:])
			p.t.Fatalf("no more than %q came, and to the client %q", p.in[:got], p.in[got:][:max(n, 0)])
		}
	}
}

func (p *path) accept() {
	if fd, _, err := unix.Accept4(p.listen, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
		p.origin = fd
	}
}

// await steps until f, which needs the worker, has ended.
func (p *path) await(f func() error) {
	p.t.Helper()
	over := false
	go func() {
		err := f()
		p.w.Post(func() {
			over = true
			if err != nil {
				p.t.Error(err)
			}
		})
	}()
	for !over {
		p.step()
	}
}

// work makes the row. The lines of the access log are handed to their file in
// each batch, as they are four times a second otherwise.
func (p *path) work(name string) *work {
	return &work{name: name, calls: p.w.Calls, run: func(n int) time.Duration {
		p.spent = 0
		for range n {
			p.talk.exchange(p)
		}
		if p.files != nil {
			began := time.Now()
			p.files.Flush()
			p.spent += time.Since(began)
		}
		return p.spent
	}}
}

// nobody is the handler of a connection that waits for its own.
type nobody struct{}

func (nobody) OnData(*worker.Conn, []byte) int { return 0 }
func (nobody) OnEOF(*worker.Conn)              {}
func (nobody) OnDrain(*worker.Conn)            {}
func (nobody) OnClose(*worker.Conn, error)     {}
func (nobody) OnConnect(*worker.Conn, error)   {}

// copier hands bytes to another connection: a proxy that does nothing.
type copier struct {
	nobody
	to *worker.Conn
}

func (c *copier) OnData(_ *worker.Conn, b []byte) int { c.to.Write(b); return len(b) }

// copying is the path without a proxy: the floor of the others.
func copying(t *testing.T) *path {
	p := newPath(t)
	down, up := &copier{}, &copier{}
	up.to, p.client = p.pair(down)
	down.to, p.origin = p.pair(up)
	p.talk = newTalk1()
	return p
}
