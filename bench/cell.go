package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"sluice/bench/load"
	"sluice/bench/machine"
)

// sample is what one contestant did in one cell.
type sample struct {
	Scenario, Proxy string
	Round, Attempt  int
	Void            string // why it doesn't count
	Error           string // why there's no figure
	Values          map[string]float64
	Rate            float64
	Load            load.Result
}

// bench is a run's surroundings.
type bench struct {
	options  runOptions
	programs programs
	net      *machine.Topology
	dir      string
	ports    ports
	// disturbed says that the cell before was void.
	disturbed bool
}

// ports are fixed in namespaces, and found on loopback.
type ports struct{ proxy, second, admin, admin2, origin, other, ads int }

func findPorts(t *machine.Topology) (ports, error) {
	p := ports{15001, 15006, 15000, 15010, 8080, 8081, 15012}
	if t.Proxy != "" {
		return p, nil
	}
	for _, n := range []*int{&p.proxy, &p.second, &p.admin, &p.admin2, &p.origin, &p.other, &p.ads} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return p, err
		}
		defer l.Close() // after all are found, so that none comes twice
		*n = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

// cell is one fresh set of processes.
type cell struct {
	*bench
	ctx     context.Context
	started []*exec.Cmd
}

// close ends what the cell started, by id.
func (c *cell) close() {
	for i := len(c.started) - 1; i >= 0; i-- {
		_ = c.started[i].Process.Kill()
		_ = c.started[i].Wait()
	}
}

// spawn starts a program of the cell in a place.
func (c *cell) spawn(at machine.Place, stdout io.Writer, argv ...string) (*exec.Cmd, error) {
	cmd := exec.Command(c.programs.self, at.Args(argv)...)
	cmd.Dir = c.dir
	cmd.Stdout = stdout
	log, err := os.Create(filepath.Join(c.dir, filepath.Base(argv[0])+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.started = append(c.started, cmd)
	return cmd, nil
}

func (c *cell) startOrigin(kind string, port, size int) (*exec.Cmd, error) {
	return c.listening("origin", "-kind", kind, "-listen", fmt.Sprintf("0.0.0.0:%d", port), "-size", strconv.Itoa(size))
}

func (c *cell) startServer(name string, port int) error {
	_, err := c.listening(name, "-listen", fmt.Sprintf("0.0.0.0:%d", port))
	return err
}

// listening starts one of our servers in the origin's namespace and waits for
// its word.
func (c *cell) listening(args ...string) (*exec.Cmd, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd, err := c.spawn(machine.Place{Namespace: c.net.Origin}, w, append([]string{c.programs.self}, args...)...)
	w.Close()
	if err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("starting %s: %w", args[0], err)
	}
	return cmd, nil
}

// startProxy starts a contestant, two of it for a pair, and waits until it
// listens. The account is that of all it consists of.
func (c *cell) startProxy(name string, s shape, stamp string) (*exec.Cmd, machine.Account, error) {
	a := c.net.Addr
	front := side{listen: c.ports.proxy, admin: c.ports.admin, to: a.Origin.String(), toPort: c.ports.origin, secureDown: s.TLS, certs: "certs-" + s.Keys,
		log: "access.log", originalTarget: s.Redirect}
	_ = os.Remove(filepath.Join(c.dir, "access.log"))
	_ = os.Remove(filepath.Join(c.dir, "access2.log"))
	var pids []int
	if s.Pair {
		back := front
		back.listen, back.admin, back.to, back.secureDown, back.log = c.ports.second, c.ports.admin2, a.Behind.String(), true, "access2.log"
		argv, err := c.programs.command(name, s, back, c.dir, "2")
		if err != nil {
			return nil, "", err
		}
		cmd, err := c.spawn(machine.Place{Namespace: c.net.Second, Group: c.net.Group, Core: 1}, nil, argv...)
		if err != nil {
			return nil, "", err
		}
		pids = append(pids, cmd.Process.Pid)
		front.to, front.toPort, front.secureUp = a.Second.String(), c.ports.second, true
		if err := c.waitListening(c.net.Proxy, netip.AddrPortFrom(a.Second, uint16(c.ports.second))); err != nil {
			return nil, "", err
		}
	}
	argv, err := c.programs.command(name, s, front, c.dir, "")
	if err != nil {
		return nil, "", err
	}
	cmd, err := c.spawn(machine.Place{Namespace: c.net.Proxy, Group: c.net.Group, Core: 1, Stamp: stamp}, nil, argv...)
	if err != nil {
		return nil, "", err
	}
	account := machine.OfProcesses(append(pids, cmd.Process.Pid)...)
	if c.net.Group != "" {
		account = machine.Account("cgroup:" + c.net.Group)
	}
	return cmd, account, nil
}

// target is where the client sends.
func (c *cell) target(name string, s shape) netip.AddrPort {
	switch {
	case name == direct:
		return netip.AddrPortFrom(c.net.Addr.Direct, uint16(c.ports.origin))
	case s.Redirect && c.net.Proxy != "":
		return netip.AddrPortFrom(c.net.Addr.Origin, uint16(c.ports.origin))
	}
	return netip.AddrPortFrom(c.net.Addr.Proxy, uint16(c.ports.proxy))
}

// waitListening connects until somebody answers.
func (c *cell) waitListening(from string, to netip.AddrPort) error {
	return machine.Within(from, func() error {
		var last error
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && c.ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			conn, err := net.DialTimeout("tcp", to.String(), time.Second)
			if err == nil {
				return conn.Close()
			}
			last = err
		}
		return fmt.Errorf("nobody listens at %s: %w", to, errors.Join(last, c.ctx.Err()))
	})
}

// measure runs one cell.
func (b *bench) measure(ctx context.Context, s scenario, name string) (out sample, err error) {
	out = sample{Scenario: s.name, Proxy: name, Values: map[string]float64{}}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	c := &cell{bench: b, ctx: ctx}
	defer c.close()
	switch s.kind {
	case start:
		return out, c.startUp(s, name, out.Values)
	case control:
		return out, c.control(s, name, out.Values)
	case spread:
		return out, c.spread(s, name, out.Values)
	}
	origin, err := c.startOrigin(s.origin, b.ports.origin, s.size)
	if err != nil {
		return out, err
	}
	spec := s.load
	to := c.target(name, s.shape)
	spec.To, spec.Origin = to.String(), origin.Process.Pid
	if s.shape.Redirect {
		undo, err := b.net.Redirect(b.ports.origin, b.ports.proxy)
		if err != nil {
			return out, err
		}
		defer undo()
	}
	if name != direct {
		proxy, account, err := c.startProxy(name, s.shape, "")
		if err != nil {
			return out, err
		}
		if err := c.waitListening(b.net.Client, to); err != nil {
			return out, fmt.Errorf("%w\n%s", err, c.logOf(name))
		}
		spec.Watch, spec.PID = account, proxy.Process.Pid
	}
	if s.shape.TLS {
		spec.Certs = "certs-" + s.shape.Keys
	}
	spec.Warm, spec.Length, spec.Hold, spec.Steps = b.options.warm, b.options.length, 9*time.Second, b.options.steps()
	out.Rate = spec.Rate
	if out.Load, err = c.runLoad(spec); err != nil {
		return out, fmt.Errorf("%w\n%s", err, c.logOf(name))
	}
	return out, out.figures(s)
}

func (c *cell) logOf(name string) string {
	program := map[string]string{envoy: c.programs.envoy, envoyTuned: c.programs.envoy, envoyTwo: c.programs.envoy, "haproxy": c.programs.haproxy}[name]
	if ours(name) {
		program = c.programs.sluice
	}
	text, _ := os.ReadFile(filepath.Join(c.dir, filepath.Base(program)+".log"))
	return string(text[max(0, len(text)-600):])
}

func (c *cell) runLoad(spec load.Spec) (r load.Result, err error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return r, err
	}
	place := machine.Place{Namespace: c.net.Client}
	cmd := exec.CommandContext(c.ctx, c.programs.self, place.Args([]string{c.programs.self, "load", "-spec", string(text)})...)
	cmd.Dir = c.dir
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	answer, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("the load failed: %w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	if err := json.Unmarshal(answer, &r); err != nil {
		return r, fmt.Errorf("reading the load's result: %w", err)
	}
	return r, nil
}

// figures derive a cell's values, or say why there are none: one wrong answer is
// enough.
func (out *sample) figures(s scenario) error {
	r := &out.Load
	switch {
	case r.Errors > 0:
		return fmt.Errorf("%d errors, the first: %s", r.Errors, r.Error)
	case r.Units == 0:
		return errors.New("no unit of work was done")
	}
	if s.kind == idle {
		for i, kb := range r.Memory {
			out.Values["mem"+strconv.Itoa(i)] = kb
		}
		return nil
	}
	out.Values["cpu"] = r.Proxy.Total / float64(r.Units)
	out.Values["share"] = r.Proxy.Total / r.Conditions.Seconds / 1e9
	out.Values["rate"] = float64(r.Units) / r.Conditions.Seconds
	return nil
}
