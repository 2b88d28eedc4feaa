// Package weather measures one proxy process under ten thousand bad peers: its
// memory, the turns of its worker, and what a well-behaved connection through
// the same worker notices. docs/WEATHER.md has the figures; -update writes it.
//
// The test runs in a network namespace of its own, with socket buffers that
// don't grow, so that ten thousand stuck connections fit into any machine. Bad
// peers are another process (see maker), which gives way to everyone else.
package weather

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"sluice/internal/meshtest"
)

var (
	update = flag.Bool("update", false, "write docs/WEATHER.md, with -envoy")
	rival  = flag.String("envoy", "", "path of the real Envoy, to be measured in the same weather")
)

// What a process of this test is told by whoever started it.
const (
	folderVar = "WEATHER_FOLDER" // inside the namespace: where the proxy and the certificates are
	kindVar   = "WEATHER_KIND"   // this is a maker, of that weather
)

// descriptors are enough for the proxy and for the peers of ten thousand
// connections, each of which has two ends there.
const descriptors = 65536

func TestMain(m *testing.M) {
	flag.Parse()
	switch kind := os.Getenv(kindVar); {
	case testing.Short():
		os.Exit(m.Run())
	case kind != "":
		exit(0, makeWeather(kind))
	case os.Getenv(folderVar) == "":
		exit(inside())
	}
	if err := settle(); err != nil {
		exit(1, err)
	}
	os.Exit(m.Run())
}

func exit(status int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "weather:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// inside builds the proxy and runs this binary again, in a new namespace.
func inside() (status int, err error) {
	dir, err := os.MkdirTemp("", "weather")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if _, err := meshtest.Build(context.Background(), dir, false); err != nil {
		return 1, err
	}
	if err := writeCertificates(dir); err != nil {
		return 1, err
	}
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), folderVar+"="+dir)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	var ended *exec.ExitError
	if err := c.Run(); errors.As(err, &ended) {
		return max(ended.ExitCode(), 1), nil
	} else if err != nil {
		return 1, fmt.Errorf("starting in a namespace of its own: %w", err)
	}
	return 0, nil
}

// settle prepares the namespace.
func settle() error {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("setting lo up: %w: %s", err, out)
	}
	for name, value := range map[string]string{
		"ipv4/tcp_rmem": "4096 32768 65536", "ipv4/tcp_wmem": "4096 16384 65536", "core/somaxconn": "16384", "ipv4/tcp_max_syn_backlog": "16384",
	} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// crowdSize is how many connections a crowd has: ten thousand, or as many as the
// proxy has descriptors for, two for each and some of its own.
func crowdSize() int {
	limit := syscall.Rlimit{Cur: descriptors, Max: descriptors}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) != nil { // not for us to raise
		syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
		limit.Cur = limit.Max
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
	return min(10000, int(limit.Max-300)/2)
}

// model is the processor's name, and how many there are of it.
func model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	name, n := "unknown", 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, v, ok := cutTrim(lines.Text(), ":"); ok && key == "model name" {
			name = v
			n++
		}
	}
	return fmt.Sprintf("%d × %s", n, name)
}

func folder(name string) string { return filepath.Join(os.Getenv(folderVar), name) }
