package conform

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// doAround plays the steps about the proxy and its surroundings.
func (p *player) doAround(s *step) (object, error) {
	switch {
	case s.Admin != nil:
		return p.adminRequest(s.Admin)
	case s.WaitStat != nil:
		return p.waitStat(s.WaitStat), nil
	case s.WaitAdmin != nil:
		return p.waitAdmin(s.WaitAdmin), nil
	case s.WaitExit != nil:
		return object{"exit": p.proxy.waitExit(left(p.until(s.WaitExit.WithinS)))}, nil
	case s.Write != nil:
		return nil, p.writeFile(s.Write)
	case s.Backend != nil:
		return nil, p.upDown(s.Backend)
	case s.ADS != nil && p.ads != nil:
		return p.ads.step(s.ADS, p.deadline)
	case s.Sleep != nil:
		p.sleep(seconds(*s.Sleep))
		return nil, nil
	case s.Signal != nil:
		return nil, p.signal(*s.Signal)
	}
	return nil, fmt.Errorf("a step without a kind that can be played")
}

func (p *player) adminRequest(s *adminStep) (object, error) {
	body, err := s.Body.in(p.folder)
	if err != nil {
		return nil, err
	}
	status, got, why := p.proxy.admin(textOr(s.Method, "GET"), s.Path, body, p.until(s.WithinS))
	if status == 0 {
		return failed(why), nil
	}
	out := object{"status": status}
	switch {
	case s.Pick != nil:
		tree, _ := parseJSON(got)
		values := object{}
		for _, path := range s.Pick {
			values[path] = picked(tree, strings.Split(path, "."))
		}
		out["picked"] = values
	case s.Lines != "":
		re, err := regexp.Compile(s.Lines)
		if err != nil {
			return nil, fmt.Errorf("admin: lines: %w", err)
		}
		lines := []any{}
		for line := range strings.Lines(latin1(got)) {
			if line = strings.TrimRight(line, "\r\n"); re.MatchString(line) {
				lines = append(lines, line)
			}
		}
		out["lines"] = lines
	default:
		out["body"] = text(got)
	}
	return out, nil
}

// picked is the value at a dotted path of JSON; * goes through a list or map and
// gives a list.
func picked(tree any, path []string) any {
	if len(path) == 0 {
		return tree
	}
	head, rest := path[0], path[1:]
	if head == "*" {
		found := []any{}
		var items []any
		switch t := tree.(type) {
		case []any:
			items = t
		case map[string]any:
			for _, k := range sortedKeys(t) {
				items = append(items, t[k])
			}
		}
		for _, item := range items {
			if v := picked(item, rest); v != nil {
				found = append(found, v)
			}
		}
		return found
	}
	switch t := tree.(type) {
	case []any:
		if i, err := strconv.Atoi(head); err == nil && i >= 0 && i < len(t) {
			return picked(t[i], rest)
		}
	case map[string]any:
		return picked(t[head], rest)
	}
	return nil
}

func (p *player) waitStat(s *waitStatStep) object {
	deadline, last := p.until(s.WithinS), any(nil)
	least := 1
	if s.AtLeast != nil {
		least = *s.AtLeast
	}
	for left(deadline) > 0 {
		last = nil
		if got, ok := p.proxy.stats()[s.Name]; ok {
			last = got
			if s.Equals != nil && got == *s.Equals || s.Equals == nil && got >= least {
				return object{"ok": true}
			}
		}
		p.sleep(20 * time.Millisecond)
	}
	return object{"ok": false, "got": last}
}

func (p *player) waitAdmin(s *waitAdminStep) object {
	deadline, want := p.until(s.WithinS), s.Status
	if want == 0 {
		want = 200
	}
	var status any
	for left(deadline) > 0 {
		got, body, _ := p.proxy.admin("GET", s.Path, nil, after(3*time.Second))
		if got == want && bytes.Contains(body, s.Has.bytes()) {
			return object{"ok": true}
		}
		if status = nil; got != 0 {
			status = got
		}
		p.sleep(20 * time.Millisecond)
	}
	return object{"ok": false, "status": status}
}

// writeFile writes aside and moves in place, as a watched file wants.
func (p *player) writeFile(s *writeStep) error {
	data, err := s.Content.in(p.folder)
	if err != nil {
		return err
	}
	path := filepath.Join(p.folder, s.File)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (p *player) upDown(s *backendStep) error {
	b := p.backends[s.Name]
	if b == nil {
		return fmt.Errorf("no upstream %s", s.Name)
	}
	if s.Do == "up" {
		return b.up()
	}
	b.down(textOr(s.How, "rst"))
	return nil
}

func (p *player) signal(name string) error {
	number := unix.SignalNum("SIG" + name)
	if number == 0 {
		return fmt.Errorf("unknown signal %s", name)
	}
	return p.proxy.cmd.Process.Signal(syscall.Signal(number))
}
