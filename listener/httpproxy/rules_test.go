package httpproxy

import (
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

func TestNormalizedPaths(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"/a/../b", "/b"}, {"/a/./b", "/a/b"}, {"/a//b", "/a//b"}, {"//a///b", "//a///b"}, {"/a/%2e%2e/b", "/b"}, {"/a/%2E/b", "/a/b"},
		{"/a/b/..", "/a/"}, {"/a/b/.", "/a/b/"}, {"/../x", "/x"}, {"/../../etc", "/etc"}, {`/a\b`, "/a/b"}, {"/a%5Cb", "/a%5Cb"},
		{"/a%2Fb", "/a%2Fb"}, {"/%7Euser/%41", "/~user/A"}, {"/a%zz", "/a%zz"}, {"/a%0", "/a%0"}, {"/a%0ab", "/a%0ab"},
		{"/a;p=1/../b", "/b"}, {"/%C3%A9/x", "/%C3%A9/x"}, {"/", "/"}, {"/a/...", "/a/..."}, {"/%2e%2e%2fb", "/..%2fb"},
	} {
		got, ok := normalized(nil, []byte(c.in))
		if !ok || string(got) != c.want {
			t.Errorf("%s: %s %v, want %s", c.in, got, ok, c.want)
		}
	}
	if _, ok := normalized(nil, []byte("/a%00b")); ok {
		t.Error("an escaped NUL was let through")
	}
}

func FuzzNormalized(f *testing.F) {
	f.Add("/a/../b%2e%2e/..")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) == 0 || s[0] != '/' {
			return
		}
		once, ok := normalized(nil, []byte(s))
		if !ok {
			return
		}
		if len(once) == 0 || once[0] != '/' {
			t.Fatalf("%q became %q, which is no path", s, once)
		}
		for i, seg := 0, 1; i < len(once); i++ {
			if i+1 == len(once) || once[i+1] == '/' {
				if d := string(once[seg : i+1]); d == "." || d == ".." {
					t.Fatalf("%q became %q, which has a dot segment", s, once)
				}
				seg = i + 2
			}
		}
	})
}

func TestClientAddressInXFF(t *testing.T) {
	for _, c := range []struct {
		xff   string
		skip  int
		want  string
		alone bool
	}{
		{"10.0.0.1", 0, "10.0.0.1", true}, {"8.8.8.8, 10.0.0.1", 0, "10.0.0.1", false}, {"9.9.9.9,8.8.8.8, 10.0.0.1", 1, "8.8.8.8", false},
		{"junk", 0, "", false}, {"10.0.0.1:80", 0, "", false}, {"2001:db8::1", 0, "2001:db8::1", true}, {"", 0, "", false},
		{"10.0.0.1", 1, "", false}, {"1.2.3", 0, "", false}, {"1.2.3.256", 0, "", false}, {"1.2.3.4.5", 0, "", false},
	} {
		a, alone, ok := lastAddress([]byte(c.xff), c.skip)
		got := ""
		if ok {
			got = a.String()
		}
		if got != c.want || alone != c.alone {
			t.Errorf("%q skipping %d: %q %v, want %q %v", c.xff, c.skip, got, alone, c.want, c.alone)
		}
	}
}

func TestGRPCTimeouts(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"1S", time.Second, true}, {"1500m", 1500 * time.Millisecond, true}, {"1u", time.Millisecond, true}, {"2H", 2 * time.Hour, true},
		{"99999999H", 0, true}, {"123456789S", 0, false}, {"5", 0, false}, {"S", 0, false}, {"-1S", 0, false}, {"1s", 0, false}, {"1_5S", 0, false},
	} {
		if got, ok := grpcTimeout([]byte(c.in)); got != c.want || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestRetryConditions(t *testing.T) {
	limited := func(h *httpmsg.Head) { h.AddString(httpmsg.XEnvoyRatelimited, "true") }
	grpc := func(h *httpmsg.Head) { h.AddString(httpmsg.GRPCStatus, "14") }
	for _, c := range []struct {
		name   string
		on     string
		status int
		edit   func(*httpmsg.Head)
		want   bool
	}{
		{"5xx", "5xx", 500, nil, true}, {"5xx not for 404", "5xx", 404, nil, false}, {"gateway not for 500", "gateway-error", 500, nil, false},
		{"gateway for 502", "gateway-error", 502, nil, true}, {"409", "retriable-4xx", 409, nil, true}, {"429", "retriable-4xx", 429, nil, false},
		{"a rate-limited answer is retried by its own word only", "5xx", 503, limited, false}, {"rate limited", "envoy-ratelimited", 429, limited, true},
		{"unavailable in the head", "unavailable", 200, grpc, true}, {"codes without a list", "retriable-status-codes", 503, nil, false},
		{"unknown words", "no-such-thing,5xx", 503, nil, true},
	} {
		var h httpmsg.Head
		h.Status = c.status
		if c.edit != nil {
			c.edit(&h)
		}
		p := retryPlan{on: retryOn([]byte(c.on)), policy: &config.RetryPolicy{}}
		if got := p.wantsHead(&h); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	for _, c := range []struct {
		name  string
		on    string
		cause cause
		sent  bool
		want  bool
	}{
		{"overflow is never retried", "5xx,reset,connect-failure", causeOverflow, false, false},
		{"connect failure", "connect-failure", causeConnect, false, true}, {"connect timeout", "connect-failure", causeConnectTimeout, false, true},
		{"refused stream", "refused-stream", causeRefused, true, true}, {"reset before request", "reset-before-request", causeConnect, false, true},
		{"reset after the request's head", "reset-before-request", causeTerminated, true, false}, {"reset", "reset", causeTerminated, true, true},
	} {
		p := retryPlan{on: retryOn([]byte(c.on))}
		if got := p.wantsReset(c.cause, c.sent); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
