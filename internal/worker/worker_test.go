package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// start runs a worker for the test and waits for its end.
func start(t testing.TB, o Options) *Worker {
	t.Helper()
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("worker did not end")
		}
	})
	return w
}

// on runs f on the worker and waits for it.
func on(w *Worker, f func()) {
	done := make(chan struct{})
	w.Post(func() { f(); close(done) })
	<-done
}

// fake is a Handler of functions; nil ones do nothing.
type fake struct {
	data    func(c *Conn, b []byte) int
	eof     func(c *Conn)
	drain   func(c *Conn)
	close   func(c *Conn, err error)
	connect func(c *Conn, err error)
}

func (f *fake) OnData(c *Conn, b []byte) int {
	if f.data == nil {
		return len(b)
	}
	return f.data(c, b)
}
func (f *fake) OnEOF(c *Conn) {
	if f.eof != nil {
		f.eof(c)
	}
}
func (f *fake) OnDrain(c *Conn) {
	if f.drain != nil {
		f.drain(c)
	}
}
func (f *fake) OnClose(c *Conn, err error) {
	if f.close != nil {
		f.close(c, err)
	}
}
func (f *fake) OnConnect(c *Conn, err error) {
	if f.connect != nil {
		f.connect(c, err)
	}
}

func echo() *fake {
	return &fake{
		data: func(c *Conn, b []byte) int {
			c.Write(b)
			if c.Pending() >= HighWater {
				c.PauseRead()
			}
			return len(b)
		},
		drain: func(c *Conn) { c.ResumeRead() },
		eof:   func(c *Conn) { c.CloseWhenFlushed() },
	}
}

// serve listens on loopback with one handler per connection.
func serve(t testing.TB, w *Worker, h func() Handler) netip.AddrPort {
	t.Helper()
	fd, err := OpenListener(netip.MustParseAddrPort("127.0.0.1:0"), "", SocketOptions{ReusePort: true})
	if err != nil {
		t.Fatal(err)
	}
	on(w, func() {
		if _, err := w.Listen(fd, func(fd int, _ netip.AddrPort) { w.Adopt(fd, h()) }); err != nil {
			t.Error(err)
		}
	})
	return SocketName(fd)
}

func dial(t testing.TB, a netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", a.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

func TestEcho(t *testing.T) {
	for _, visible := range []bool{false, true} {
		w := start(t, Options{VisibleWait: visible})
		a := serve(t, w, func() Handler { return echo() })
		c := dial(t, a)
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB: through back-pressure
		go func() {
			c.Write(want)
			c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("visible=%v: echoed %d bytes of %d, err %v", visible, len(got), len(want), err)
		}
		waitFor(t, func() (n bool) { on(w, func() { n = w.Conns() == 0 }); return })
	}
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("condition never came true")
		}
	}
}

func TestLeftBytesArePresentedAgain(t *testing.T) {
	w := start(t, Options{})
	seen := make(chan string, 9)
	second := &fake{data: func(c *Conn, b []byte) int { seen <- "2:" + string(b); return len(b) }}
	a := serve(t, w, func() Handler {
		return &fake{data: func(c *Conn, b []byte) int {
			seen <- string(b)
			switch {
			case len(b) < 4:
				return 0
			case len(b) < 8:
				c.PauseRead()
				c.Worker().Later(&Deferred{Run: c.ResumeRead})
				return 2
			}
			c.SetHandler(second)
			return 3
		}}
	})
	c := dial(t, a)
	expect := func(want ...string) {
		t.Helper()
		for _, x := range want {
			select {
			case got := <-seen:
				if got != x {
					t.Fatalf("handler saw %q, want %q", got, x)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("handler saw nothing, want %q", x)
			}
		}
	}
	io.WriteString(c, "abc")
	expect("abc")
	io.WriteString(c, "de")
	expect("abcde", "cde") // 2 consumed, resumed without new bytes
	io.WriteString(c, "fghijk")
	expect("cdefghijk", "2:fghijk")
}

func TestEOFAndReset(t *testing.T) {
	w := start(t, Options{})
	events := make(chan string, 9)
	a := serve(t, w, func() Handler {
		return &fake{
			eof:   func(c *Conn) { events <- "eof"; c.Write([]byte("bye")); c.CloseWhenFlushed() },
			close: func(c *Conn, err error) { events <- "close " + errText(err) },
		}
	})
	c := dial(t, a)
	c.CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "bye" || err != nil {
		t.Fatalf("read %q, %v", b, err)
	}
	if x, y := <-events, <-events; x != "eof" || y != "close nil" {
		t.Fatal(x, y)
	}
	c = dial(t, a)
	io.WriteString(c, "x")
	c.SetLinger(0)
	c.Close()
	if x := <-events; x != "close "+unix.ECONNRESET.Error() {
		t.Fatal(x)
	}
}

func errText(err error) string {
	if err == nil {
		return "nil"
	}
	return err.Error()
}

func TestResetWhilePausedIsSeen(t *testing.T) {
	w := start(t, Options{})
	closed := make(chan error, 1)
	a := serve(t, w, func() Handler {
		return &fake{
			data:  func(c *Conn, b []byte) int { c.PauseRead(); return 0 },
			close: func(c *Conn, err error) { closed <- err },
		}
	})
	c := dial(t, a)
	io.WriteString(c, "x")
	time.Sleep(20 * time.Millisecond)
	c.SetLinger(0)
	c.Close()
	select {
	case err := <-closed:
		if !errors.Is(err, unix.ECONNRESET) {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("reset not seen")
	}
}

func TestAnswerOfAServerThatDoesNotRead(t *testing.T) {
	// The peer answers and resets while we still write: the answer must come through.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "413")
		time.Sleep(20 * time.Millisecond)
		c.Close() // with unread bytes: RST
	}()
	w := start(t, Options{})
	got := make(chan string, 9)
	on(w, func() {
		w.Dial(netip.MustParseAddrPort(l.Addr().String()), "", DialOptions{}, &fake{
			connect: func(c *Conn, err error) { c.Write(make([]byte, 8<<20)) },
			data:    func(c *Conn, b []byte) int { got <- string(b); return len(b) },
			close:   func(c *Conn, err error) { got <- "close" },
		})
	})
	if a, b := <-got, <-got; a != "413" || b != "close" {
		t.Fatalf("%q then %q", a, b)
	}
}

func TestDial(t *testing.T) {
	w := start(t, Options{})
	a := serve(t, w, func() Handler { return echo() })
	closedPort := func() netip.AddrPort {
		l, _ := net.Listen("tcp", "127.0.0.1:0")
		defer l.Close()
		return netip.MustParseAddrPort(l.Addr().String())
	}()
	got := make(chan string, 1)
	connect := func(addr netip.AddrPort, pipe string, o DialOptions) string {
		on(w, func() {
			inside := true
			w.Dial(addr, pipe, o, &fake{
				connect: func(c *Conn, err error) {
					if inside {
						err = errors.New("called from inside Dial")
					}
					if err != nil {
						got <- err.Error()
					}
				},
				data: func(c *Conn, b []byte) int { got <- string(b); c.Close(); return len(b) },
			}).Write([]byte("hi")) // before it is up
			inside = false
		})
		select {
		case s := <-got:
			return s
		case <-time.After(5 * time.Second):
			return "nothing"
		}
	}
	for _, c := range []struct {
		name string
		addr netip.AddrPort
		pipe string
		o    DialOptions
		want string
	}{
		{"works", a, "", DialOptions{}, "hi"},
		{"works from a chosen source", a, "", DialOptions{Bind: netip.MustParseAddrPort("127.0.0.6:0")}, "hi"},
		{"refused", closedPort, "", DialOptions{}, "connection refused"},
		{"no such pipe", netip.AddrPort{}, "/nonexistent/sock", DialOptions{}, "no such file or directory"},
		{"bad pipe", netip.AddrPort{}, string(make([]byte, 200)), DialOptions{}, "connecting to " + quote(200) + ": not a usable path"},
	} {
		if s := connect(c.addr, c.pipe, c.o); s != c.want {
			t.Errorf("%s: got %q, want %q", c.name, s, c.want)
		}
	}
}

func quote(n int) string {
	b := []byte{'"'}
	for range n {
		b = append(b, `\x00`...)
	}
	return string(append(b, '"'))
}

func TestDialTimeout(t *testing.T) {
	// A listener whose backlog is full drops SYNs.
	fd, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	unix.Listen(fd, 0)
	a := SocketName(fd)
	w := start(t, Options{})
	errs := make(chan error, 8)
	on(w, func() {
		for range 4 {
			w.Dial(a, "", DialOptions{Timeout: 50 * time.Millisecond}, &fake{connect: func(c *Conn, err error) { errs <- err }})
		}
	})
	timeouts := 0
	for range 4 {
		if errors.Is(<-errs, ErrConnectTimeout) {
			timeouts++
		}
	}
	if timeouts == 0 {
		t.Error("no connect timed out")
	}
}

func TestUnixSocket(t *testing.T) {
	w := start(t, Options{})
	for _, path := range []string{t.TempDir() + "/s", "@sluice-worker-test"} {
		fd, err := OpenListener(netip.AddrPort{}, path, SocketOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 1)
		on(w, func() {
			w.Listen(fd, func(fd int, peer netip.AddrPort) { w.Adopt(fd, echo()) })
			w.Dial(netip.AddrPort{}, path, DialOptions{}, &fake{
				connect: func(c *Conn, err error) { c.Write([]byte("ping")) },
				data:    func(c *Conn, b []byte) int { got <- string(b); return len(b) },
			})
		})
		if s := <-got; s != "ping" {
			t.Errorf("%s: %q", path, s)
		}
	}
}

// relay copies everything to peer, then splices.
type relay struct {
	fake
	peer *Conn
	full int
}

func TestSpliceMovesEverything(t *testing.T) {
	w := start(t, Options{})
	sink := serve(t, w, func() Handler { return echo() })
	var spliced atomic.Int64
	a := serve(t, w, func() Handler {
		mk := func() *relay {
			r := &relay{}
			r.data = func(c *Conn, b []byte) int {
				r.peer.WriteNow(b)
				if r.full++; r.full > 2 && c.Splice(r.peer) {
					spliced.Add(1)
				} else if r.peer.Pending() >= HighWater {
					c.PauseRead()
				}
				return len(b)
			}
			r.drain = func(*Conn) { r.peer.ResumeRead() }
			r.eof = func(c *Conn) { r.peer.ShutdownWrite() }
			r.close = func(c *Conn, err error) { r.peer.Close() }
			return r
		}
		client, up := mk(), mk()
		client.data, up.data = up.data, client.data
		// client's data goes to the dialed conn and back
		client.data = func(c *Conn, b []byte) int {
			if client.peer == nil {
				client.peer = w.Dial(sink, "", DialOptions{}, up)
				up.peer = c
				up.data = func(u *Conn, b []byte) int {
					c.WriteNow(b)
					if up.full++; up.full > 2 && u.Splice(c) {
						spliced.Add(1)
					} else if c.Pending() >= HighWater {
						u.PauseRead()
					}
					return len(b)
				}
			}
			client.peer.WriteNow(b)
			if client.full++; client.full > 2 && c.Splice(client.peer) {
				spliced.Add(1)
			} else if client.peer.Pending() >= HighWater {
				c.PauseRead()
			}
			return len(b)
		}
		return client
	})
	c := dial(t, a)
	want := bytes.Repeat([]byte("splice me, please"), 1<<19) // 8.9 MB
	go func() { c.Write(want); c.CloseWrite() }()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes came back, err %v", len(got), len(want), err)
	}
	if spliced.Load() == 0 {
		t.Error("nothing was spliced")
	}
	on(w, func() {
		if w.pipes.out != 0 {
			t.Errorf("%d pipes still out", w.pipes.out)
		}
	})
}

// TestRawWaitGC: a worker in its raw wait must not hold up a stop-the-world. It
// fails by time limit, because the bug it guards against never ends.
func TestRawWaitGC(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	w := start(t, Options{})
	var tick Timer
	tick.Fire = func() { w.Start(&tick, 3*time.Millisecond) } // keeps it in the raw stage
	on(w, func() { w.Start(&tick, time.Millisecond) })
	done := make(chan time.Duration)
	go func() {
		var worst time.Duration
		for range 100 {
			t0 := time.Now()
			runtime.GC()
			worst = max(worst, time.Since(t0))
			time.Sleep(time.Millisecond)
		}
		done <- worst
	}()
	select {
	case worst := <-done:
		if worst > 500*time.Millisecond {
			t.Errorf("slowest collection took %v", worst)
		}
	case <-time.After(30 * time.Second):
		panic("stop-the-world never ended: the raw wait has no safe point")
	}
}

func TestNoAllocationsInSteadyState(t *testing.T) {
	w := start(t, Options{})
	a := serve(t, w, func() Handler { return echo() })
	c := dial(t, a)
	msg, buf := make([]byte, 1000), make([]byte, 1000)
	turn := func() {
		if _, err := syscallWrite(c, msg); err != nil {
			t.Fatal(err)
		}
		io.ReadFull(c, buf)
	}
	for range 50 {
		turn()
	}
	if n := testing.AllocsPerRun(500, turn); n >= 1 {
		t.Errorf("%v allocations per echo", n)
	}
}

func syscallWrite(c *net.TCPConn, b []byte) (int, error) { return c.Write(b) }

func TestStallIsCounted(t *testing.T) {
	w := start(t, Options{StallLimit: time.Millisecond})
	on(w, func() { time.Sleep(5 * time.Millisecond) })
	on(w, func() {
		if w.Turns().Stalls == 0 {
			t.Error("slow turn not counted")
		}
	})
}

func TestAcceptPausesWithoutDescriptors(t *testing.T) {
	w := start(t, Options{})
	a := serve(t, w, func() Handler { return echo() })
	var old syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old)
	probe, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(probe)
	cfd, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	defer unix.Close(cfd)
	low := syscall.Rlimit{Cur: uint64(cfd + 1), Max: old.Max}
	syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low)
	unix.Connect(cfd, &unix.SockaddrInet4{Port: int(a.Port()), Addr: [4]byte{127, 0, 0, 1}})
	waitFor(t, func() (ok bool) { on(w, func() { ok = w.Accepts().Exhausted > 0 }); return })
	time.Sleep(250 * time.Millisecond)
	on(w, func() {
		if n := w.Accepts().Exhausted; n > 8 {
			t.Errorf("%d failed accepts in 0.25 s: it spins", n)
		}
	})
	syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	unix.Write(cfd, []byte("x"))
	waitFor(t, func() (ok bool) { on(w, func() { ok = w.Accepts().Accepted > 0 }); return })
}

func TestKeptBytesGrowByteByByte(t *testing.T) {
	w := start(t, Options{})
	const size = 5000
	last := atomic.Int64{}
	a := serve(t, w, func() Handler {
		return &fake{data: func(c *Conn, b []byte) int {
			last.Store(int64(len(b)))
			if len(b) < size {
				return 0
			}
			c.Write([]byte("whole"))
			c.CloseWhenFlushed()
			return len(b)
		}}
	})
	for range 5 {
		c := dial(t, a)
		for range size {
			c.Write([]byte("x"))
		}
		c.SetDeadline(time.Now().Add(2 * time.Second))
		if b, err := io.ReadAll(c); string(b) != "whole" || err != nil {
			t.Fatalf("%q %v: the handler last saw %d bytes", b, err, last.Load())
		}
	}
}

func TestAnIdleConnIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); n > 384 {
		t.Errorf("a Conn takes %d bytes", n)
	}
}

func TestCloseDelayedSendsNoFIN(t *testing.T) {
	w := start(t, Options{})
	a := serve(t, w, func() Handler {
		return &fake{data: func(c *Conn, b []byte) int {
			c.Write([]byte("answer"))
			c.CloseDelayed(200 * time.Millisecond)
			return 0
		}}
	})
	for _, leave := range []bool{false, true} {
		c := dial(t, a)
		began := time.Now()
		io.WriteString(c, "half a reque")
		io.ReadFull(c, make([]byte, 6))
		if leave {
			c.CloseWrite()
		}
		io.WriteString(c, "st")
		_, err := io.ReadAll(c)
		if took := time.Since(began); err != nil || (took < 150*time.Millisecond) != leave {
			t.Errorf("leave %v: closed after %v, %v", leave, took, err)
		}
	}
}

// Output that a peer doesn't take in time is cut with RST, never with the FIN that
// would make the part look like the whole; a patient conn keeps it.
func TestOutputThatIsNotTakenIsCutWithReset(t *testing.T) {
	for _, patient := range []bool{false, true} {
		w, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		fd, err := OpenListener(netip.MustParseAddrPort("127.0.0.1:0"), "", SocketOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var c *Conn
		if _, err := w.Listen(fd, func(fd int, _ netip.AddrPort) { c = w.Adopt(fd, &fake{}) }); err != nil {
			t.Fatal(err)
		}
		turn := func() {
			n, _ := unix.EpollWait(w.ep, w.events, 10)
			w.turn(max(n, 0))
		}
		peer := dial(t, SocketName(fd))
		for c == nil {
			turn()
		}
		const size = 16 << 20
		c.Write(make([]byte, size))
		if patient {
			c.Patient()
		}
		c.SetLinger(0)
		c.CloseWhenFlushed()
		for range 6 {
			w.base = w.base.Add(-flushTimeout)
			for range 3 {
				turn()
			}
		}
		if c.Closed() == patient {
			t.Errorf("patient %v: closed %v after a minute", patient, c.Closed())
		}
		read := make(chan error, 1)
		go func() {
			n, err := io.Copy(io.Discard, peer)
			if err == nil && n != size {
				err = io.ErrUnexpectedEOF
			}
			read <- err
		}()
		for done := false; !done; {
			turn()
			select {
			case err := <-read:
				if done = true; patient && err != nil || !patient && !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("patient %v: the peer got %v", patient, err)
				}
			default:
			}
		}
	}
}

func TestStepsAndCallsAreCounted(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	end := &tally{}
	if end.there, _, err = w.Pair(end, end); err != nil {
		t.Fatal(err)
	}
	before := w.Calls()
	end.there.Write([]byte("hello"))
	for end.got == 0 {
		if err := w.Step(); err != nil {
			t.Fatal(err)
		}
	}
	after := w.Calls()
	if n := after.Writes - before.Writes; n != 1 {
		t.Errorf("%d writes", n)
	}
	if n := after.Reads - before.Reads; n != 1 || after.Others != before.Others {
		t.Errorf("%d reads, %+v", n, after)
	}
}

// tally counts what comes.
type tally struct {
	there *Conn
	got   int
}

func (t *tally) OnData(_ *Conn, b []byte) int { t.got += len(b); return len(b) }
func (t *tally) OnEOF(*Conn)                  {}
func (t *tally) OnDrain(*Conn)                {}
func (t *tally) OnClose(*Conn, error)         {}
func (t *tally) OnConnect(*Conn, error)       {}
