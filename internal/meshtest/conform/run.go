package conform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	settleTime = 50 * time.Millisecond // for what is under way when the last step ends
	lateTime   = 1500 * time.Millisecond
)

// proxyCommand is a proxy binary and the arguments every case starts it with.
type proxyCommand []string

// setup is what all cases of a run share.
type setup struct {
	command proxyCommand
	pki     map[string][]byte
	mutate  func(bootstrap []byte) []byte // nil: the case's own
}

// outcome is what a play of a case gave. Problems fail it whatever was compared:
// a crash, a hang at the end, the time limit, a process left over.
type outcome struct {
	value    object
	problems []string
	took     time.Duration
}

// run is one case under way.
type run struct {
	file     *caseFile
	placed   *placedCase
	ports    map[string]int
	folder   string
	mask     *masker
	ids      ids
	deadline time.Time
	proxy    *process
	backends map[string]*backend
	ads      *ads
	ignore   []pathPattern
}

// play plays a case from start to end. The error says that it could not be
// played; what the proxy did wrong stands in the outcome.
func play(ctx context.Context, s setup, c *caseFile) (outcome, error) {
	began := time.Now()
	block, err := takeBlock()
	if err != nil {
		return outcome{}, err
	}
	defer block.release()
	folder, err := scratch()
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	r := &run{file: c, folder: folder, ports: map[string]int{}, backends: map[string]*backend{}, ignore: pathPatterns(c.Ignore)}
	if err := r.prepare(s, block); err != nil {
		return outcome{}, fmt.Errorf("preparing %s: %w", c.name, err)
	}
	ctx, cancel := context.WithDeadline(ctx, r.deadline.Add(lateTime))
	defer cancel()
	value, problems, err := r.whole(ctx, s)
	return outcome{value, problems, time.Since(began)}, err
}

// scratch makes the case's folder. Its path always has the same length: records
// hold lengths of what holds it.
func scratch() (string, error) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789_"
	for range 100 {
		name := []byte("conform-        ")
		for i := len("conform-"); i < len(name); i++ {
			name[i] = letters[rand.IntN(len(letters))]
		}
		folder := filepath.Join(os.TempDir(), string(name))
		if err := os.Mkdir(folder, 0o700); !errors.Is(err, os.ErrExist) {
			return folder, err
		}
	}
	return "", fmt.Errorf("no free name for a folder in %s", os.TempDir())
}

// prepare gives the case its ports and files.
func (r *run) prepare(s setup, block *portBlock) error {
	values := map[string]string{"DIR": r.folder}
	for _, name := range r.file.portNames() {
		port, err := block.take()
		if err != nil {
			return err
		}
		r.ports[name], values[name] = port, strconv.Itoa(port)
	}
	var err error
	if r.placed, err = r.file.place(values); err != nil {
		return err
	}
	if r.mask, err = newMasker(r.ports, r.folder, r.file.Mask); err != nil {
		return err
	}
	r.ids = ids{numbers: map[string]int{}}
	for _, n := range []*yaml.Node{&r.file.Steps, &r.file.Backends} {
		text, err := yaml.Marshal(n)
		if err != nil {
			return err
		}
		r.ids.authored += string(text)
	}
	if s.mutate != nil {
		r.placed.bootstrap = s.mutate(r.placed.bootstrap)
	}
	if err := writeFiles(r.folder, s.pki); err != nil {
		return err
	}
	files := map[string][]byte{"bootstrap.json": r.placed.bootstrap}
	for name, content := range r.placed.files {
		files[name] = []byte(content)
	}
	r.deadline = after(r.file.limit())
	return writeFiles(r.folder, files)
}

// whole starts everything, plays, and ends everything.
func (r *run) whole(ctx context.Context, s setup) (value object, problems []string, err error) {
	defer func() {
		if r.proxy != nil {
			problems = append(problems, r.proxy.stop()...)
		}
		for _, b := range r.backends {
			b.close()
		}
		if r.ads != nil {
			r.ads.down()
		}
	}()
	for name, spec := range r.placed.backends {
		if r.backends[name], err = newBackend(ctx, name, spec, r.ports[name], r.folder); err != nil {
			return nil, nil, err
		}
	}
	if r.placed.ads != nil {
		if r.ads, err = newADS(r.placed.ads, r.ports["ADS"]); err != nil {
			return nil, nil, err
		}
	}
	command := slices.Concat(s.command, r.placed.args, []string{"-c", filepath.Join(r.folder, "bootstrap.json")})
	if r.proxy, err = startProcess(command, r.folder, r.ports["ADMIN"]); err != nil {
		return nil, nil, err
	}
	value, problems, err = r.played(ctx)
	shown := r.mask.value(value)
	if r.file.IDs {
		shown = r.ids.number(shown)
	}
	masked, _ := shown.(object)
	return masked, problems, err
}

// listeners are the ports the bootstrap speaks of.
func (r *run) listeners() []int {
	var ports []int
	for name, port := range r.ports {
		if listenerName.FindString(name) == name && bytes.Contains(r.placed.bootstrap, []byte(strconv.Itoa(port))) {
			ports = append(ports, port)
		}
	}
	return ports
}

func (r *run) played(ctx context.Context) (object, []string, error) {
	initialized := r.ads == nil
	if r.file.Start.Initialized != nil {
		initialized = *r.file.Start.Initialized
	}
	state := r.proxy.waitUp(r.listeners(), r.deadline, initialized)
	switch state {
	case "refused":
		r.proxy.expectedEnd = true
		return object{"start": state}, nil, nil
	case "not ready":
		return object{"start": state}, []string{"not ready: " + r.proxy.tail()}, nil
	}
	p := &player{ctx: ctx, ports: r.ports, folder: r.folder, backends: r.backends, proxy: r.proxy, ads: r.ads, deadline: r.deadline,
		conns: map[string]conn{}, background: map[string]*side{}}
	defer p.close()
	steps, problems := []any{}, []string(nil)
	for i := range r.placed.steps {
		out, err := p.play(&r.placed.steps[i])
		if errors.Is(err, errLimit) {
			problems = append(problems, fmt.Sprintf("time limit of %v in step %d", r.file.limit(), i))
			break
		}
		if err != nil {
			return nil, problems, fmt.Errorf("step %d: %w", i, err)
		}
		steps = append(steps, out)
	}
	time.Sleep(settleTime)
	out := object{"start": "ok", "steps": steps}
	r.observe(out)
	return out, problems, nil
}

// observe adds what can be seen besides the steps.
func (r *run) observe(out object) {
	observe := r.file.Observe
	if len(r.backends) > 0 && observe.Upstreams != "false" {
		seen := object{}
		for name, b := range r.backends {
			seen[name] = r.seenBy(b)
		}
		out["upstreams"] = seen
	}
	if observe.AccessLog != nil {
		want, _ := r.file.expect["access_log"].([]any)
		out["access_log"] = r.logLines(observe.AccessLog, len(want))
	}
	if len(observe.Stats) > 0 {
		want, _ := r.file.expect["stats"].(object)
		out["stats"] = r.stats(observe.Stats, want)
	}
	if r.ads != nil {
		out["ads"] = r.ads.seen()
	}
}

// seenBy is what an upstream saw, sorted by content where its order means
// nothing. It is masked first: what is sorted must not hold what differs.
func (r *run) seenBy(b *backend) []any {
	conns, _ := r.mask.value(b.seen()).([]any)
	how := r.file.Observe.Upstreams
	if how == "flat" {
		requests := []any{}
		for _, c := range conns {
			list, _ := c.(object)["requests"].([]any)
			requests = append(requests, list...)
		}
		conns = requests
	}
	sideBySide := slices.ContainsFunc(r.placed.steps, func(s step) bool { return s.Parallel != nil || s.Bg != "" })
	if sideBySide || how == "sorted" || how == "flat" {
		path := "upstreams." + b.name + ".0"
		slices.SortStableFunc(conns, func(x, y any) int {
			return strings.Compare(r.content(x, path), r.content(y, path))
		})
	}
	return conns
}

// content is what to sort by: without what is ignored, and without numbers of
// identifiers.
func (r *run) content(v any, path string) string {
	s := dumped(pruned(v, r.ignore, path))
	if r.file.IDs {
		s = r.ids.without(s)
	}
	return s
}

// logLines are the lines of the access logs. It waits for as many as expected, or
// until they rest when none are.
func (r *run) logLines(files []string, want int) []any {
	deadline, changed := after(lateTime), time.Now()
	var lines []string
	for left(deadline) > 0 {
		var now []string
		for _, name := range files {
			data, _ := os.ReadFile(filepath.Join(r.folder, name))
			for line := range strings.Lines(string([]rune(string(data)))) {
				now = append(now, strings.TrimRight(line, "\r\n"))
			}
		}
		if !slices.Equal(now, lines) {
			lines, changed = now, time.Now()
		}
		rest := lateTime
		if want > 0 && len(lines) >= want {
			rest = 150 * time.Millisecond
		} else if len(lines) > 0 && want == 0 {
			rest = 600 * time.Millisecond
		}
		if time.Since(changed) > rest {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	out := make([]any, len(lines))
	for i, line := range lines {
		out[i] = logLine(line)
	}
	return out
}

// logLine is a JSON line as a map (its key order is not compared), any other as text.
func logLine(line string) any {
	v, err := parseJSON([]byte(line))
	fields, ok := v.(object)
	if err != nil || !ok {
		return line
	}
	for k, v := range fields {
		switch v.(type) {
		case int, float64:
			if strings.Contains(strings.ToLower(k), "duration") {
				fields[k] = "<ms>"
			}
		}
	}
	return fields
}

// stats are the named stats, nil when missing. It waits a little for the expected.
func (r *run) stats(names []string, want object) object {
	values := map[string]string{"DIR": r.folder}
	for name, port := range r.ports {
		values[name] = strconv.Itoa(port)
	}
	deadline := time.Now()
	if want != nil {
		deadline = after(lateTime)
	}
	for {
		all, got, same := r.proxy.stats(), object{}, true
		for _, name := range names {
			real, err := placedText(name, values)
			n, ok := all[real]
			if got[name] = nil; ok && err == nil {
				got[name] = n
			}
			same = same && got[name] == want[name]
		}
		if same || left(deadline) == 0 {
			return got
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func sortedKeys(m object) []string { return slices.Sorted(maps.Keys(m)) }
