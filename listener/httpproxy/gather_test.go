package httpproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	filters "sluice/listener/filter/chain"
)

// probe notes the content it sees, a word a piece, the last with a full stop.
type probe struct{ saw *[]string }

func (p *probe) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	*p.saw = append(*p.saw, "head")
	return filter.Continue
}
func (*probe) Encode(*filter.Exchange, *filter.Slot) {}
func (p *probe) DecodeData(_ *filter.Exchange, _ *filter.Slot, b []byte, end bool) []byte {
	word := string(b)
	if end {
		word += "."
	}
	*p.saw = append(*p.saw, word)
	return b
}
func (p *probe) EncodeData(_ *filter.Exchange, _ *filter.Slot, b []byte, _ bool) []byte { return b }

// part is a filter that wants the first four bytes, and notes what it gets.
type part struct{ saw *[]string }

func (p *part) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	if !x.End && !x.Whole && len(x.Content) < 4 {
		x.Limit, x.Partial = 4, true
		return filter.Gather
	}
	*p.saw = append(*p.saw, "part:"+string(x.Content))
	return filter.Continue
}
func (*part) Encode(*filter.Exchange, *filter.Slot) {}

// parted is a policy that stands for a part.
var parted = config.HTTPFilter{Name: "part", Policy: &config.CSRF{}}

// probed is a policy that stands for a probe.
var probed = config.HTTPFilter{Name: "probe", Policy: &config.GRPCWeb{}}

func bufferOf(n int) config.HTTPFilter {
	return config.HTTPFilter{Name: fmt.Sprint("buffer", n), Policy: &config.Buffer{MaxBytes: n}}
}

// gathering is a proxy with the filters, whose origin answers with the length it
// was told and the content; saw is what the first probe saw.
func gathering(t *testing.T, route *config.Route, list ...config.HTTPFilter) (b *bench, saw *[]string) {
	t.Helper()
	saw = new([]string)
	b = start(t, hcm(to("/", "a")), static("a", origin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s", r.ContentLength, body)
	})))
	known := (&filters.Builder{Node: telemetry.NewNode(&config.Node{}, nil), Workers: 1}).Build
	b.server.opts.Filters = func(f *config.HTTPFilter, m *config.HTTPConnectionManager, l *config.Listener) (filter.HTTP, error) {
		switch f.Policy.(type) {
		case *config.GRPCWeb:
			return &probe{saw}, nil
		case *config.CSRF:
			return &part{saw}, nil
		}
		return known(f, m, l)
	}
	m := hcm(route)
	m.Filters = list
	p, err := b.server.Build(m, &config.Listener{Meta: config.Meta{Name: "gathering"}, BufferLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b.listen(p)
	return b, saw
}

const (
	chunked = "POST / HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n"
	known6  = "POST / HTTP/1.1\r\nhost: s\r\ncontent-length: 6\r\n\r\n"
)

func TestContentIsGatheredForAFilter(t *testing.T) {
	slow := config.HTTPFilter{Name: "fault", Policy: &config.Fault{Delay: &config.FaultDelay{Fixed: 30 * time.Millisecond, Percent: config.Percent{PerMillion: all}}}}
	for _, c := range []struct {
		rule    string
		filters []config.HTTPFilter
		send    []string // with a pause between
		want    string   // the answer
		saw     string   // by the probe
	}{
		{"as long as it may be", []config.HTTPFilter{bufferOf(6), probed}, []string{known6 + "abc", "def"}, "200 6 abcdef", "head abcdef."},
		{"no longer", []config.HTTPFilter{bufferOf(5), probed}, []string{known6 + "abc", "def"}, "413 Payload Too Large", ""},
		{"chunks get a length", []config.HTTPFilter{bufferOf(9), probed}, []string{chunked + "3\r\nabc\r\n", "1\r\nd\r\n0\r\n\r\n"}, "200 4 abcd", "head abcd."},
		{"no content", []config.HTTPFilter{bufferOf(9), probed}, []string{"GET / HTTP/1.1\r\nhost: s\r\n\r\n"}, "200 0 ", "head"},
		{"chunks without content", []config.HTTPFilter{bufferOf(9), probed}, []string{chunked, "0\r\n\r\n"}, "200 0 ", "head ."},
		{"filters before it see it come", []config.HTTPFilter{probed, bufferOf(9)}, []string{known6 + "abc", "def"}, "200 6 abcdef", "head abc def."},
		{"by two, of which the second is stricter", []config.HTTPFilter{bufferOf(9), bufferOf(5), probed}, []string{known6 + "abc", "def"}, "413 Payload Too Large", ""},
		{"by two, of which the first is", []config.HTTPFilter{bufferOf(6), bufferOf(9), probed}, []string{known6 + "abc", "def"}, "200 6 abcdef", "head abcdef."},
		{"what came while another filter parked", []config.HTTPFilter{slow, bufferOf(6), probed}, []string{known6 + "abcdef"}, "200 6 abcdef", "head abcdef."},
		{"that too within the limit", []config.HTTPFilter{slow, bufferOf(5), probed}, []string{known6 + "abcdef"}, "413 Payload Too Large", ""},
		{"its first part, and the rest follows", []config.HTTPFilter{parted, probed}, []string{known6 + "ab", "cde", "f"}, "200 6 abcdef", "part:abcde head abcde f."},
		{"less than the part, whole", []config.HTTPFilter{parted, probed}, []string{chunked + "3\r\nabc\r\n", "0\r\n\r\n"}, "200 -1 abc", "part:abc head abc."},
		{"the part when all came at once", []config.HTTPFilter{parted, probed}, []string{known6 + "abcdef"}, "200 6 abcdef", "part:abcdef head abcdef."},
		{"a part, then all of it", []config.HTTPFilter{parted, bufferOf(6), probed}, []string{known6 + "abcd", "ef"}, "200 6 abcdef", "part:abcd head abcdef."},
		{"a parked request shows filters behind what came", []config.HTTPFilter{slow, probed}, []string{known6 + "abcdef"}, "200 6 abcdef", "head abcdef."},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b, saw := gathering(t, to("/", "a"), c.filters...)
			client := b.dial()
			defer client.Close()
			for i, s := range c.send {
				if i > 0 {
					time.Sleep(20 * time.Millisecond)
				}
				client.send(s)
			}
			resp, err := http.ReadResponse(client.r, &http.Request{Method: "POST"})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%d %s", resp.StatusCode, body); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			b.logged(1)
			if got := strings.Join(*saw, " "); got != c.saw {
				t.Errorf("the probe saw %q, want %q", got, c.saw)
			}
		})
	}
}

func TestNothingGoesUpstreamBeforeTheContentIsWhole(t *testing.T) {
	b, _ := gathering(t, to("/", "a"), bufferOf(9))
	client := b.dial()
	defer client.Close()
	client.send(known6 + "abc")
	time.Sleep(30 * time.Millisecond)
	if n := b.stat("cluster.a.upstream_cx_total"); n != 0 {
		t.Errorf("%d connections for half a request", n)
	}
	client.send("def")
	client.expect("abcdef")
}

func TestALargeBodyIsGatheredWithoutAPause(t *testing.T) {
	b, _ := gathering(t, to("/", "a"), bufferOf(3<<20))
	body := strings.Repeat("x", 3<<20) // more than the listener's buffer limit
	if got := b.raw(fmt.Sprintf("POST / HTTP/1.1\r\nhost: s\r\ncontent-length: %d\r\n\r\n%s", len(body), body), "POST")[0]; !strings.HasPrefix(got, "200 3145728 x") {
		t.Errorf("%.60q", got)
	}
}

func TestAContentLongerThanTheRouteKeepsIsNotRetried(t *testing.T) {
	route := withRetry(to("/", "down"), &config.RetryPolicy{On: config.RetryConnectFailure, NumRetries: 1})
	route.RetryBufferLimit = 4
	b, _ := gathering(t, route, bufferOf(9))
	b.apply(static("down", closed(t)))
	if got := b.raw(known6+"abcdef", "POST")[0]; !strings.HasPrefix(got, "503") {
		t.Errorf("%q", got)
	}
	if n := b.stat("cluster.down.retry_or_shadow_abandoned"); n != 1 {
		t.Errorf("%d retries abandoned", n)
	}
}
