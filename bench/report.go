package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"sluice/bench/stat"
)

// tableCommand makes the table again from raw results.
func tableCommand(raw, readme string, out io.Writer) error {
	rec, err := readRecord(raw)
	if err != nil {
		return err
	}
	j := rec.judge()
	if readme != "" {
		if err := writeHeadline(readme, j); err != nil {
			return err
		}
	}
	_, err = fmt.Fprint(out, rec.table(j))
	return err
}

// readRecord reads raw results, as run leaves them.
func readRecord(path string) (*record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading what `bench run` leaves: %w", err)
	}
	rec := &record{}
	if err := json.Unmarshal(text, rec); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return rec, nil
}

// group is where a row stands in the table, from worst to best.
type group int

const (
	lost  group = iota // and what has no figure
	even               // within noise
	short              // a win, short of its must
	won
	once // one pair, which proves nothing
)

// groups are their titles.
var groups = [...]string{"Losses, failures and voids", "Within noise", "Clear wins, but short of their must", "Clear wins", "Measured once: no interval, no verdict"}

// line is one row of the table.
type line struct {
	name, unit   string
	ours         float64
	envoy, tuned float64
	peers        map[string]float64
	ratio        stat.Interval
	above        float64 // ratio above the floor, 0 for unknown
	must, goal   float64
	pairs, void  int
	remarks      []string
	client, lag  float64
	origin       float64
	failed       string
}

// series are the samples of one contestant in one scenario that count, by round.
type series map[int]sample

func (rec *record) series(scenario, proxy string) (s series, void int, failure string) {
	s = series{}
	for _, x := range rec.Samples {
		if x.Scenario != scenario || x.Proxy != proxy {
			continue
		}
		switch {
		case x.Error != "":
			failure = x.Error
		case x.Void != "":
			void++
		default:
			s[x.Round] = x
		}
	}
	return s, void, failure
}

// pairs gives a metric of two contestants in the rounds where both count.
func pairs(a, b series, key string) (x, y []float64) {
	for round := range 1000 {
		p, ok := a[round]
		q, both := b[round]
		if ok && both {
			x, y = append(x, p.Values[key]), append(y, q.Values[key])
		}
	}
	return x, y
}

func (s series) values(key string) (v []float64) {
	for _, x := range s {
		if f, ok := x.Values[key]; ok {
			v = append(v, f)
		}
	}
	return v
}

func (s series) condition(f func(stat.Conditions) float64) float64 {
	var v []float64
	for _, x := range s {
		v = append(v, f(x.Load.Conditions))
	}
	return stat.Median(v)
}

func (s series) histograms(rounds series) (list []*stat.Histogram) {
	for round := range 1000 {
		x, ok := s[round]
		if _, both := rounds[round]; ok && both {
			list = append(list, stat.Unsparse(x.Load.Latency))
		}
	}
	return list
}

// lines makes the rows of a scenario.
func (rec *record) lines(s scenario) (list []line) {
	ours, void, failed := rec.series(s.name, sluice)
	theirs, v, theirFailure := rec.series(s.name, envoy)
	tuned, _, _ := rec.series(s.name, envoyTuned)
	base, _, _ := rec.series(s.name, direct)
	if len(ours)+len(theirs) == 0 && failed+theirFailure == "" && void+v == 0 {
		return nil
	}
	for _, m := range s.metrics {
		l := line{name: s.row(m), unit: m.unit, must: m.must, goal: m.goal, void: void + v, peers: map[string]float64{}}
		if failed != "" {
			l.failed = "sluice: " + failed
		} else if theirFailure != "" {
			l.failed = "Envoy: " + theirFailure
		}
		if strings.HasPrefix(m.key, "p50") || strings.HasPrefix(m.key, "p99") {
			if !l.latency(m.key, ours, theirs, tuned, base) {
				continue
			}
		} else if !l.cost(rec, s, m, ours, theirs, tuned) {
			continue
		}
		l.remark(s, m, ours)
		list = append(list, l)
	}
	return list
}

// cost fills in a metric where each cell has a value. False: nobody has it.
func (l *line) cost(rec *record, s scenario, m metric, ours, theirs, tuned series) bool {
	l.ours, l.envoy, l.tuned = stat.Median(ours.values(m.key))*m.scale, stat.Median(theirs.values(m.key))*m.scale, stat.Median(tuned.values(m.key))*m.scale
	if l.ours == 0 && l.failed == "" && l.void == 0 {
		return false
	}
	better := theirs
	if l.tuned > 0 && (l.tuned < l.envoy || l.envoy == 0) {
		better = tuned
	}
	x, y := pairs(ours, better, m.key)
	l.pairs, l.ratio = len(x), stat.Ratio(x, y)
	for _, peer := range []string{"haproxy", "go", "forward"} {
		p, _, _ := rec.series(s.name, peer)
		l.peers[peer] = stat.Median(p.values(m.key)) * m.scale
	}
	rival, floor := l.rival(), l.peers["forward"]
	if floor > 0 && rival > floor && l.ours > floor {
		l.above = (l.ours - floor) / (rival - floor)
	}
	if rival > 0 && floor > l.must*rival && l.must > 0 {
		l.remarks = append(l.remarks, fmt.Sprintf("a bare forwarder costs %.2f of Envoy", floor/rival))
	}
	return true
}

// rival is the better column of Envoy's.
func (l *line) rival() float64 {
	if l.tuned > 0 {
		return min(l.envoy, l.tuned)
	}
	return l.envoy
}

// latency fills in a quantile over the direct way. p99.9 wants 100,000 answers.
func (l *line) latency(key string, ours, theirs, tuned, base series) bool {
	q := map[string]float64{"p50": .5, "p99": .99, "p999": .999}[key]
	sum := func(s series) (h *stat.Histogram) {
		h = stat.NewHistogram()
		for _, x := range s {
			h.Merge(stat.Unsparse(x.Load.Latency))
		}
		return h
	}
	a, b, c, d := sum(ours), sum(theirs), sum(tuned), sum(base)
	if key == "p999" && (a.Total < 100000 || b.Total < 100000) {
		return false
	}
	floor := d.Quantile(q)
	l.ours, l.envoy = a.Quantile(q)-floor, b.Quantile(q)-floor
	better := theirs
	if c.Total > 0 {
		if l.tuned = c.Quantile(q) - floor; l.tuned < l.envoy {
			better = tuned
		}
	}
	x, y := ours.histograms(better), better.histograms(ours)
	l.pairs, l.ratio = len(x), stat.AddedLatency(x, y, base.histograms(base), q)
	return true
}

// remark says what a reader must know before he believes a row.
func (l *line) remark(s scenario, m metric, ours series) {
	switch m.key {
	case "stall":
		l.remarks = append(l.remarks, fmt.Sprintf("the way past the proxy stalled %.1f ms", stat.Median(ours.values("beside"))))
	case "effect50":
		l.remarks = append(l.remarks, "the probe asks once a millisecond")
	}
	if s.kind != underLoad {
		return
	}
	l.client = ours.condition(func(c stat.Conditions) float64 { return c.Client })
	l.origin = ours.condition(func(c stat.Conditions) float64 { return c.Origin })
	l.lag = ours.condition(func(c stat.Conditions) float64 { return c.LagP99 })
	bound := 0
	for _, x := range ours {
		if stat.ClientBound(x.Load.Conditions, x.Values["share"]) {
			bound++
		}
	}
	if bound*2 > len(ours) {
		l.remarks = append(l.remarks, "the client is the limit beside sluice")
	}
	if s.halfMax && len(ours) > 0 {
		l.remarks = append(l.remarks, fmt.Sprintf("%.0f rps", stat.Median(rates(ours))))
	}
	if s.shape.Istio {
		l.remarks = append(l.remarks, "istio.stats on our side only")
	}
}

func rates(s series) (v []float64) {
	for _, x := range s {
		v = append(v, x.Rate)
	}
	return v
}

// against are the rows in which both ran, and what the CPU of one is of the other's.
func (rec *record) against(one, other string) (names []string, list []stat.Interval) {
	for _, s := range scenarios() {
		a, _, _ := rec.series(s.name, one)
		b, _, _ := rec.series(s.name, other)
		if x, y := pairs(a, b, "cpu"); len(x) > 0 {
			names, list = append(names, s.name), append(list, stat.Ratio(x, y))
		}
	}
	return names, list
}

// group places a line by the end of its interval that is next to 1.
func (l line) group(floor float64) group {
	tier := stat.Judge(l.ratio, floor)
	switch {
	case l.failed != "" || l.pairs == 0 || tier == stat.Loss:
		return lost
	case tier == stat.Single:
		return once
	case tier == stat.Noise:
		return even
	case l.must > 0 && l.ratio.High > l.must:
		return short
	}
	return won
}

// judgement is what a run says: all lines in their groups.
type judgement struct {
	lines [len(groups)][]line
	floor float64         // the noise floor
	null  []string        // rows of the null runs that prove it
	nulls []stat.Interval // and their ratios
}

func (rec *record) judge() *judgement {
	j := &judgement{}
	j.null, j.nulls = rec.against(sluiceAgain, sluice)
	j.floor = stat.Floor(j.nulls)
	for _, s := range scenarios() {
		if s.kind == spread {
			continue // chance, not cost
		}
		for _, l := range rec.lines(s) {
			g := l.group(j.floor)
			j.lines[g] = append(j.lines[g], l)
		}
	}
	return j
}

// table is RESULTS.md.
func (rec *record) table(j *judgement) string {
	var out strings.Builder
	out.WriteString(rec.Facts.head(j.floor, len(j.nulls)))
	fmt.Fprintf(&out, "Losses, failures and voids: %d. Within noise: %d. Clear wins short of their *must*: %d. Clear wins within it: %d. Measured once: %d.\n",
		len(j.lines[lost]), len(j.lines[even]), len(j.lines[short]), len(j.lines[won]), len(j.lines[once]))
	for i, title := range groups {
		section(&out, title, j.lines[i])
	}
	ratioTable(&out, "Null runs: sluice against itself", j.null, j.nulls)
	names, twos := rec.against(sluiceTwo, sluice)
	ratioTable(&out, "Two workers against one, on the same core: at most 1.10", names, twos)
	names, twos = rec.against(envoyTwo, envoy)
	ratioTable(&out, "The same of Envoy", names, twos)
	rec.spreadTable(&out)
	peerTable(&out, slices.Concat(j.lines[:]...))
	rec.gateTable(&out)
	return out.String()
}

func section(out *strings.Builder, title string, lines []line) {
	if len(lines) == 0 {
		return
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(b.ratio.Mid, a.ratio.Mid) })
	fmt.Fprintf(out, "\n## %s\n\n| row | unit | sluice | Envoy | Envoy tuned | ratio [95 %%] | above floor | must | goal | pairs, void | client + origin busy, lag | remarks |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n", title)
	for _, l := range lines {
		fmt.Fprintln(out, l.String())
	}
}

func figure(v float64) string {
	switch {
	case v == 0 || math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// String gives the line in Markdown.
func (l line) String() string {
	ratio := "-"
	if l.pairs > 0 && !math.IsNaN(l.ratio.Mid) {
		ratio = fmt.Sprintf("**%.2f**", l.ratio.Mid)
		if !math.IsInf(l.ratio.High, 1) {
			ratio += fmt.Sprintf(" [%.2f, %.2f]", l.ratio.Low, l.ratio.High)
		}
	}
	busy := "-"
	if l.client > 0 {
		busy = fmt.Sprintf("%.0f + %.0f %%", l.client*100, l.origin*100)
		if l.lag > 0 {
			busy += fmt.Sprintf(", %.0f µs", l.lag)
		}
	}
	remarks := slices.Clone(l.remarks)
	switch {
	case l.failed != "":
		remarks = append(remarks, "FAILED: "+strings.ReplaceAll(strings.TrimSpace(l.failed), "\n", " "))
	case l.pairs == 0:
		remarks = append(remarks, "VOID: no pair counts")
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %d, %d | %s | %s |", l.name, l.unit, figure(l.ours), figure(l.envoy), figure(l.tuned), ratio,
		figure(l.above), figure(l.must), figure(l.goal), l.pairs, l.void, busy, strings.Join(remarks, "; "))
}

func ratioTable(out *strings.Builder, title string, names []string, list []stat.Interval) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(out, "\n## %s\n\n| row | ratio [95 %%] |\n|---|---|\n", title)
	for i, n := range names {
		fmt.Fprintf(out, "| %s | %.3f [%.3f, %.3f] |\n", n, list[i].Mid, list[i].Low, list[i].High)
	}
}

func (rec *record) spreadTable(out *strings.Builder) {
	title := "\n## Accept balance: connections of the busier of two workers, of 8\n\n| who spreads them | sluice | Envoy |\n|---|---|---|\n"
	for _, s := range scenarios() {
		for _, l := range rec.lines(s) {
			if s.kind == spread {
				fmt.Fprintf(out, "%s| %s | %s | %s |\n", title, s.name, figure(l.ours), figure(l.envoy))
				title = ""
			}
		}
	}
}

func peerTable(out *strings.Builder, lines []line) {
	out.WriteString("\n## Beside others\n\n| row | unit | sluice | Envoy (better) | haproxy | standard library | bare forwarder |\n|---|---|---|---|---|---|---|\n")
	for _, l := range lines {
		if l.peers["haproxy"]+l.peers["go"]+l.peers["forward"] == 0 {
			continue
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", l.name, l.unit, figure(l.ours), figure(l.rival()), figure(l.peers["haproxy"]), figure(l.peers["go"]), figure(l.peers["forward"]))
	}
}

func (rec *record) gateTable(out *strings.Builder) {
	if len(rec.Facts.Gates) == 0 {
		return
	}
	out.WriteString("\n## What the gate saw: heads beside Envoy's\n\n")
	for _, g := range rec.Facts.Gates {
		fmt.Fprintf(out, "- %s\n", g)
	}
}

func (f facts) head(floor float64, nulls int) string {
	if _, version, ok := strings.Cut(f.Envoy, "version: "); ok { // its path comes first
		f.Envoy = version
	}
	mode := "make bench"
	switch {
	case f.Rows != "":
		mode = "bench run -rows '" + f.Rows + "'"
	case f.Quick:
		mode = "make bench-quick"
	}
	text := fmt.Sprintf("# Results\n\nGenerated by `%s`; do not edit. %s, commit %s, %s; %s, %d cores, kernel %s, load average at the start %s.\n\n", mode, f.Date, f.Commit, f.Go, f.CPU, f.Cores, f.Kernel, f.LoadAverage)
	text += fmt.Sprintf("%d rounds of %s a cell, in %s. Envoy: %s (sha256 %s); haproxy: %s; sluice sha256 %s.\n\n", f.Rounds, f.Length, f.Took, f.Envoy, f.Hashes["envoy"], f.Haproxy, f.Hashes["sluice"])
	noise := "There was no null run"
	switch {
	case floor > 1:
		noise = fmt.Sprintf("Null runs of sluice against itself are off by up to %.1f %%, and an interval that comes closer to 1 than that is within noise", (floor-1)*100)
	case nulls > 0:
		noise = "The intervals of null runs, sluice against itself, hold 1"
	}
	text += "Ratio: sluice ÷ the better Envoy column, geometric mean of pairs, lower is better. " + noise + ". README.md says how it is done and what it can't show.\n\n"
	for _, n := range f.Notes {
		text += "- " + n + "\n"
	}
	if len(f.Notes) > 0 {
		text += "\n"
	}
	return text
}
