package localratelimit

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/filter"
	"sluice/upstream/call"
)

var all = config.Percent{PerMillion: 1_000_000}

func tokens(n uint32) config.TokenBucket {
	return config.TokenBucket{Max: n, Fill: 1, Interval: time.Hour}
}

// terminal notes the reply of a filter.
type terminal struct{ reply *filter.Reply }

func (t *terminal) Reply(r filter.Reply)                          { t.reply = &r }
func (t *terminal) Resume()                                       {}
func (t *terminal) ClearRoute()                                   {}
func (t *terminal) Call(*call.Request, func(*call.Answer)) func() { return nil }
func (t *terminal) Cluster(string) *config.Cluster                { return nil }
func (t *terminal) Members(string) (int, int, bool)               { return 0, 0, false }

// request is an exchange of a GET whose path and headers text names:
// "/path?query name=value ...".
func request(text string, route *config.RouteAction) *filter.Exchange {
	h := &httpmsg.Head{}
	h.SetMethod([]byte("GET"))
	path, headers, _ := strings.Cut(text, " ")
	h.SetPath([]byte(path))
	for _, f := range strings.Fields(headers) {
		name, value, _ := strings.Cut(f, "=")
		h.Add([]byte(name), []byte(value))
	}
	x := &filter.Exchange{Worker: &worker.Worker{}, Conn: &downstream.Connection{}, Record: &telemetry.Record{Remote: netip.MustParseAddrPort("10.1.2.3:4")},
		Request: h, Set: telemetry.NewSet(), Route: &config.Route{Action: route}, Host: &config.VirtualHost{}}
	x.Bind(&terminal{})
	return x
}

// ask runs requests through f and gives a letter for each: y passed, n refused.
func ask(f *Filter, list ...*filter.Exchange) string {
	var out strings.Builder
	for _, x := range list {
		if f.Decode(x, &filter.Slot{}) == filter.Stop {
			out.WriteByte('n')
		} else {
			out.WriteByte('y')
		}
	}
	return out.String()
}

func header(name, key string) config.RateLimit {
	return config.RateLimit{Actions: []config.RateAction{{Source: config.RateRequestHeader, Name: name, Key: key}}}
}

func TestRequestsAreCountedByTheirDescriptions(t *testing.T) {
	user := &config.RouteAction{RateLimits: []config.RateLimit{header("x-user", "user")}}
	of := func(n uint32, entries ...config.RateEntry) config.RateDescriptor {
		return config.RateDescriptor{Entries: entries, Bucket: tokens(n)}
	}
	low, open := of(1, config.RateEntry{Key: "user", Value: "low"}), of(1, config.RateEntry{Key: "user"})
	big, small := tokens(100), tokens(2)
	staged := &config.RouteAction{RateLimits: []config.RateLimit{{Stage: 1, Actions: user.RateLimits[0].Actions}}}
	for _, c := range []struct {
		rule     string
		policy   config.LocalRateLimit
		route    *config.RouteAction
		requests string // one a line
		want     string
	}{
		{"without a description by the bucket", config.LocalRateLimit{Bucket: &small}, nil, "/\n/\n/", "yyn"},
		{"without a bucket not at all", config.LocalRateLimit{}, nil, "/\n/\n/", "yyy"},
		{"by the bucket that fits", config.LocalRateLimit{Bucket: &big, Descriptors: []config.RateDescriptor{low}}, user, "/ x-user=low\n/ x-user=low\n/ x-user=b\n/", "ynyy"},
		{"by the first line of a header", config.LocalRateLimit{Bucket: &big, Descriptors: []config.RateDescriptor{low}}, user, "/ x-user=low x-user=b\n/ x-user=low\n/ x-user=b x-user=low", "yny"},
		{"by the bucket too", config.LocalRateLimit{Bucket: &small, Descriptors: []config.RateDescriptor{of(9, low.Entries...)}}, user, "/ x-user=low\n/ x-user=low\n/ x-user=low\n/", "yynn"},
		{"by the bucket only when nothing fits", config.LocalRateLimit{Bucket: &small, SpareBucket: true, Descriptors: []config.RateDescriptor{of(3, low.Entries...)}}, user,
			"/ x-user=low\n/ x-user=low\n/ x-user=low\n/ x-user=low\n/\n/\n/", "yyynyyn"},
		{"each open value by itself", config.LocalRateLimit{Bucket: &big, MaxDynamic: 9, Descriptors: []config.RateDescriptor{open}}, user, "/ x-user=a\n/ x-user=b\n/ x-user=a\n/ x-user=b", "yynn"},
		{"the latest open values only", config.LocalRateLimit{Bucket: &big, MaxDynamic: 2, Descriptors: []config.RateDescriptor{open}}, user,
			"/ x-user=a\n/ x-user=b\n/ x-user=a\n/ x-user=c\n/ x-user=a\n/ x-user=b", "yynyny"},
		{"a shadow refuses nothing", config.LocalRateLimit{Bucket: &big, Descriptors: []config.RateDescriptor{{Entries: low.Entries, Bucket: tokens(1), Shadow: true}}}, user, "/ x-user=low\n/ x-user=low", "yy"},
		{"by rate limits of the stage", config.LocalRateLimit{Bucket: &big, Stage: 1, Descriptors: []config.RateDescriptor{low}}, staged, "/ x-user=low\n/ x-user=low", "yn"},
		{"not by those of another", config.LocalRateLimit{Bucket: &big, Descriptors: []config.RateDescriptor{low}}, staged, "/ x-user=low\n/ x-user=low", "yy"},
		{"by the filter's own, which have none", config.LocalRateLimit{Bucket: &big, Stage: 1, RateLimits: []config.RateLimit{header("x-own", "user")}, Descriptors: []config.RateDescriptor{low}}, user,
			"/ x-user=low\n/ x-user=low\n/ x-own=low\n/ x-own=low", "yyyn"},
	} {
		c.policy.Enabled, c.policy.Enforced = all, all
		var list []*filter.Exchange
		for text := range strings.SplitSeq(c.requests, "\n") {
			list = append(list, request(text, c.route))
		}
		if got := ask(New(&c.policy, 1), list...); got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestVirtualHostsDescribeToo(t *testing.T) {
	own := &config.RouteAction{RateLimits: []config.RateLimit{{Actions: []config.RateAction{{Key: "generic_key", Value: "route"}}}}}
	with := &config.RouteAction{RateLimits: own.RateLimits, WithHostLimits: true}
	for _, c := range []struct {
		rule  string
		mode  config.VirtualHostLimits
		route *config.RouteAction
		want  int // limits that fit
	}{
		{"override: a route with none takes the host's", config.VirtualHostOverride, &config.RouteAction{}, 1},
		{"override: a route with some doesn't", config.VirtualHostOverride, own, 1},
		{"override: unless it says so", config.VirtualHostOverride, with, 2},
		{"include: both", config.VirtualHostInclude, own, 2},
		{"ignore: only the route's", config.VirtualHostIgnore, own, 1},
		{"ignore: also none", config.VirtualHostIgnore, &config.RouteAction{}, 0},
	} {
		f := New(&config.LocalRateLimit{VirtualHost: c.mode, Descriptors: []config.RateDescriptor{
			{Entries: []config.RateEntry{{Key: "generic_key", Value: "host"}}, Bucket: tokens(1)},
			{Entries: []config.RateEntry{{Key: "generic_key", Value: "route"}}, Bucket: tokens(1)}}}, 1)
		x := request("/", c.route)
		x.Host.RateLimits = []config.RateLimit{{Actions: []config.RateAction{{Key: "generic_key", Value: "host"}}}}
		if got := len(f.fit(f.limiter, nil, x, &filter.Slot{})); got != c.want {
			t.Errorf("%s: %d, want %d", c.rule, got, c.want)
		}
	}
}

func TestActions(t *testing.T) {
	yes := []config.HeaderMatch{{Name: "x-a", Present: true}}
	query := []config.QueryMatch{{Name: "q", String: &config.StringMatch{Value: "a b"}}}
	for _, c := range []struct {
		rule, request string
		action        config.RateAction
		want          string // the value, "-": no description
	}{
		{"generic key", "/", config.RateAction{Value: "v"}, "v"},
		{"header", "/ x-a=1", config.RateAction{Source: config.RateRequestHeader, Name: "x-a"}, "1"},
		{"absent header", "/", config.RateAction{Source: config.RateRequestHeader, Name: "x-a"}, "-"},
		{"pseudo header", "/p", config.RateAction{Source: config.RateRequestHeader, Name: ":path"}, "/p"},
		{"parameter, decoded", "/?q=a%20b", config.RateAction{Source: config.RateQueryParam, Name: "q"}, "a b"},
		{"a plus sign is no space", "/?q=a+b", config.RateAction{Source: config.RateQueryParam, Name: "q"}, "a+b"},
		{"what can't be decoded stays", "/?q=%zz", config.RateAction{Source: config.RateQueryParam, Name: "q"}, "%zz"},
		{"absent parameter", "/?p=1", config.RateAction{Source: config.RateQueryParam, Name: "q"}, "-"},
		{"client", "/", config.RateAction{Source: config.RateRemoteAddress}, "10.1.2.3"},
		{"client's network", "/", config.RateAction{Source: config.RateMaskedRemote, Masked: 8, Masked6: 64}, "10.0.0.0/8"},
		{"headers fit", "/ x-a=1", config.RateAction{Source: config.RateHeaderMatch, Value: "v", Headers: yes}, "v"},
		{"headers don't", "/", config.RateAction{Source: config.RateHeaderMatch, Value: "v", Headers: yes}, "-"},
		{"headers must not fit", "/", config.RateAction{Source: config.RateHeaderMatch, Value: "v", Headers: yes, Unless: true}, "v"},
		{"parameters fit decoded", "/?q=a%20b", config.RateAction{Source: config.RateQueryMatch, Value: "v", Query: query}, "v"},
		{"parameters don't", "/?q=a", config.RateAction{Source: config.RateQueryMatch, Value: "v", Query: query}, "-"},
	} {
		s, got := &filter.Slot{}, "-"
		c.action.Key = "k"
		if describe(&config.RateLimit{Actions: []config.RateAction{c.action}}, request(c.request, nil), s) {
			key, rest := cutPart(s.B)
			value, _ := cutPart(rest)
			got = string(value)
			if string(key) != "k" {
				t.Errorf("%s: key %q", c.rule, key)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

func TestAnAbsentHeaderMayBeSkipped(t *testing.T) {
	s := &filter.Slot{}
	l := config.RateLimit{Actions: []config.RateAction{{Source: config.RateRequestHeader, Name: "x", Key: "x", SkipAbsent: true}, {Key: "generic_key", Value: "v"}}}
	if !describe(&l, request("/", nil), s) || string(s.B) != string(appendEntry(nil, "generic_key", "v")) {
		t.Errorf("described as %q", s.B)
	}
}

func TestAConnectionHasOneLimiter(t *testing.T) {
	a, b := tokens(3), tokens(1)
	first := New(&config.LocalRateLimit{Bucket: &a, PerConnection: true, Enabled: all, Enforced: all}, 1)
	second := New(&config.LocalRateLimit{Bucket: &b, PerConnection: true, Enabled: all, Enforced: all}, 1)
	one, other := request("/", nil), request("/", nil)
	if got := ask(first, one) + ask(second, one, one, one) + ask(second, other, other); got != "yyynyn" {
		t.Error(got)
	}
}

func TestWhatIsSaidOfALimit(t *testing.T) {
	one := tokens(1)
	count := func(f *Filter, x *filter.Exchange) string {
		out := ""
		for _, name := range []string{"enabled", "ok", "rate_limited", "enforced", "shadow_mode"} {
			out += fmt.Sprint(f.group(x).Adjust(name, 0), " ")
		}
		return strings.TrimSpace(out)
	}
	for _, c := range []struct {
		rule    string
		policy  config.LocalRateLimit
		verdict string
		counts  string // enabled ok rate_limited enforced shadow_mode
		status  int
		grpc    int
	}{
		{"off counts nothing", config.LocalRateLimit{Enforced: all}, "yy", "0 0 0 0 0", 0, 0},
		{"on, not enforced", config.LocalRateLimit{Enabled: all}, "yy", "2 1 1 0 0", 0, 0},
		{"enforced", config.LocalRateLimit{Enabled: all, Enforced: all}, "yn", "2 1 1 1 0", 429, -1},
		{"resource exhausted", config.LocalRateLimit{Enabled: all, Enforced: all, ResourceExhausted: true}, "yn", "2 1 1 1 0", 429, 8},
	} {
		c.policy.Bucket, c.policy.Status = &one, 429
		f, x := New(&c.policy, 1), request("/", nil)
		term := &terminal{}
		x.Bind(term)
		if got := ask(f, x, x); got != c.verdict || count(f, x) != c.counts {
			t.Errorf("%s: %s, counted %s, want %s and %s", c.rule, got, count(f, x), c.verdict, c.counts)
		}
		if r := term.reply; (r != nil) != (c.status != 0) || r != nil && (r.Status != c.status || r.GRPC != c.grpc || r.Flag != telemetry.RL) {
			t.Errorf("%s: reply %+v", c.rule, r)
		}
	}
}

func TestHeadersTellOfTheBucket(t *testing.T) {
	two := tokens(2)
	f := New(&config.LocalRateLimit{Bucket: &two, Enabled: all, Enforced: all, Status: 429, XRateLimit: true, RetryAfter: true}, 1)
	var got []string
	for range 3 {
		x, s, term := request("/", nil), &filter.Slot{}, &terminal{}
		x.Bind(term)
		x.Response = &httpmsg.Head{}
		if f.Decode(x, s) == filter.Stop {
			term.reply.Headers(x.Response)
		}
		f.Encode(x, s)
		line := ""
		for _, name := range []string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"} {
			v, _ := x.Response.Value(name)
			line += string(v) + " "
		}
		got = append(got, strings.TrimSpace(line))
	}
	if want := "2 1 0|2 0 3600|2 0 3600 3600"; strings.Join(got, "|") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestRequestsThatPassDoNotAllocate(t *testing.T) {
	big := tokens(1_000_000)
	f := New(&config.LocalRateLimit{Bucket: &big, Enabled: all, Enforced: all, XRateLimit: true, Descriptors: []config.RateDescriptor{
		{Entries: []config.RateEntry{{Key: "user", Value: "low"}, {Key: "remote_address", Value: "10.1.2.3"}}, Bucket: big},
		{Entries: []config.RateEntry{{Key: "any"}}, Bucket: big}}}, 1)
	route := &config.RouteAction{RateLimits: []config.RateLimit{header("x-user", "any"),
		{Actions: []config.RateAction{{Source: config.RateRequestHeader, Name: "x-user", Key: "user"}, {Source: config.RateRemoteAddress, Key: "remote_address"}}}}}
	x, s := request("/ x-user=low", route), &filter.Slot{}
	x.Response = &httpmsg.Head{}
	if n := testing.AllocsPerRun(100, func() {
		if f.Decode(x, s) != filter.Continue {
			t.Fatal("refused")
		}
		x.Response.Reset()
		f.Encode(x, s)
		s.B, s.Any = s.B[:0], nil
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
