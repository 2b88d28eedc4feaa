// Package machine is where the benchmark runs: namespaces joined by veth pairs,
// a cgroup for the proxy, and the accounts of who used the processors.
package machine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CPU is processor time in nanoseconds.
type CPU struct{ Total, User, Sys float64 }

// Sub gives what was used since before.
func (c CPU) Sub(before CPU) CPU {
	return CPU{c.Total - before.Total, c.User - before.User, c.Sys - before.Sys}
}

// Account says whose processor time is read: a control group's, or that of
// processes. Its text form is a comma-separated list of "cgroup:DIR" and "pid:N".
type Account string

// OfProcesses makes the account of processes.
func OfProcesses(pids ...int) Account {
	var parts []string
	for _, p := range pids {
		parts = append(parts, "pid:"+strconv.Itoa(p))
	}
	return Account(strings.Join(parts, ","))
}

// Read gives the time used so far.
func (a Account) Read() (CPU, error) {
	var sum CPU
	for part := range strings.SplitSeq(string(a), ",") {
		kind, name, _ := strings.Cut(part, ":")
		var c CPU
		var err error
		switch kind {
		case "cgroup":
			c, err = cgroupCPU(name)
		case "pid":
			c, err = processCPU(name)
		default:
			err = fmt.Errorf("account %q is neither of a cgroup nor of a pid", part)
		}
		if err != nil {
			return CPU{}, fmt.Errorf("reading processor time: %w", err)
		}
		sum = CPU{sum.Total + c.Total, sum.User + c.User, sum.Sys + c.Sys}
	}
	return sum, nil
}

func number(path string) (float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
}

func cgroupCPU(dir string) (c CPU, err error) {
	if c.Total, err = number(filepath.Join(dir, "cpuacct.usage")); err == nil {
		c.User, _ = number(filepath.Join(dir, "cpuacct.usage_user"))
		c.Sys, _ = number(filepath.Join(dir, "cpuacct.usage_sys"))
		return c, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "usage_usec":
			c.Total = v * 1000
		case "user_usec":
			c.User = v * 1000
		case "system_usec":
			c.Sys = v * 1000
		}
	}
	return c, nil
}

// processCPU adds up the threads' schedstat, and splits it by the ticks of stat.
func processCPU(pid string) (c CPU, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return c, err
	}
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	user, _ := strconv.ParseFloat(string(f[11]), 64)
	sys, _ := strconv.ParseFloat(string(f[12]), 64)
	tasks, err := os.ReadDir("/proc/" + pid + "/task")
	if err != nil {
		return c, err
	}
	for _, t := range tasks {
		s, err := os.ReadFile("/proc/" + pid + "/task/" + t.Name() + "/schedstat")
		if err != nil {
			continue // the thread has ended
		}
		v, _, _ := strings.Cut(string(s), " ")
		n, _ := strconv.ParseFloat(v, 64)
		c.Total += n
	}
	if user+sys > 0 {
		c.User = c.Total * user / (user + sys)
	}
	c.Sys = c.Total - c.User
	return c, nil
}

// Cores is the busy time of cores 0 and 1, and what the hypervisor kept of both.
type Cores struct {
	Busy  [2]float64 // nanoseconds
	Steal float64    // nanoseconds
	Known bool       // Busy comes from an account in nanoseconds
}

// Sub gives what was used since before.
func (c Cores) Sub(before Cores) Cores {
	c.Busy[0] -= before.Busy[0]
	c.Busy[1] -= before.Busy[1]
	c.Steal -= before.Steal
	return c
}

// tick is the unit of /proc/stat in nanoseconds.
const tick = 1e7

// ReadCores reads the root control group's account of each core where there is
// one, and /proc/stat otherwise, whose ticks are coarse.
func ReadCores() Cores {
	var c Cores
	text, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "cpu0" && f[0] != "cpu1" {
			continue
		}
		core := int(f[0][3] - '0')
		for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
			v, _ := strconv.ParseFloat(f[i], 64)
			c.Busy[core] += v * tick
		}
		v, _ := strconv.ParseFloat(f[8], 64)
		c.Steal += v * tick
	}
	usage, err := os.ReadFile("/sys/fs/cgroup/cpuacct/cpuacct.usage_percpu")
	if f := strings.Fields(string(usage)); err == nil && len(f) >= 2 {
		for i := range c.Busy {
			c.Busy[i], _ = strconv.ParseFloat(f[i], 64)
		}
		c.Known = true
	}
	return c
}

// PSS is the proportional set size of a process in KB: what it shares counts by
// its share.
func PSS(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("reading memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "Pss:"); ok {
			return strconv.ParseFloat(strings.Fields(v)[0], 64)
		}
	}
	return 0, fmt.Errorf("no Pss in smaps_rollup of %d", pid)
}
