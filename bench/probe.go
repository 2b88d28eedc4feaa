package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/bench/load"
	"sluice/bench/machine"
)

// probe follows a process that asks one host about a thousand times a second on
// one connection. It is a process of its own, before others on its core: a
// goroutine beside the control plane would wait for that, and call it a stall of
// the proxy.
type probe struct {
	cmd   *exec.Cmd
	done  sync.WaitGroup
	mu    sync.Mutex
	since int64 // longest is of the answers that were asked for after that
	max   int64 // ns
	want  int   // length of the answer that is waited for
	seen  int64 // when it first came; 0: not yet
	err   error
}

// answer is a line of the probe's: when it came, how long it took, in
// nanoseconds, and how long its body was.
type answer struct {
	at, took int64
	length   int
}

func (c *cell) startProbe(to netip.AddrPort, host string) (*probe, error) {
	cmd := exec.CommandContext(c.ctx, c.programs.self, machine.Place{Namespace: c.net.Client}.Args([]string{c.programs.self, "probe", "-to", to.String(), "-host", host})...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a probe: %w", err)
	}
	p := &probe{cmd: cmd}
	p.done.Go(func() { p.follow(out) })
	return p, nil
}

// follow reads the probe's lines until it ends.
func (p *probe) follow(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.take(lines.Text())
	}
}

func (p *probe) take(line string) {
	var a answer
	_, err := fmt.Sscan(line, &a.at, &a.took, &a.length)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = fmt.Errorf("the probe: %s", line)
		return
	}
	if a.at-a.took > p.since {
		p.max = max(p.max, a.took)
	}
	if a.length == p.want && p.seen == 0 {
		p.seen = a.at
	}
}

// expect waits for answers of a length from now on.
func (p *probe) expect(length int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.seen = length, 0
}

// arrived waits for the answer that is expected, and gives its time.
func (p *probe) arrived(limit time.Duration) (at int64, err error) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		seen, err := p.seen, p.err
		p.mu.Unlock()
		if seen > 0 || err != nil {
			return seen, err
		}
	}
	return 0, fmt.Errorf("not in effect after %s", limit)
}

func (p *probe) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.max, p.since = 0, machine.Monotonic()
}

// longest is the longest wait in milliseconds.
func (p *probe) longest() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.max) / 1e6
}

func (p *probe) close() {
	_ = p.cmd.Process.Kill()
	p.done.Wait()
	_ = p.cmd.Wait()
}

// probeCommand is the process: it asks until ctx ends.
func probeCommand(ctx context.Context, to, host string, out io.Writer) error {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -10) // without the right it waits its turn
	conn, err := net.Dial("tcp", to)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	defer conn.Close()
	request, r := strings.Replace(load.Request, "svc.test", host, 1), bufio.NewReader(conn)
	for ctx.Err() == nil {
		from := machine.Monotonic()
		length, err := askOn(conn, r, request)
		if err != nil {
			fmt.Fprintln(out, err)
			return err
		}
		now := machine.Monotonic()
		if _, err := fmt.Fprintln(out, now, now-from, length); err != nil {
			return err
		}
		wait := unix.NsecToTimespec(max(0, int64(time.Millisecond)-(now-from)))
		_ = unix.Nanosleep(&wait, nil) // the thread's: no other is needed to wake it
	}
	return nil
}

func askOn(w io.Writer, r *bufio.Reader, request string) (length int, err error) {
	if _, err := io.WriteString(w, request); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s", res.Status)
	}
	return int(n), err
}
