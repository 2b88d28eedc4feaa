package worker

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A push of ten thousand clusters keeps several threads busy: the control path's
// and the collector's. Where processors are few the kernel lets each run for up
// to a tick (4 ms) before the worker's turn comes. So a worker has a thread of
// its own, and StandBack has the others give way to it. All of it works without
// privileges, and within the container: others' shares don't change.

// turnSlice is what a worker asks of the kernel (6.12 and later): short turns,
// which come soon after it wakes. Its share of the processor stays the same.
const turnSlice = 100 * time.Microsecond

// keepThread binds the calling goroutine to its thread until release is called.
func (w *Worker) keepThread() (release func()) {
	runtime.LockOSThread()
	if a, err := unix.SchedGetAttr(0, 0); err == nil && a.Policy == unix.SCHED_NORMAL {
		a.Runtime = uint64(turnSlice)
		_ = unix.SchedSetAttr(0, a, 0) // an older kernel takes turns of its own length
	}
	if w.opts.Thread != nil {
		w.opts.Thread(unix.Gettid())
	}
	return runtime.UnlockOSThread
}

// StandBack lowers the priority of all threads of the process but the given ones
// to nice. Threads begin with the priority of the one that makes them, and a
// worker's, being bound, makes none; so what is new meanwhile is found by another
// look.
func StandBack(workers []int, nice int) error {
	done := map[int]bool{}
	for _, id := range workers {
		done[id] = true
	}
	for again := true; again; {
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing threads: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil || done[id] {
				continue
			}
			done[id], again = true, true
			if err := lower(id, nice); err != nil && err != unix.ESRCH {
				return fmt.Errorf("lowering the priority of a thread: %w", err)
			}
		}
	}
	return nil
}

func lower(thread, nice int) error {
	have, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	if err != nil || have <= 20-nice { // the system call gives 20 - nice
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, thread, nice)
}
