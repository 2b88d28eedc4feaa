package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// facts are what a reader needs to know about a run beside its samples.
type facts struct {
	Date, CPU, Kernel, Go, Commit string
	Envoy, Haproxy                string
	Hashes                        map[string]string
	Cores, Rounds                 int
	Length, Took, LoadAverage     string
	Quick                         bool
	Rows                          string // the expression that chose them; empty for all
	Notes                         []string
	Gates                         []string // what the correctness gate found
}

func gatherFacts(o runOptions, p programs, notes []string) facts {
	f := facts{
		Date: time.Now().UTC().Format("2006-01-02 15:04 MST"), Go: runtime.Version(), Cores: onlineCores(), Length: o.length.String(), Quick: o.quick, Rows: o.rows,
		Envoy: firstLine(p.envoy, "--version"), Haproxy: firstLine(p.haproxy, "-v"), Commit: firstLine("git", "describe", "--always", "--dirty", "--exclude=*"),
		CPU: "unknown CPU", Hashes: map[string]string{},
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "model name"); ok {
			f.CPU = strings.Trim(v, "\t: \n")
		}
	}
	text, _ = os.ReadFile("/proc/sys/kernel/osrelease")
	f.Kernel = strings.TrimSpace(string(text))
	text, _ = os.ReadFile("/proc/loadavg")
	f.LoadAverage, _, _ = strings.Cut(string(text), " ")
	for name, path := range map[string]string{"sluice": p.sluice, "envoy": p.envoy, "haproxy": p.haproxy} {
		if text, err := os.ReadFile(path); err == nil {
			f.Hashes[name] = fmt.Sprintf("%.12x", sha256.Sum256(text))
		}
	}
	for _, n := range notes {
		if !strings.Contains(n, " ") {
			n += " is not here and was left out"
		}
		f.Notes = append(f.Notes, n)
	}
	return f
}

func firstLine(program string, args ...string) string {
	if program == "" {
		return ""
	}
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// onlineCores counts the machine's; runtime.NumCPU would count ours, which is one.
func onlineCores() (n int) {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "processor") {
			n++
		}
	}
	return n
}
