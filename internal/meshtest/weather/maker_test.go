package weather

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// maker is a process of bad peers: clients, and the upstreams that they ask for.
// It says "ready", waits for a line, makes its weather, says "up" once all of it
// is there, and when its input ends it tells its facts and goes.
type maker struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said chan string
}

// facts are what a weather has counted.
type facts map[string]int

// startMaker starts one, less important than whoever else runs: the processors
// are the proxies' and their neighbours'.
func startMaker(t *testing.T, kind string) *maker {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &maker{cmd: exec.Command("nice", "-n", "19", self, "-test.run=^$"), said: make(chan string, 8)}
	m.cmd.Env = append(os.Environ(), kindVar+"="+kind)
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.cmd.Process.Kill(); m.cmd.Wait() })
	go func() { // ends with the process
		defer close(m.said)
		for s := bufio.NewScanner(out); s.Scan(); {
			m.said <- s.Text()
		}
	}()
	if _, err := m.hear("ready"); err != nil {
		t.Fatal(err)
	}
	return m
}

// patience is how long a maker may take to say something.
const patience = 30 * time.Second

// hear waits for a line.
func (m *maker) hear(want string) (string, error) {
	select {
	case got, ok := <-m.said:
		if !ok || want != "" && got != want {
			return "", fmt.Errorf("the weather says %q instead of %q", got, want)
		}
		return got, nil
	case <-time.After(patience):
		return "", fmt.Errorf("the weather doesn't say %q within %v", want, patience)
	}
}

func (m *maker) begin(t *testing.T) {
	if _, err := io.WriteString(m.in, "go\n"); err != nil {
		t.Fatal(err)
	}
}

// end gives what the weather has counted.
func (m *maker) end(t *testing.T) (f facts) {
	t.Helper()
	m.in.Close()
	said, err := m.hear("")
	if err == nil {
		err = json.Unmarshal([]byte(said), &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// makeWeather is the maker's own life.
func makeWeather(kind string) error {
	w, ok := weathers()[kind]
	if !ok {
		return fmt.Errorf("no weather is called %q", kind)
	}
	if w.serve != nil {
		if err := w.serve(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	over := make(chan struct{})
	go func() { // ends with the input
		io.Copy(io.Discard, in)
		close(over)
	}()
	f := facts{}
	if err := w.make(f, func() { fmt.Println("up") }, over); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// weather is what a maker does. serve opens upstreams; make calls up when all of
// it is there, and returns when over is closed.
type weather struct {
	serve func() error
	make  func(f facts, up func(), over <-chan struct{}) error
}

func weathers() map[string]weather {
	f := &floods{}
	return map[string]weather{
		"slow-readers":   {f.http, slowReaders(viaHTTP, floodRequest)},
		"slow-relays":    {f.tcp, slowReaders(viaTCP, "x")},
		"slow-heads":     {nil, slowWriters(slowHead)},
		"slow-bodies":    {serveSilent, slowWriters(slowBody)},
		"big-body":       {f.both, bigBodies(&f.written)},
		"tiny-windows":   {f.http, tinyWindows},
		"handshakes":     {nil, handshakes},
		"never-reads":    {f.both, neverReads},
		"silent-timeout": {serveSilent, silentUpstream("/silent")},
		"silent-forever": {serveSilent, silentUpstream("/patience")},
		"deaf-upstream":  {serveDeaf, deafUpstream},
	}
}
