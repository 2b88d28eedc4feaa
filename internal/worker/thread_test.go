package worker

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func niceOf(t *testing.T, thread int) int {
	t.Helper()
	p, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	if err != nil {
		return -1 // it has ended
	}
	return 20 - p
}

// It lowers the test process by one, for good.
func TestStandBackSparesTheWorkers(t *testing.T) {
	id := make(chan int, 1)
	w, err := New(Options{Thread: func(n int) { id <- n }})
	if err != nil {
		t.Fatal(err)
	}
	release := w.keepThread()
	defer release()
	defer w.Close()
	own := <-id
	if own != unix.Gettid() {
		t.Errorf("the worker's thread is %d, not %d", own, unix.Gettid())
	}
	before := niceOf(t, own)
	if err := StandBack([]int{own}, before+1); err != nil {
		t.Fatal(err)
	}
	if n := niceOf(t, own); n != before {
		t.Errorf("the worker's nice value is %d, was %d", n, before)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range threads {
		n, _ := strconv.Atoi(x.Name())
		if have := niceOf(t, n); n != own && have != -1 && have != before+1 {
			t.Errorf("thread %d has nice value %d, not %d", n, have, before+1)
		}
	}
	if err := StandBack(nil, before); err != nil { // asks for more than it has: left alone
		t.Error(err)
	}
}
