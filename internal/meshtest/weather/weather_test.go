package weather

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

const (
	quietTime = 1200 * time.Millisecond
	holdTime  = 2500 * time.Millisecond // from the moment that all of the weather is there
	afterTime = 10 * time.Second        // within which memory is given back
	tries     = 3                       // the machine may be doing something else

	// stallLimit is of the worker's processor time: a worker that doesn't get a
	// processor isn't the one that stalls.
	stallLimit = 5 * time.Millisecond
	// slack is how much later an answer may come, beside twice as late: so much is
	// a time slice of somebody else.
	slack = 5 * time.Millisecond
	// tooBusy is the share of the time that a worker may wait for a processor and
	// still be blamed for what is late. On a machine at rest it is .02 to .07.
	tooBusy = .1
	// afterLimit is what may be left, beside a quarter of the peak.
	afterLimit = 8 << 20
)

// figures are what a scene came to.
type figures struct {
	scene             scene
	rest, peak, after int
	turn              time.Duration // longest, of processor time
	stalls            int           // turns that were long by the clock
	quiet, weather    time.Duration // p99 of the neighbour
	beside            time.Duration // p99 through the other proxy, at the same time
	waited            float64       // share of the time that the worker was ready to run and didn't
	facts             facts
	unborn            error    // the weather was never all there
	rival             *figures // Envoy's in the same; nil: not measured
}

func TestWeather(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a network namespace")
	}
	if *update && *rival == "" {
		t.Fatal("-update: the page has Envoy's figures too, -envoy is missing")
	}
	serveQuick(t)
	var all []*figures
	for _, s := range scenes() {
		t.Run(s.kind, func(t *testing.T) {
			f := survive(t, s)
			if *rival != "" {
				f.rival = endure(t, s, *rival)
				t.Logf("Envoy: %s %v", f.rival, f.rival.unborn)
			}
			all = append(all, f)
		})
	}
	if *update && len(all) == len(scenes()) {
		if err := write(all); err != nil {
			t.Error(err)
		}
	}
}

// survive has a few tries, and fails with what was wrong in the last. Being late
// is no fault where the proxy, in each of them, didn't get the processors.
func survive(t *testing.T, s scene) *figures {
	told := false // a neighbour was late though the proxy could run
	for try := 1; ; try++ {
		var f *figures
		ok := t.Run(fmt.Sprintf("try%d", try), func(t *testing.T) {
			if f = endure(t, s, ""); f.unborn != nil {
				t.Fatal(f.unborn)
			}
		})
		if !ok {
			return f // it couldn't be measured
		}
		wrong, late := f.judge(), f.late()
		t.Logf("%s: %s %s", f, wrong, late)
		told = told || late != "" && f.waited < tooBusy
		switch {
		case len(wrong) == 0 && late == "":
			return f
		case try < tries:
		case len(wrong) > 0 || told:
			t.Errorf("%d times: %s %s", tries, wrong, late)
			return f
		default:
			t.Log("the machine is too busy to tell")
			return f
		}
	}
}

// endure measures one weather, of ours or of the Envoy at a path.
func endure(t *testing.T, s scene, envoy string) *figures {
	f := &figures{scene: s}
	p := startProxy(t, envoy, subject)
	startProxy(t, envoy, control)
	m := startMaker(t, s.kind)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	near, beside := visit(ctx, &wg, subject), visit(ctx, &wg, control)
	time.Sleep(quietTime)
	f.quiet = max(near.p99(t), beside.p99(t))
	f.rest = p.anonymous()
	peak := watch(ctx, &wg, p)
	began, waited := time.Now(), p.waited()
	m.begin(t)
	if _, f.unborn = m.hear("up"); f.unborn != nil {
		f.peak = peak()
		return f
	}
	time.Sleep(holdTime)
	f.weather, f.beside = near.p99(t), beside.p99(t)
	f.waited = float64(p.waited()-waited) / float64(time.Since(began))
	f.peak = peak()
	f.facts = m.end(t)
	stats := p.stats()
	f.turn = time.Duration(stats["server.worker_0.turn_busiest_us"]) * time.Microsecond
	f.stalls = stats["server.worker_0.turn_stalls"]
	if s.after {
		f.after = settled(p, f.leftover())
	}
	return f
}

// leftover is how much memory the proxy may keep of a peak.
func (f *figures) leftover() int { return f.rest + (f.peak-f.rest)/4 + afterLimit }

// settled waits until memory is below enough, and gives what it is.
func settled(p *proxy, enough int) (now int) {
	for began := time.Now(); time.Since(began) < afterTime; time.Sleep(100 * time.Millisecond) {
		if now = p.anonymous(); now < enough {
			break
		}
	}
	return now
}

// watch looks at the memory until ctx ends; the result gives the most so far.
func watch(ctx context.Context, wg *sync.WaitGroup, p *proxy) func() int {
	var mu sync.Mutex
	most := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			now := p.anonymous()
			mu.Lock()
			most = max(most, now)
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return most
	}
}

func (f *figures) each() int { return (f.peak - f.rest) / f.scene.peers }

// judge says what is wrong.
func (f *figures) judge() (wrong []string) {
	complain := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	complain(f.each() > f.scene.limit, "each takes %d bytes, more than %d", f.each(), f.scene.limit)
	complain(f.after > f.leftover(), "%d bytes are kept, more than %d", f.after, f.leftover())
	complain(f.turn > stallLimit, "a turn of the worker took %v of its processor", f.turn)
	if f.scene.check != nil {
		said := f.scene.check(f.facts)
		complain(said != "", "%s", said)
	}
	return wrong
}

// late says what a neighbour noticed.
func (f *figures) late() string {
	if limit := 2*max(f.quiet, f.beside) + slack; f.weather > limit {
		return fmt.Sprintf("a neighbour's p99 is %v, more than %v", f.weather, limit)
	}
	return ""
}

func (f *figures) String() string {
	return fmt.Sprintf("memory %d KB at rest, %d above, %d bytes each, %d KB after; turn %v, %d stalls; p99 quiet %v, in it %v, beside %v, waited %.2f; %v",
		f.rest>>10, (f.peak-f.rest)>>10, f.each(), f.after>>10, f.turn, f.stalls, f.quiet, f.weather, f.beside, f.waited, f.facts)
}
