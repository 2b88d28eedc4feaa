package worker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReservedDescriptorsNeedNoLargerTable(t *testing.T) {
	const n = 3000
	if err := ReserveDescriptors(n); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var size int
		if _, err := fmt.Sscanf(line, "FDSize: %d", &size); err == nil {
			if size < n {
				t.Errorf("the table holds %d descriptors, want %d", size, n)
			}
			return
		}
	}
	t.Fatal("no FDSize in /proc/self/status")
}

func TestNoMoreDescriptorsAreReservedThanTheLimitAllows(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 1024
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	if err := ReserveDescriptors(4096); err != nil {
		t.Error(err)
	}
}
