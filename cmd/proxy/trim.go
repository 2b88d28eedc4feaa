package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// trim gives back what only the start needed. Registering some two hundred
// protobuf packages runs and reads nearly all of the binary once, and the kernel
// maps what lies around each page: two thirds of an idle sidecar's memory are
// pages of the file that are never looked at again. The first configuration's
// garbage goes back too.
func trim() error {
	debug.FreeOSMemory()
	return dropPages()
}

// dropPages takes the pages of the binary out of the page table. Each that is
// looked at again costs a minor fault.
func dropPages() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the binary: %w", err)
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("reading the memory map: %w", err)
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		from, to, ok := fileMapping(lines.Text(), exe)
		if !ok {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("giving pages of the binary back: %w", errno)
		}
	}
	return nil
}

// fileMapping reads a line of /proc/PID/maps, and takes it when it is a mapping
// of exe that can't have been written to: such pages are the file's.
func fileMapping(line, exe string) (from, to uintptr, ok bool) {
	f := strings.Fields(line)
	if len(f) != 6 || f[5] != exe || len(f[1]) != 4 || f[1][1] == 'w' {
		return 0, 0, false
	}
	a, b, _ := strings.Cut(f[0], "-")
	x, err := strconv.ParseUint(a, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	y, err := strconv.ParseUint(b, 16, 64)
	return uintptr(x), uintptr(y), err == nil && x < y
}
