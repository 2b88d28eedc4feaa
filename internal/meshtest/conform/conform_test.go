package conform

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	casesRoot    = "testdata/cases"
	defaultAreas = "smoke tcp tls chains xds h1 h2 grpc routing timeouts retries"
	moreAreas    = "upstream rbac jwt filters admin logs tracing"
)

var (
	areasFlag = flag.String("areas", defaultAreas, "areas of cases that TestCases plays, or \"all\"")
	wholeFlag = flag.Bool("whole", false, "TestEnvoyAgrees plays every case of -areas, not a few of each area")
	slowFlag  = flag.Bool("slow", false, "log how long each case took")
)

// arguments every binary gets: one worker, and access logs at once.
var arguments = []string{"--concurrency", "1", "-l", "warning", "--file-flush-interval-msec", "50"}

// TestMain lets four cases play side by side whatever the number of processors:
// a case mostly waits.
func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(runTests(m))
}

// buildFolder holds the proxy that is built here.
var buildFolder string

func runTests(m *testing.M) int {
	var err error
	if buildFolder, err = os.MkdirTemp("", "conform-build-"); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(buildFolder) }()
	return m.Run()
}

func chosenAreas() []string {
	if testing.Short() {
		return []string{"smoke"}
	}
	if *areasFlag == "all" {
		return strings.Fields(defaultAreas + " " + moreAreas)
	}
	return strings.FieldsFunc(*areasFlag, func(r rune) bool { return r == ' ' || r == ',' })
}

func namesOf(t *testing.T, areas []string) []string {
	t.Helper()
	names, err := caseNames(casesRoot, areas)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func loadedLists(t *testing.T) lists {
	t.Helper()
	l, err := loadLists("differs.yaml", "pending.yaml", namesOf(t, strings.Fields(defaultAreas+" "+moreAreas)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// freshPKI makes the certificates once for a test.
func freshPKI(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := newPKI()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// proxyBinary is the binary under test: built here, or named by SLUICE_PROXY.
func proxyBinary(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("SLUICE_PROXY"); named != "" {
		if _, err := os.Stat(named); err != nil {
			t.Fatalf("SLUICE_PROXY: %v", err)
		}
		return named
	}
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// built builds the proxy once for all tests.
var built = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(buildFolder, "proxy")
	build := exec.Command("go", "build", "-o", binary, "sluice/cmd/proxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the proxy: %w\n%s", err, out)
	}
	return binary, nil
})

// tally counts verdicts by area.
type tally struct {
	mu   sync.Mutex
	rows map[string]*[3]int // passed, failed, pending
}

func (a *tally) add(area string, column int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rows[area] == nil {
		a.rows[area] = &[3]int{}
	}
	a.rows[area][column]++
}

func (a *tally) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var b strings.Builder
	total := [3]int{}
	fmt.Fprintf(&b, "\n%-12s%8s%8s%8s\n", "area", "passed", "failed", "pending")
	for _, area := range strings.Fields(defaultAreas + " " + moreAreas) {
		row := a.rows[area]
		if row == nil {
			continue
		}
		fmt.Fprintf(&b, "%-12s%8d%8d%8d\n", area, row[0], row[1], row[2])
		for i := range total {
			total[i] += row[i]
		}
	}
	fmt.Fprintf(&b, "%-12s%8d%8d%8d", "all", total[0], total[1], total[2])
	return b.String()
}

// remarks are the product's lists, and the one that a run rewrites.
type remarks struct {
	lists
	update *pendingList
}

// playAll plays the cases side by side and logs a table at the end.
func playAll(t *testing.T, s setup, names []string, l remarks) {
	counts := &tally{rows: map[string]*[3]int{}}
	t.Run("case", func(t *testing.T) {
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				playOne(t, s, name, l, counts)
			})
		}
	})
	t.Log(counts)
}

// settled plays a case, and again when the verdict is not the expected one:
// some steps are clocks, and a busy machine is late. A verdict that surprises
// counts only when three plays in a row give it; what a second play mended is
// logged.
func settled(t *testing.T, s setup, c *caseFile, d meantDifference, want bool) (r result, err error) {
	t.Helper()
	for play := range 3 {
		if r, err = judge(t.Context(), s, c, d); err != nil || r.passed() == want {
			if play > 0 {
				t.Logf("as expected only at play %d", play+1)
			}
			return r, err
		}
	}
	return r, nil
}

func playOne(t *testing.T, s setup, name string, l remarks, counts *tally) {
	area := filepath.Dir(name)
	c, err := loadCase(casesRoot, name)
	if err != nil {
		counts.add(area, 1)
		t.Fatal(err)
	}
	_, pending := l.pending[name]
	r, err := settled(t, s, c, l.differs[name], !pending)
	if err != nil {
		counts.add(area, 1)
		t.Fatalf("the runner could not play it: %v", err)
	}
	if *slowFlag {
		t.Logf("%.1f s", r.took.Seconds())
	}
	why := l.pending[name]
	if l.update != nil {
		l.update.noted(name, r)
		pending = !r.passed()
	}
	switch {
	case pending && r.passed():
		counts.add(area, 1)
		t.Errorf("it passes: take it off pending.yaml (%s)", why)
	case pending:
		counts.add(area, 2)
		t.Logf("pending: %s\n%s", why, r)
	case !r.passed():
		counts.add(area, 1)
		t.Errorf("%s", r)
	default:
		counts.add(area, 0)
	}
}

// TestCases plays the recorded cases against our proxy.
func TestCases(t *testing.T) {
	names := namesOf(t, chosenAreas())
	s := setup{command: append([]string{proxyBinary(t)}, arguments...), pki: freshPKI(t)}
	l := remarks{lists: loadedLists(t)}
	if *updateFlag {
		l.update = &pendingList{why: maps.Clone(l.pending)}
		if l.update.why == nil {
			l.update.why = map[string]string{}
		}
	}
	playAll(t, s, names, l)
	if l.update != nil {
		l.update.write(t)
	}
}

// fewOfEach are cases which together use every kind of step and upstream.
var fewOfEach = map[string]int{"tcp": 3, "tls": 4, "chains": 3, "xds": 4, "h1": 4, "h2": 5, "grpc": 2, "routing": 3, "timeouts": 2, "retries": 3}

// TestEnvoyAgrees plays cases against the real Envoy that SLUICE_ENVOY names.
// They were recorded from it: what does not pass is a fault of the runner.
func TestEnvoyAgrees(t *testing.T) {
	envoy := os.Getenv("SLUICE_ENVOY")
	if envoy == "" {
		t.Skip("SLUICE_ENVOY names no Envoy")
	}
	if _, err := os.Stat(envoy); err != nil {
		t.Fatalf("SLUICE_ENVOY: %v", err)
	}
	seen := map[string]int{}
	var names []string
	for _, name := range namesOf(t, chosenAreas()) {
		area := filepath.Dir(name)
		limit, limited := fewOfEach[area]
		if seen[area]++; *wholeFlag || !limited || seen[area] <= limit {
			names = append(names, name)
		}
	}
	command := append([]string{envoy, "--disable-hot-restart"}, arguments...)
	began := time.Now()
	playAll(t, setup{command: command, pki: freshPKI(t)}, names, remarks{})
	t.Logf("%d cases in %.0f s", len(names), time.Since(began).Seconds())
}
