package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type runOptions struct {
	sluice, envoy, rows, out, results string
	rounds                            int
	length                            time.Duration
}

// contestant is one proxy of the comparison.
type contestant struct {
	name string
	args func(config, listen, upstream string) []string
}

// sample is one measurement of one contestant.
type sample struct {
	Row, Proxy string
	Round      int
	Value      float64 // in the row's unit
	User, Sys  float64 // shares of Value
	Load       loadResult
}

func run(ctx context.Context, o runOptions) error {
	pick, err := regexp.Compile(o.rows)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if o.sluice, err = filepath.Abs(o.sluice); err != nil {
		return err
	}
	if err := writePKI(filepath.Join(o.out, "certs")); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	var samples []sample
	for round := range o.rounds {
		for _, r := range rows() {
			if !pick.MatchString(r.name) {
				continue
			}
			order := contestants(o, r)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, p := range order {
				s, err := measure(ctx, o, r, p)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", r.name, p.name, err)
				}
				s.Round = round
				samples = append(samples, s)
				fmt.Fprintf(os.Stderr, "%-38s %-8s %10.2f %s  p99 %.0f µs  errors %d %s\n", r.name, p.name, s.Value, r.unit, s.Load.P99, s.Load.Errors, s.Load.Error)
			}
		}
	}
	raw, err := json.MarshalIndent(samples, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "samples.json"), raw, 0o644); err != nil {
		return err
	}
	table := report(samples)
	fmt.Print(table)
	if o.results != "" {
		return os.WriteFile(o.results, []byte(resultsHead(o)+table), 0o644)
	}
	return nil
}

// contestants are sluice, Envoy and, where bytes are just passed on, the bare
// forwarder: what the kernel alone costs on this machine.
func contestants(o runOptions, r row) []contestant {
	list := []contestant{{"sluice", func(config, _, _ string) []string {
		return []string{o.sluice, "-c", config, "--concurrency", "1", "-l", "warning"}
	}}}
	if envoy := findEnvoy(o.envoy); envoy != "" {
		list = append(list, contestant{"envoy", func(config, _, _ string) []string {
			return []string{envoy, "-c", config, "--concurrency", "1", "-l", "warning", "--disable-hot-restart"}
		}})
	}
	if r.load.CertDir == "" && !r.memory {
		self, err := os.Executable()
		if err == nil {
			list = append(list, contestant{"forward", func(_, listen, upstream string) []string {
				return []string{self, "forward", "-listen", listen, "-to", upstream}
			}})
		}
	}
	return list
}

func findEnvoy(named string) string {
	if named == "none" {
		return ""
	}
	if named == "" {
		named, _ = exec.LookPath("envoy")
		return named
	}
	if path, err := filepath.Abs(named); err == nil {
		return path
	}
	return named
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// pinned wraps a command so that it runs on one core: the proxy alone on core 1,
// client and back end on core 0.
func pinned(ctx context.Context, core int, dir string, args ...string) *exec.Cmd {
	if _, err := exec.LookPath("taskset"); err == nil {
		args = append([]string{"taskset", "-c", strconv.Itoa(core)}, args...)
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = dir
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 3 * time.Second
	return c
}

func measure(ctx context.Context, o runOptions, r row, p contestant) (sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	var started []*exec.Cmd
	defer func() {
		cancel()
		for _, c := range started {
			_ = c.Wait()
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return sample{}, err
	}
	back := pinned(ctx, 0, o.out, self, "backend", "-kind", r.backend, "-size", strconv.Itoa(r.size))
	pipe, err := back.StdoutPipe()
	if err != nil {
		return sample{}, err
	}
	if err := back.Start(); err != nil {
		return sample{}, err
	}
	started = append(started, back)
	address, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil {
		return sample{}, fmt.Errorf("starting the back end: %w", err)
	}
	proxy, listen, admin, err := startProxy(ctx, o, r, p, strings.TrimSpace(address))
	if err != nil {
		return sample{}, err
	}
	started = append(started, proxy)
	if err := waitListening(ctx, listen, admin, p.name != "forward"); err != nil {
		return sample{}, err
	}
	return underLoad(ctx, o, r, p, proxy.Process.Pid, listen)
}

func startProxy(ctx context.Context, o runOptions, r row, p contestant, upstream string) (proxy *exec.Cmd, listen string, admin int, err error) {
	port, err := freePort()
	if err != nil {
		return nil, "", 0, err
	}
	if admin, err = freePort(); err != nil {
		return nil, "", 0, err
	}
	_, up, _ := strings.Cut(upstream, ":")
	upPort, _ := strconv.Atoi(up)
	text, err := bootstrap(r, port, admin, upPort)
	if err != nil {
		return nil, "", 0, err
	}
	config := filepath.Join(o.out, "bootstrap.json")
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return nil, "", 0, err
	}
	listen = "127.0.0.1:" + strconv.Itoa(port)
	proxy = pinned(ctx, 1, o.out, p.args(config, listen, upstream)...)
	proxy.Stderr, err = os.Create(filepath.Join(o.out, p.name+".log"))
	if err != nil {
		return nil, "", 0, err
	}
	return proxy, listen, admin, proxy.Start()
}

func waitListening(ctx context.Context, listen string, admin int, hasAdmin bool) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if hasAdmin {
			res, err := http.Get("http://127.0.0.1:" + strconv.Itoa(admin) + "/ready")
			if err != nil {
				continue
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				continue
			}
		}
		if c, err := net.Dial("tcp", listen); err == nil {
			c.Close()
			return nil
		}
	}
	return errors.New("the proxy did not start listening in 10 s")
}

func underLoad(ctx context.Context, o runOptions, r row, p contestant, pid int, listen string) (sample, error) {
	self, err := os.Executable()
	if err != nil {
		return sample{}, err
	}
	s := r.load
	args := []string{self, "load", "-kind", s.Kind, "-to", listen, "-conns", strconv.Itoa(s.Conns), "-streams", strconv.Itoa(max(s.Streams, 1)),
		"-rate", fmt.Sprint(s.Rate), "-size", strconv.Itoa(s.Size), "-length", o.length.String()}
	if s.CertDir != "" {
		args = append(args, "-certs", s.CertDir)
	}
	time.Sleep(200 * time.Millisecond)
	pssBefore, err := pss(pid)
	if err != nil {
		return sample{}, err
	}
	client := pinned(ctx, 0, o.out, args...)
	client.Stderr = os.Stderr
	pipe, err := client.StdoutPipe()
	if err != nil {
		return sample{}, err
	}
	if err := client.Start(); err != nil {
		return sample{}, err
	}
	defer client.Wait()
	out := bufio.NewReader(pipe)
	if _, err := out.ReadString('\n'); err != nil {
		return sample{}, fmt.Errorf("the load client ended early: %w", err)
	}
	before, err := cpu(pid)
	if err != nil {
		return sample{}, err
	}
	if _, err := out.ReadString('\n'); err != nil {
		return sample{}, fmt.Errorf("the load client ended early: %w", err)
	}
	after, err := cpu(pid)
	if err != nil {
		return sample{}, err
	}
	pssAfter, err := pss(pid)
	if err != nil {
		return sample{}, err
	}
	result := sample{Row: r.name, Proxy: p.name}
	if err := json.NewDecoder(out).Decode(&result.Load); err != nil {
		return sample{}, fmt.Errorf("reading the load's result: %w", err)
	}
	if result.Load.Units == 0 {
		return sample{}, fmt.Errorf("no unit of work was done: %s", result.Load.Error)
	}
	units := float64(result.Load.Units)
	if r.memory {
		result.Value = (pssAfter - pssBefore) / units
		return result, nil
	}
	result.User = (after.user - before.user) * r.scale / units
	result.Sys = (after.sys - before.sys) * r.scale / units
	result.Value = result.User + result.Sys
	return result, nil
}
