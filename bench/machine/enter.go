package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Place is where a program runs. Empty fields leave things as they are.
type Place struct {
	Namespace string // as `ip netns` knows it
	Group     string // folder of a control group
	Core      int
	Stamp     string // file that gets the monotonic nanoseconds just before the program starts
}

// Args are the arguments of the subcommand "enter" that leads to p.
func (p Place) Args(argv []string) []string {
	args := []string{"enter", "-netns", p.Namespace, "-group", p.Group, "-core", strconv.Itoa(p.Core), "-stamp", p.Stamp, "--"}
	return append(args, argv...)
}

// Enter moves this thread to p and becomes argv: the program has this process's
// id, and nothing between it and us costs anything.
func (p Place) Enter(argv []string) error {
	runtime.LockOSThread()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	if p.Namespace != "" {
		fd, err := unix.Open("/run/netns/"+p.Namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening namespace %s: %w", p.Namespace, err)
		}
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering namespace %s: %w", p.Namespace, err)
		}
	}
	if p.Group != "" {
		id := []byte(strconv.Itoa(os.Getpid()))
		if err := os.WriteFile(filepath.Join(p.Group, "cgroup.procs"), id, 0o644); err != nil {
			return fmt.Errorf("entering the control group: %w", err)
		}
	}
	var set unix.CPUSet
	set.Set(p.Core)
	if err := unix.SchedSetaffinity(0, &set); err != nil && err != unix.EINVAL { // EINVAL: there is no such core
		return fmt.Errorf("binding to core %d: %w", p.Core, err)
	}
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil { // 10,000 connections have two ends
		files.Cur, files.Max = max(files.Max, 65536), max(files.Max, 65536)
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &files) != nil && unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
			files.Cur = files.Max
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
		}
	}
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	if p.Stamp != "" {
		if err := os.WriteFile(p.Stamp, []byte(strconv.FormatInt(Monotonic(), 10)), 0o644); err != nil {
			return err
		}
	}
	return unix.Exec(path, argv, os.Environ())
}

// Monotonic is the clock that all processes share, in nanoseconds.
func Monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// Within runs f on a thread in a namespace ("" for the one we are in), and
// brings the thread back.
func Within(namespace string, f func() error) error {
	if namespace == "" {
		return f()
	}
	done := make(chan error, 1)
	go func() { // ends with f; we wait for it
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			done <- err
			return
		}
		defer unix.Close(home)
		err = inside(namespace, f)
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
		done <- err
	}()
	return <-done
}

func inside(namespace string, f func() error) error {
	fd, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return err
	}
	return f()
}
