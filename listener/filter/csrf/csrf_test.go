package csrf

import (
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/upstream/call"
)

// terminal notes that a filter replied.
type terminal struct{ replied bool }

func (t *terminal) Reply(filter.Reply)                            { t.replied = true }
func (t *terminal) Resume()                                       {}
func (t *terminal) ClearRoute()                                   {}
func (t *terminal) Call(*call.Request, func(*call.Answer)) func() { return nil }
func (t *terminal) Cluster(string) *config.Cluster                { return nil }
func (t *terminal) Members(string) (int, int, bool)               { return 0, 0, false }

func TestOrigins(t *testing.T) {
	all := config.Percent{PerMillion: 1_000_000}
	policy := config.CSRF{Enabled: all, Origins: []config.StringMatch{{Value: "friend.test"}}}
	off, shadow := policy, policy
	off.Enabled, shadow.Enabled, shadow.Shadow = config.Percent{}, config.Percent{}, all
	for _, c := range []struct {
		rule            string
		policy          config.CSRF
		method          string
		origin, referer string
		counted         string // "": nothing
		pass            bool
	}{
		{"a safe method", policy, "GET", "http://evil.test", "", "", true},
		{"no origin", policy, "POST", "", "", "missing_source_origin", false},
		{"its own", policy, "PUT", "https://svc.test", "", "request_valid", true},
		{"scheme, user, path and query don't count", policy, "PATCH", "FTP://u:p@svc.test/a?b#c", "", "request_valid", true},
		{"the port does", policy, "POST", "http://svc.test:80", "", "request_invalid", false},
		{"no URL is taken as it is", policy, "POST", "svc.test", "", "request_valid", true},
		{"a URL without a host too", policy, "POST", "http://", "", "request_invalid", false},
		{"one that is allowed", policy, "POST", "http://friend.test", "", "request_valid", true},
		{"the referer without an origin", policy, "DELETE", "", "http://svc.test/page", "request_valid", true},
		{"another site's page", policy, "DELETE", "", "http://evil.test/svc.test", "request_invalid", false},
		{"the origin before the referer", policy, "POST", "http://evil.test", "http://svc.test/", "request_invalid", false},
		{"an origin not to be told", policy, "POST", "null", "http://svc.test/", "missing_source_origin", false},
		{"off", off, "POST", "http://evil.test", "", "", true},
		{"a shadow counts only", shadow, "POST", "http://evil.test", "", "request_invalid", true},
	} {
		x, term := &filter.Exchange{Request: &httpmsg.Head{}, Stats: telemetry.NewSet().Add("http", "in", nil)}, &terminal{}
		x.Bind(term)
		x.Request.SetMethod([]byte(c.method))
		x.Request.SetAuthority([]byte("svc.test"))
		if c.origin != "" {
			x.Request.AddString(httpmsg.Origin, c.origin)
		}
		if c.referer != "" {
			x.Request.AddName("referer", []byte(c.referer))
		}
		pass := New(&c.policy).Decode(x, nil) == filter.Continue
		if pass != c.pass || term.replied == c.pass {
			t.Errorf("%s: passed %v", c.rule, pass)
		}
		for _, name := range []string{"missing_source_origin", "request_invalid", "request_valid"} {
			if n := x.Stats.Adjust("csrf."+name, 0); (n == 1) != (name == c.counted) {
				t.Errorf("%s: %s %d", c.rule, name, n)
			}
		}
	}
}

func TestRequestsThatPassDoNotAllocate(t *testing.T) {
	f := New(&config.CSRF{Enabled: config.Percent{PerMillion: 1_000_000}})
	x := &filter.Exchange{Request: &httpmsg.Head{}, Stats: telemetry.NewSet().Add("http", "in", nil)}
	x.Request.SetMethod([]byte("POST"))
	x.Request.SetAuthority([]byte("svc.test"))
	x.Request.AddString(httpmsg.Origin, "http://svc.test")
	if n := testing.AllocsPerRun(100, func() { f.Decode(x, nil) }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
