package worker

import (
	"slices"
	"testing"
	"time"
)

func TestManyCallsAreSpreadOverTurnsInOrder(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var ran []int
	call := func(i int) func() {
		return func() {
			for began := time.Now(); time.Since(began) < mailTurn/2; {
			}
			ran = append(ran, i)
		}
	}
	for i := range 20 {
		w.Post(call(i))
	}
	turns := 0
	for ; w.busy(); turns++ {
		before := len(ran)
		w.runMail()
		if turns == 1 {
			w.Post(call(20)) // behind those that wait
		}
		if n := len(ran) - before; n < 1 || n > 3 {
			t.Fatalf("turn %d ran %d calls", turns, n)
		}
	}
	if turns < 7 || len(ran) != 21 || !slices.IsSorted(ran) {
		t.Errorf("%d turns ran %v", turns, ran)
	}
}

func TestWorkerDoesntWaitForWhoPosts(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ran := 0
	w.Post(func() { ran++ })
	w.mail.mu.Lock()
	if w.runMail(); ran != 0 || !w.busy() {
		t.Errorf("ran %d calls, busy %v while the mailbox is held", ran, w.busy())
	}
	w.mail.mu.Unlock()
	if w.runMail(); ran != 1 || w.busy() {
		t.Errorf("ran %d calls, busy %v afterwards", ran, w.busy())
	}
}

// The eventfd is written after the lock is given up, and closed after it is written.
func TestWhoWakesTheWorkerHoldsNoLock(t *testing.T) {
	w, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &w.mail
	if !m.put(func() {}) || m.put(func() {}) {
		t.Fatal("the first call wakes the worker, the next doesn't")
	}
	if !m.mu.TryLock() {
		t.Fatal("the lock is held")
	}
	m.mu.Unlock()
	closed := make(chan struct{})
	go func() { w.Close(); close(closed) }()
	select {
	case <-closed:
		t.Fatal("closed while somebody is about to write")
	case <-time.After(20 * time.Millisecond):
	}
	m.ringing.Add(-1)
	<-closed
	w.Post(func() { t.Error("ran after the end") })
}
