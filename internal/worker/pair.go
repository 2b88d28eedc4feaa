package worker

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Pair makes two connected Conns of this worker: what is written to one is read
// from the other.
func (w *Worker) Pair(a, b Handler) (x, y *Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	return w.Adopt(fds[0], a), w.Adopt(fds[1], b), nil
}
