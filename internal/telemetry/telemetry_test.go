package telemetry

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

func record() *Record {
	var req, resp httpmsg.Head
	req.SetMethod([]byte("GET"))
	req.SetPath([]byte("/a/b?q=1"))
	req.SetAuthority([]byte("svc"))
	req.Add([]byte("x-one"), []byte("value"))
	resp.Add([]byte("x-resp"), []byte(`say "hi"`))
	r := &Record{Conn: &Conn{ID: 7, Local: netip.MustParseAddrPort("10.0.0.1:80"), Remote: netip.MustParseAddrPort("10.0.0.2:5")},
		Request: &req, Response: &resp, Protocol: HTTP11, Code: 200, Details: "via upstream", Start: 1e9, End: 1e9 + 12e6,
		Wall: time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC), Dynamic: config.Metadata{"m": {"n": 4.5, "s": "text"}}}
	return r
}

func TestOperators(t *testing.T) {
	w := NewFormatter(func(string) string { return "env" })
	for _, c := range []struct {
		it   config.FormatItem
		want string
	}{
		{config.FormatItem{Op: "REQ", Arg: "x-one"}, "value"},
		{config.FormatItem{Op: "REQ", Arg: "x-none", Alt: "x-one", Max: 3}, "val"},
		{config.FormatItem{Op: "REQ", Arg: "x-none"}, "-"},
		{config.FormatItem{Op: "REQ_WITHOUT_QUERY", Arg: ":path"}, "/a/b"},
		{config.FormatItem{Op: "PATH", Arg: "NQ:ORIG_OR_PATH"}, "/a/b"},
		{config.FormatItem{Op: "QUERY_PARAM", Arg: "q"}, "1"},
		{config.FormatItem{Op: "RESPONSE_CODE"}, "200"},
		{config.FormatItem{Op: "RESPONSE_CODE_DETAILS"}, "via_upstream"},
		{config.FormatItem{Op: "RESPONSE_FLAGS"}, "-"},
		{config.FormatItem{Op: "DURATION"}, "12"},
		{config.FormatItem{Op: "PROTOCOL"}, "HTTP/1.1"},
		{config.FormatItem{Op: "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT"}, "10.0.0.2"},
		{config.FormatItem{Op: "DYNAMIC_METADATA", Arg: "m", Path: []string{"n"}}, "4.5"},
		{config.FormatItem{Op: "DYNAMIC_METADATA", Arg: "m"}, `{"n":4.5,"s":"text"}`},
		{config.FormatItem{Op: "START_TIME"}, "2026-03-04T05:06:07.089Z"},
		{config.FormatItem{Op: "START_TIME", Arg: "%Y/%m/%d %H:%M:%S.%3f %z"}, "2026/03/04 05:06:07.089 +0000"},
		{config.FormatItem{Op: "ENVIRONMENT", Arg: "X"}, "env"},
		{config.FormatItem{Op: "UPSTREAM_HOST"}, "-"},
		{config.FormatItem{Op: "GRPC_STATUS"}, "-"},
		{config.FormatItem{Op: "NO_SUCH"}, "-"},
	} {
		got := string(w.Text(nil, &config.Format{Items: []config.FormatItem{c.it}}, record()))
		if got != c.want {
			t.Errorf("%s(%s): %q, want %q", c.it.Op, c.it.Arg, got, c.want)
		}
	}
}

func TestNamedGroupsGoWithTheirOwners(t *testing.T) {
	s := NewSet()
	own := s.Add("cluster", "a", nil)
	s.Named("cluster", "a").Count([]byte("grpc.total"), 2)
	own.Count([]byte("grpc.total"), 1)
	own.Count([]byte("grpc.none"), 0)
	if len(own.named) != 1 || own.named[0].n != 3 {
		t.Errorf("%+v", own.named)
	}
	s.Remove(own)
	if again := s.Named("cluster", "a"); again == own || s.Named("cluster", "a") != again {
		t.Error("a group that is gone is named")
	}
}

func TestFlagsKeepTheirOrder(t *testing.T) {
	var f Flags
	f.Set(URX)
	f.Set(UT)
	f.Set(URX)
	if got := string(f.Append(nil, false)) + " " + string(f.Append(nil, true)); got != "URX,UT UpstreamRetryLimitExceeded,UpstreamRequestTimeout" {
		t.Error(got)
	}
	if FlagOf("UH") != UH || FlagOf("nonsense") != FlagNone {
		t.Error("FlagOf")
	}
}

func TestJSONKeepsTypes(t *testing.T) {
	op := func(op, arg string) config.JSONValue {
		return config.JSONValue{Format: &config.Format{Items: []config.FormatItem{{Op: op, Arg: arg}}}}
	}
	mixed := config.JSONValue{Format: &config.Format{Items: []config.FormatItem{{Text: "x="}, {Op: "REQ", Arg: "none"}}}}
	j := &config.JSONFormat{Keys: []string{"code", "missing", "quoted", "mixed", "const", "deep"}, Values: []config.JSONValue{
		op("RESPONSE_CODE", ""), op("REQ", "none"), op("RESP", "x-resp"), mixed, {IsVal: true, Const: 5.0},
		{Object: &config.JSONFormat{Keys: []string{"m"}, Values: []config.JSONValue{op("DYNAMIC_METADATA", "m")}}}}}
	w := NewFormatter(nil)
	const want = `{"code":200,"missing":null,"quoted":"say \"hi\"","mixed":"x=-","const":5,"deep":{"m":{"n":4.5,"s":"text"}}}`
	if got := string(w.JSON(nil, j, record())); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	j.OmitEmpty = true
	deep := j.Values[5].Object
	deep.Keys, deep.Values = append(deep.Keys, "missing"), append(deep.Values, op("REQ", "none"))
	const left = `{"code":200,"quoted":"say \"hi\"","mixed":"x=","const":5,"deep":{"m":{"n":4.5,"s":"text"}}}`
	if got := string(w.JSON(nil, j, record())); got != left {
		t.Errorf("%s\nwant %s", got, left)
	}
}

func TestLogFilters(t *testing.T) {
	w := Writer{Format: NewFormatter(nil)}
	r := record()
	r.Flags.Set(UF)
	for _, c := range []struct {
		name string
		f    config.LogFilter
		want bool
	}{
		{"status at least 400", config.LogFilter{Kind: config.LogStatus, Op: config.CompareGE, Number: 400}, false},
		{"duration at least 10", config.LogFilter{Kind: config.LogDuration, Op: config.CompareGE, Number: 10}, true},
		{"any flag", config.LogFilter{Kind: config.LogResponseFlag}, true},
		{"flag NR", config.LogFilter{Kind: config.LogResponseFlag, Flags: []string{"NR"}}, false},
		{"or", config.LogFilter{Kind: config.LogOr, Sub: []config.LogFilter{{Kind: config.LogResponseFlag, Flags: []string{"NR", "UF"}}}}, true},
		{"and of none", config.LogFilter{Kind: config.LogAnd}, true},
		{"header", config.LogFilter{Kind: config.LogHeader, Header: &config.HeaderMatch{Name: "x-one", Present: true}}, true},
		{"no sample", config.LogFilter{Kind: config.LogRuntime}, false},
	} {
		if got := w.Passes(&c.f, r); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func TestFilesLoseNoLineOfManyWorkers(t *testing.T) {
	var out safeBuffer
	f := NewFiles(4, time.Millisecond, &out, &out)
	file, err := f.Open("/dev/stdout")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for range 1000 {
				file.Write(w, 0, []byte("a line of the log\n"))
			}
		})
	}
	wg.Wait()
	time.Sleep(5 * time.Millisecond)
	for w := range 4 { // what an append put aside comes with the next one
		file.Write(w, 0, []byte("a line of the log\n"))
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.b.String(), "a line of the log\n"); n != 4004 || file.Dropped() != 0 {
		t.Errorf("%d lines, %d dropped, want 4004, 0", n, file.Dropped())
	}
}

func TestReopenedFilesGoOnUnderTheirName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	var out safeBuffer
	f := NewFiles(1, time.Hour, &out, &out)
	file, err := f.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	file.Write(0, 0, []byte("before\n"))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	file.Write(0, 0, []byte("behind\n"))
	f.Flush()
	for name, want := range map[string]string{path + ".1": "before\n", path: "behind\n"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
}

func TestGatherSumsWorkers(t *testing.T) {
	var r Registry
	for range 2 {
		s := NewSet()
		g := s.Add("cluster", "a", []Stat{{Name: "upstream_rq_total"}, {Name: "upstream_rq_active", Gauge: true}})
		g.Values[0], g.Values[1] = 3, 1
		g.Code("upstream_rq_", 503)
		g.Inc("fault.aborts_injected")
		r.Register(func(f func()) { go f() }, s)
	}
	got := map[string]uint64{}
	for _, m := range r.Gather(t.Context()) {
		got[m.Name] = m.Value
	}
	for name, want := range map[string]uint64{"cluster.a.upstream_rq_total": 6, "cluster.a.upstream_rq_active": 2,
		"cluster.a.upstream_rq_503": 2, "cluster.a.upstream_rq_5xx": 2, "cluster.a.fault.aborts_injected": 2} {
		if got[name] != want {
			t.Errorf("%s %d, want %d", name, got[name], want)
		}
	}
}

func TestPeerMetadataRoundTripIsDeterministic(t *testing.T) {
	n := &config.Node{ID: "sidecar~1", Metadata: config.Struct{"NAME": "pod", "NAMESPACE": "ns", "WORKLOAD_NAME": "w", "CLUSTER_ID": "c",
		"OTHER": "not told", "LABELS": config.Struct{"app": "a", "version": "v1", "pod-template-hash": "x", canonicalName: "svc"}}}
	a, b := NewNode(n, nil), NewNode(n, nil)
	if a.Header != b.Header || a.Header == "" {
		t.Fatal("the header differs from time to time")
	}
	p := ParsePeerHeader([]byte(a.Header))
	if p == nil || p.Workload != "w" || p.Namespace != "ns" || p.Cluster != "c" || p.App != "a" || p.Canonical != "svc" {
		t.Fatalf("%+v", p)
	}
	if _, told := p.Labels["pod-template-hash"]; told {
		t.Error("a label that peers have no need of is told")
	}
	if q := ParsePeerAny(a.Any); q == nil || q.Workload != "w" {
		t.Errorf("%+v", q)
	}
}

func FuzzParseStruct(f *testing.F) {
	f.Add(AppendStruct(nil, config.Struct{"a": "b", "l": config.List{1.0, true}, "s": config.Struct{"x": nil}}))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if s, ok := ParseStruct(b); ok {
			peerOf(s)
			AppendStruct(nil, s)
		}
		ParsePeerAny(b)
		ParsePeerHeader(b)
	})
}

func TestFormattingDoesNotAllocate(t *testing.T) {
	w, r, f := NewFormatter(nil), record(), defaultFormat()
	buf := w.Text(nil, f, r)
	if n := testing.AllocsPerRun(100, func() { buf = w.Text(buf[:0], f, r) }); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}

func TestLinesOfSeveralWorkersAreWrittenInTheOrderOfEvents(t *testing.T) {
	var out bytes.Buffer
	files := NewFiles(2, time.Hour, &out, io.Discard)
	file, err := files.Open("/dev/stdout")
	if err != nil {
		t.Fatal(err)
	}
	file.Write(1, 30, []byte("third\n"))
	file.Write(0, 10, []byte("first\n"))
	file.Write(0, 40, []byte("fourth\n"))
	file.Write(1, 35, []byte("between\n"))
	file.Write(1, 50, []byte("last\n"))
	files.Flush()
	if got, want := out.String(), "first\nthird\nbetween\nfourth\nlast\n"; got != want {
		t.Fatalf("written %q, want %q", got, want)
	}
}

func TestNamesOfGroups(t *testing.T) {
	for _, c := range []struct{ scope, name, dotted, prom, label string }{
		{"cluster", "a", "cluster.a.n", "envoy_cluster_n", "envoy_cluster_name"},
		{"http1", "", "http1.n", "envoy_http1_n", ""},
		{HTTPLocalRateLimit, "rl", "rl.http_local_rate_limit.n", "envoy_http_local_rate_limit_n", "envoy_local_http_ratelimit_prefix"},
	} {
		s := NewSet()
		s.Add(c.scope, c.name, nil).Inc("n")
		m := (&collection{}).next(s)[0]
		label := ""
		if len(m.Labels) > 0 {
			label = m.Labels[0].Name
		}
		if m.Name != c.dotted || m.Prom != c.prom || label != c.label {
			t.Errorf("%s %s: %s, %s, label %q", c.scope, c.name, m.Name, m.Prom, label)
		}
	}
}
