package worker

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// spin is work of that long.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// turnsUntil runs turns until done, and gives how many there were.
func turnsUntil(t *testing.T, w *Worker, done func() bool) (n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); n++ {
		if time.Now().After(end) {
			t.Fatal("it doesn't end")
		}
		k := 0
		if w.seen == w.got {
			k, _ = unix.EpollWait(w.ep, w.events, 0)
		}
		w.turn(max(k, 0))
	}
	return n
}

// longTurn is what a turn of slow steps may take on its thread: two stages, what
// runs between two looks at the clock, and the detector's millisecond.
const longTurn = 2*stageTime + (stepsPerLook+1)*stepTime + sampleEvery

const stepTime = 200 * time.Microsecond

func TestTimersOfOneMomentAreSpreadOverTurns(t *testing.T) {
	w, err := New(Options{StallLimit: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fired := 0
	timers := make([]Timer, 100)
	for i := range timers {
		timers[i].Fire = func() { fired++; spin(stepTime) }
		w.Start(&timers[i], time.Millisecond)
	}
	n := turnsUntil(t, w, func() bool { return fired == len(timers) })
	if n < 8 {
		t.Errorf("%d turns for timers of 20 ms", n)
	}
	if busy := w.Turns().Busiest; busy > longTurn {
		t.Errorf("a turn took %v", busy)
	}
}

func TestManyReadySocketsAreSpreadOverTurnsInOrder(t *testing.T) {
	w, err := New(Options{StallLimit: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var served []int
	for i := range 100 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[1])
		w.Adopt(fds[0], &fake{data: func(_ *Conn, b []byte) int {
			served = append(served, i)
			spin(stepTime)
			return len(b)
		}})
		unix.Write(fds[1], []byte("x"))
	}
	n := turnsUntil(t, w, func() bool { return len(served) == 100 })
	if n < 8 {
		t.Errorf("%d turns for 20 ms of work", n)
	}
	for i, v := range served {
		if i != v {
			t.Fatalf("served in the order %v", served)
		}
	}
	if busy := w.Turns().Busiest; busy > longTurn {
		t.Errorf("a turn took %v", busy)
	}
}

func TestManyConnectionsThatEndAreSpreadOverTurns(t *testing.T) {
	w, err := New(Options{StallLimit: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	closed := 0
	for range 100 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[1])
		c := w.Adopt(fds[0], &fake{close: func(*Conn, error) { closed++; spin(stepTime) }})
		c.fail(errors.New("over"))
	}
	if n := turnsUntil(t, w, func() bool { return closed == 100 }); n < 8 {
		t.Errorf("%d turns for 20 ms of work", n)
	}
	if busy := w.Turns().Busiest; busy > longTurn {
		t.Errorf("a turn took %v", busy)
	}
}

func TestAcceptingLeavesTimeForOthers(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd, err := OpenListener(netip.MustParseAddrPort("127.0.0.1:0"), "", SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	if _, err := w.Listen(fd, func(fd int, _ netip.AddrPort) { accepted++; unix.Close(fd); spin(stepTime) }); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		defer dial(t, SocketName(fd)).Close()
	}
	if n := turnsUntil(t, w, func() bool { return accepted == 50 }); n < 4 {
		t.Errorf("%d turns for 10 ms of work", n)
	}
}

// A slow reader's first bytes fill its kernel's buffer: what then stays here is
// one small read.
func TestReadsGrowWithWhatCame(t *testing.T) {
	c := &Conn{}
	for _, s := range []struct {
		came uint64
		want int
	}{{0, 16 << 10}, {128 << 10, 16 << 10}, {256 << 10, 32 << 10}, {512 << 10, 64 << 10}, {1 << 30, 64 << 10}} {
		if c.rx = s.came; c.readSize() != s.want {
			t.Errorf("after %d bytes a read asks for %d, not %d", s.came, c.readSize(), s.want)
		}
	}
	if c.ReadBig(); c.readSize() != 128<<10 {
		t.Errorf("a big read asks for %d", c.readSize())
	}
}

func TestWaitingIsNoProcessorTime(t *testing.T) {
	w, err := New(Options{StallLimit: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Post(func() { time.Sleep(20 * time.Millisecond) })
	w.turn(0)
	if s := w.Turns(); s.Stalls != 1 || s.Longest < 20*time.Millisecond || s.Busiest > 10*time.Millisecond {
		t.Errorf("%+v after a turn that slept", s)
	}
	for range 20 { // a busy machine may take one off its thread
		w.Post(func() { spin(5 * time.Millisecond) })
		w.turn(0)
	}
	if s := w.Turns(); s.Stalls != 21 || s.Busiest < time.Millisecond {
		t.Errorf("%+v after turns that worked", s)
	}
}

func TestTrimTellsOthers(t *testing.T) {
	w := &Worker{}
	told := 0
	w.OnTrim(func() { told++ })
	if w.Trim(); told != 1 {
		t.Errorf("told %d times", told)
	}
}
