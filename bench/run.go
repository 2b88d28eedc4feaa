package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"sluice/bench/machine"
	"sluice/bench/stat"
)

type runOptions struct {
	sluice, envoy, rows, out, results, readme, onto string
	rounds, retries                                 int
	length, warm, budget, quiet                     time.Duration
	quick, narrow                                   bool
	foreign                                         float64
}

// steps are the numbers of connections at which memory is read.
func (o runOptions) steps() []int {
	if o.quick {
		return []int{3000}
	}
	return []int{3000, 9800} // both ends of each fit into 20,000 descriptors
}

// record is the raw file: everything that the table is made from.
type record struct {
	Facts   facts
	Samples []sample
}

func run(ctx context.Context, o runOptions) (err error) {
	pick, err := regexp.Compile(o.rows)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	b := &bench{options: o}
	if b.dir, err = filepath.Abs(o.out); err != nil {
		return err
	}
	var missing []string
	if b.programs, missing, err = findPrograms(o); err != nil {
		return err
	}
	for _, algorithm := range []string{"p256", "rsa"} {
		if err := writePKI(filepath.Join(b.dir, "certs-"+algorithm), algorithm); err != nil {
			return fmt.Errorf("making certificates: %w", err)
		}
	}
	b.net = machine.New()
	defer b.net.Close()
	if b.ports, err = findPorts(b.net); err != nil {
		return err
	}
	rec := &record{Facts: gatherFacts(o, b.programs, append(missing, b.net.Notes...))}
	if usual := stat.DefaultBounds().Foreign; o.foreign > usual {
		rec.Facts.Notes = append(rec.Facts.Notes, fmt.Sprintf("**Not a table of record**: others were let use %.0f %% of the proxy's core, not %.0f %%, before a cell was void.", o.foreign*100, usual*100))
	}
	if o.onto != "" {
		if rec, err = continued(o.onto, rec, pick); err != nil {
			return err
		}
	}
	var list []scenario
	for _, s := range scenarios() {
		if pick.MatchString(s.name) && (!o.quick || s.quick) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("-rows %q: no row has such a name", o.rows)
	}
	if err := b.gates(ctx, list, rec); err != nil {
		return err
	}
	return b.rounds(ctx, list, rec)
}

// continued is an earlier run less the rows that are to be run again, which a note
// says. The programs must be those of that run.
func continued(path string, now *record, again *regexp.Regexp) (*record, error) {
	rec, err := readRecord(path)
	if err != nil {
		return nil, fmt.Errorf("-onto: %w", err)
	}
	for name, hash := range rec.Facts.Hashes {
		if now.Facts.Hashes[name] != hash {
			return nil, fmt.Errorf("-onto: %s is another program now", name)
		}
	}
	rec.Samples = slices.DeleteFunc(rec.Samples, func(s sample) bool { return again.MatchString(s.Scenario) })
	rec.Facts.Notes = append(rec.Facts.Notes, fmt.Sprintf("rows that match `%s` were run again on %s", again, now.Facts.Date))
	return rec, nil
}

// grace is how far repeats of void cells may take a round past the budget.
const grace = 30 * time.Second

// rounds goes through all scenarios once a round, so that the pairs of one are
// spread over the run, and writes raw results and table after each.
func (b *bench) rounds(ctx context.Context, list []scenario, rec *record) error {
	began, last := time.Now(), time.Now()
	for round := range b.options.rounds {
		spent, lastTook := time.Since(began), time.Since(last)
		last = time.Now()
		if round > 0 && b.options.budget > 0 && spent+lastTook > b.options.budget {
			rec.Facts.Notes = append(rec.Facts.Notes, fmt.Sprintf("%d of %d rounds fit into %s", round, b.options.rounds, b.options.budget))
			return b.write(rec)
		}
		for _, s := range list {
			if b.options.budget > 0 && time.Since(began) > b.options.budget+grace {
				rec.Facts.Notes = append(rec.Facts.Notes, fmt.Sprintf("round %d was cut short after %s: too many cells were void", round+1, b.options.budget+grace))
				return b.write(rec)
			}
			if limit := s.rounds; limit > 0 && (round >= limit || b.options.quick && round > 0) {
				continue
			}
			if s.halfMax {
				s.load.Rate = halfOfMaximum(rec.Samples)
			}
			names := b.programs.field(s, round, map[bool]int{true: 100, false: 2}[b.options.quick])
			if err := b.round(ctx, s, names, round, rec); err != nil {
				return errors.Join(err, b.save(rec))
			}
		}
		if b.options.onto == "" {
			rec.Facts.Rounds, rec.Facts.Took = round+1, time.Since(began).Round(time.Second).String()
		}
		if err := b.write(rec); err != nil {
			return err
		}
	}
	if b.options.narrow {
		if err := b.narrow(ctx, list, rec, began); err != nil {
			return errors.Join(err, b.save(rec))
		}
	}
	return nil
}

// cellOf measures until a cell counts, or the repeats are used up; every attempt
// is kept in the raw file.
func (b *bench) cellOf(ctx context.Context, s scenario, name string, round int, rec *record) error {
	bounds := stat.DefaultBounds()
	bounds.Foreign = b.options.foreign
	for attempt := 0; attempt <= b.options.retries; attempt++ {
		if b.disturbed {
			b.waitQuiet(ctx)
		}
		out, err := b.measure(ctx, s, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out.Round, out.Attempt = round, attempt
		if err != nil {
			out.Error = err.Error()
		} else if s.kind == underLoad {
			out.Load.Conditions.ProxyAlone = name != direct
			out.Void = stat.Void(out.Load.Conditions, bounds)
		}
		b.disturbed = out.Void != ""
		rec.Samples = append(rec.Samples, out)
		b.say(s, out)
		if out.Void == "" && out.Error == "" {
			return nil
		}
	}
	return nil
}

// waitQuiet waits for a tenth of a second in which nearly nothing runs, but no
// longer than the options say. It comes after a void cell and before anything
// of the next is started, so it can't favour anyone.
func (b *bench) waitQuiet(ctx context.Context) {
	const look = 100 * time.Millisecond
	for end := time.Now().Add(b.options.quiet); time.Now().Before(end) && ctx.Err() == nil; {
		before := machine.ReadCores()
		time.Sleep(look)
		used := machine.ReadCores().Sub(before)
		if used.Busy[0]+used.Busy[1] < float64(look)/20 {
			return
		}
	}
}

func (b *bench) say(s scenario, out sample) {
	fmt.Fprintf(os.Stderr, "%2d %-46.46s %-12s", out.Round, s.name, out.Proxy)
	for _, m := range s.metrics {
		if v, ok := out.Values[m.key]; ok {
			fmt.Fprintf(os.Stderr, " %s %.2f %s", m.name, v*m.scale, m.unit)
		}
	}
	if c := out.Load.Conditions; c.Seconds > 0 {
		fmt.Fprintf(os.Stderr, " core 0 %.0f%% proxy %.0f%%", c.Core0*100, out.Values["share"]*100)
	}
	if out.Void != "" {
		fmt.Fprintf(os.Stderr, " VOID: %s", out.Void)
	}
	if out.Error != "" {
		fmt.Fprintf(os.Stderr, " ERROR: %s", out.Error)
	}
	fmt.Fprintln(os.Stderr)
}

// halfOfMaximum is the rate at which Envoy's CPU time fills half of its core,
// in hundreds; from what this run has measured, or a guess before it has.
func halfOfMaximum(samples []sample) float64 {
	var cost []float64
	for _, s := range samples {
		if s.Proxy == envoy && s.Void == "" && s.Error == "" && s.Scenario == http1()[0].name {
			cost = append(cost, s.Values["cpu"])
		}
	}
	if len(cost) == 0 {
		return 3000
	}
	return float64(int(1e9/cost[0]/2/100)) * 100 // the first round's, for all rounds alike
}

// save writes the raw results.
func (b *bench) save(rec *record) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "samples.json"), raw, 0o644)
}

// write saves, and makes the table of what there is so far.
func (b *bench) write(rec *record) error {
	if err := b.save(rec); err != nil {
		return err
	}
	j := rec.judge()
	text := rec.table(j)
	if b.options.results == "" {
		fmt.Println(text)
		return nil
	}
	if b.options.readme != "" {
		if err := writeHeadline(b.options.readme, j); err != nil {
			return err
		}
	}
	return os.WriteFile(b.options.results, []byte(text), 0o644)
}
