package worker

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReserveDescriptors makes the process's descriptor table at least n long, as far
// as the limit (RLIMIT_NOFILE) allows. The kernel doubles a full table and, in a
// process with threads, waits for an RCU grace period before the call that found
// it full goes on: a worker stands still for 10 to 40 ms at its 64th, 128th,
// 256th ... descriptor. Called aside, only the caller waits. A descriptor's place
// takes 8 bytes of the kernel's memory.
func ReserveDescriptors(n int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of descriptors: %w", err)
	}
	if uint64(n) > limit.Cur {
		n = int(limit.Cur)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("reserving descriptors: %w", err)
	}
	defer f.Close()
	high, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, n-1)
	if err != nil {
		return fmt.Errorf("reserving %d descriptors: %w", n, err)
	}
	return unix.Close(high)
}
