package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// The names of contestants, as raw results have them.
const (
	sluice      = "sluice"
	sluiceAgain = "sluice again"        // the null run
	sluiceTwo   = "sluice, two workers" // beside one, on the same core
	envoy       = "envoy"
	envoyTuned  = "envoy tuned"
	envoyTwo    = "envoy, two workers"
	direct      = "direct"
)

// programs are the files that contestants are started from, "" for one that
// isn't here.
type programs struct{ sluice, envoy, haproxy, self string }

func findPrograms(o runOptions) (p programs, missing []string, err error) {
	if p.self, err = os.Executable(); err != nil {
		return p, nil, err
	}
	if p.sluice, err = filepath.Abs(o.sluice); err != nil {
		return p, nil, err
	}
	if _, err := os.Stat(p.sluice); err != nil {
		return p, nil, fmt.Errorf("-sluice: %w", err)
	}
	if o.envoy != "none" {
		if p.envoy, err = exec.LookPath(o.envoy); err == nil {
			p.envoy, err = filepath.Abs(p.envoy)
		}
		if err != nil {
			return p, nil, fmt.Errorf("-envoy: %w; `make envoy` fetches it, none leaves it out", err)
		}
	}
	if p.haproxy, err = exec.LookPath("haproxy"); err != nil {
		for _, path := range []string{"/usr/sbin/haproxy", "/usr/local/sbin/haproxy"} {
			if _, err := os.Stat(path); err == nil {
				p.haproxy = path
			}
		}
		if p.haproxy == "" {
			missing = append(missing, "haproxy")
		}
	}
	return p, missing, nil
}

// field lists who runs a scenario in a round: the pair in every one, its peers
// in one of every, which is enough for a column that nothing is decided by.
func (p programs) field(s scenario, round, every int) []string {
	list := []string{sluice}
	if p.envoy != "" {
		list = append(list, envoy)
		if s.kind != control && !s.untuned {
			list = append(list, envoyTuned)
		}
	}
	if s.null {
		list = append(list, sluiceAgain)
	}
	if s.two {
		list = append(list, sluiceTwo)
		if p.envoy != "" {
			list = append(list, envoyTwo)
		}
	}
	for _, peer := range s.peers {
		if peer == "haproxy" && p.haproxy == "" {
			continue
		}
		if peer == direct || round%every == 0 {
			list = append(list, peer)
		}
	}
	return list
}

// command is how a contestant is started for a scenario; its configuration is
// written to dir. At the second of two sidecars, name is suffixed.
func (p programs) command(name string, s shape, at side, dir, suffix string) ([]string, error) {
	at.ours, at.tuned = ours(name), name == envoyTuned
	config := filepath.Join(dir, "bootstrap"+suffix+".json")
	switch name {
	case sluice, sluiceAgain, sluiceTwo, envoy, envoyTuned, envoyTwo:
		text, err := bootstrap(s, at)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(config, text, 0o644); err != nil {
			return nil, err
		}
		return p.configured(name, config, s.workers(name)), nil
	case "haproxy":
		text, err := haproxyConfig(s, at, dir)
		if err != nil {
			return nil, err
		}
		config = filepath.Join(dir, "haproxy.cfg")
		return []string{p.haproxy, "-db", "-f", config}, os.WriteFile(config, []byte(text), 0o644)
	case "go":
		kind := "tcp"
		if s.HTTP {
			kind = map[bool]string{false: "h1", true: "h2"}[s.H2]
		}
		args := []string{p.self, "goproxy", "-kind", kind, "-listen", fmt.Sprintf("0.0.0.0:%d", at.listen), "-to", fmt.Sprintf("%s:%d", at.to, at.toPort)}
		if at.secureDown {
			args = append(args, "-certs", at.certs)
		}
		return args, nil
	case "forward":
		return []string{p.self, "forward", "-listen", fmt.Sprintf("0.0.0.0:%d", at.listen), "-to", fmt.Sprintf("%s:%d", at.to, at.toPort)}, nil
	}
	return nil, fmt.Errorf("unknown contestant %q", name)
}

// configured is the command line that Envoy and we share.
func (p programs) configured(name, config string, workers int) []string {
	program := p.envoy
	extra := []string{"--disable-hot-restart"}
	if ours(name) {
		program, extra = p.sluice, nil
	}
	return append([]string{program, "-c", config, "--concurrency", strconv.Itoa(workers), "-l", "error"}, extra...)
}

func ours(name string) bool { return slices.Contains([]string{sluice, sluiceAgain, sluiceTwo}, name) }

// workers is how many a contestant has.
func (s shape) workers(name string) int {
	if s.Two || name == sluiceTwo || name == envoyTwo {
		return 2
	}
	return 1
}
