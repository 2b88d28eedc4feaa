package conform

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopPatience is how long a proxy may take to end after SIGTERM.
const stopPatience = 5 * time.Second

// process is the proxy under test, the leader of a process group of its own:
// what it leaves behind is found there.
type process struct {
	cmd         *exec.Cmd
	folder      string
	adminPort   int
	done        chan struct{} // closed when it has ended
	expectedEnd bool
}

// startProcess runs command in the folder, its output in stdout.log and stderr.log.
func startProcess(command []string, folder string, adminPort int) (*process, error) {
	p := &process{folder: folder, adminPort: adminPort, done: make(chan struct{})}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Dir = folder
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := os.Create(filepath.Join(folder, "stdout.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	errs, err := os.Create(filepath.Join(folder, "stderr.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = errs.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = out, errs
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the proxy: %w", err)
	}
	go func() { // stop waits for it through done
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// endedWithin waits for its end.
func (p *process) endedWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// waitUp waits for the proxy: ok, refused (it exited) or not ready. Uninitialized
// is content with an admin port that answers.
func (p *process) waitUp(ports []int, deadline time.Time, initialized bool) string {
	for {
		if p.hasEnded() {
			return "refused"
		}
		if left(deadline) == 0 {
			return "not ready"
		}
		status, _, _ := p.admin("GET", "/ready", nil, earlier(deadline, after(time.Second)))
		if status == 200 || status != 0 && !initialized {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	soon := earlier(deadline, after(time.Second))
	for _, port := range ports {
		for left(soon) > 0 && !listening(port) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return "ok"
}

// admin is one admin request. Without an answer the status is 0 and why says what
// happened.
func (p *process) admin(method, path string, body []byte, deadline time.Time) (status int, got []byte, why string) {
	w, why := dial(dialing{port: p.adminPort}, deadline)
	if w == nil {
		return 0, nil, why
	}
	defer w.closeBy("fin")
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n", method, path)
	if len(body) > 0 || method == "POST" {
		head += fmt.Sprintf("content-length: %d\r\n", len(body))
	}
	w.send(append(append(rawBytes(head), "\r\n"...), body...), deadline)
	answer := readHead(w, deadline)
	if answer == nil {
		return 0, nil, w.endOr("timeout")
	}
	line, fields := parseHead(answer)
	parts := strings.SplitN(line, " ", 3)
	if len(parts) > 1 {
		status, _ = strconv.Atoi(parts[1])
	}
	return status, readBody(w, fields, deadline, true).data, ""
}

// stats are the counters and gauges of /stats.
func (p *process) stats() map[string]int {
	out := map[string]int{}
	_, body, _ := p.admin("GET", "/stats", nil, after(3*time.Second))
	for line := range strings.Lines(latin1(body)) {
		at := strings.LastIndex(line, ": ")
		if at < 0 {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(line[at+2:])); err == nil {
			out[line[:at]] = n
		}
	}
	return out
}

// waitExit is its exit code, "signal N", or "running".
func (p *process) waitExit(d time.Duration) any {
	if !p.endedWithin(d) {
		return "running"
	}
	p.expectedEnd = true
	if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return fmt.Sprintf("signal %d", s.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends the proxy and tells what is wrong: a crash before, a hang now,
// processes left over.
func (p *process) stop() (problems []string) {
	if p.hasEnded() {
		if !p.expectedEnd {
			problems = append(problems, fmt.Sprintf("crash: the proxy ended by itself with %v: %s", p.waitExit(0), p.tail()))
		}
	} else {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if !p.endedWithin(stopPatience) {
			problems = append(problems, fmt.Sprintf("hang: still running %v after SIGTERM", stopPatience))
			_ = p.cmd.Process.Kill()
			<-p.done
		} else if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() && s.Signal() != syscall.SIGTERM {
			problems = append(problems, fmt.Sprintf("crash: signal %d on its way out: %s", s.Signal(), p.tail()))
		}
	}
	for _, pid := range p.leftovers() {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		problems = append(problems, "leftover: process "+strings.TrimSpace(string(name)))
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return problems
}

// tail is the last lines of its standard error.
func (p *process) tail() string {
	data, _ := os.ReadFile(filepath.Join(p.folder, "stderr.log"))
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	said := strings.Join(lines[max(0, len(lines)-3):], " | ")
	return said[max(0, len(said)-600):]
}

// leftovers are living processes of the proxy's group.
func (p *process) leftovers() []int {
	if errors.Is(syscall.Kill(-p.cmd.Process.Pid, 0), syscall.ESRCH) {
		return nil
	}
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		cols := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(cols) > 2 && cols[2] == strconv.Itoa(p.cmd.Process.Pid) && cols[0] != "Z" {
			found = append(found, pid)
		}
	}
	return found
}
