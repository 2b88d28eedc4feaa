package conform

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"
)

func dirFS(root string) fs.FS { return os.DirFS(root) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func after(d time.Duration) time.Time { return time.Now().Add(d) }

func left(deadline time.Time) time.Duration { return max(0, time.Until(deadline)) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// pause sleeps, or returns when the context is done.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// monitor is a mutex with a condition that can be awaited with a deadline.
type monitor struct {
	sync.Mutex
	changed chan struct{}
}

// notify wakes all who wait. The lock is held.
func (m *monitor) notify() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// await waits until test holds or the deadline has passed, and says whether it
// holds. The lock is held, also while test runs, and given up between.
func (m *monitor) await(deadline time.Time, test func() bool) bool {
	for !test() {
		rest := left(deadline)
		if rest == 0 {
			return false
		}
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.Unlock()
		t := time.NewTimer(rest)
		select {
		case <-changed:
		case <-t.C:
		}
		t.Stop()
		m.Lock()
	}
	return true
}
