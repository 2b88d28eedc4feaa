package extauthz

import (
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/filter"
	"sluice/upstream/call"
)

// terminal notes what the filter does; answer is what its call waits for.
type terminal struct {
	asked   *call.Request
	answer  func(*call.Answer)
	reply   *filter.Reply
	resumed bool
	cleared bool
	cancels int
}

func (t *terminal) Reply(r filter.Reply)               { t.reply = &r }
func (t *terminal) Resume()                            { t.resumed = true }
func (t *terminal) ClearRoute()                        { t.cleared = true }
func (t *terminal) Cluster(string) *config.Cluster     { return nil }
func (t *terminal) Members(string) (a, n int, ok bool) { return 0, 0, false }
func (t *terminal) Call(r *call.Request, done func(*call.Answer)) func() {
	t.asked, t.answer = r, done
	return func() { t.cancels++ }
}

func exchange(o *terminal) *filter.Exchange {
	x := &filter.Exchange{Worker: &worker.Worker{}, Conn: &downstream.Connection{}, Record: &telemetry.Record{}, Request: &httpmsg.Head{}, End: true,
		Set: telemetry.NewSet()}
	x.Stats = x.Set.Add("http", "in", nil)
	x.Request.SetMethod([]byte("GET"))
	x.Request.SetPath([]byte("/a"))
	for _, v := range []string{"good", "evil\xff"} {
		x.Request.AddName("x-user", []byte(v))
	}
	x.Bind(o)
	return x
}

func answerOf(status int, fields ...string) *call.Answer {
	h := &httpmsg.Head{Status: status}
	for i := 0; i < len(fields); i += 2 {
		h.AddName(fields[i], []byte(fields[i+1]))
	}
	return &call.Answer{Status: status, Head: h, Body: []byte("said")}
}

func TestAnswers(t *testing.T) {
	all := []config.StringMatch{{Kind: config.MatchPrefix}}
	for _, c := range []struct {
		rule   string
		open   bool
		answer *call.Answer
		status int // of the reply, 0: the request goes on
		user   string
	}{
		{"200 lets pass", false, answerOf(200, "x-user", "me"), 0, "me"},
		{"a header that frames isn't the service's", false, answerOf(200, "content-length", "9"), 0, "good"},
		{"others refuse", false, answerOf(201), 201, "good"},
		{"a 5xx fails", false, answerOf(500), 403, "good"},
		{"no answer fails", false, &call.Answer{}, 403, "good"},
		{"a timeout fails", false, &call.Answer{Late: true}, 403, "good"},
		{"failing open", true, &call.Answer{Late: true}, 0, "good"},
		{"a refusal is one also when failing open", true, answerOf(403), 403, "good"},
		{"a header that can't be one isn't let in", true, answerOf(200, "x-user", "a\r\nb: c"), 500, "good"},
	} {
		o := &terminal{}
		x, s := exchange(o), &filter.Slot{}
		f := New(&config.ExtAuthz{HTTP: &config.AuthzHTTP{Upstream: all}, FailOpen: c.open, ErrorStatus: 403, Enabled: config.Percent{PerMillion: 1e6}, AllHeaders: true}, "z")
		if v := f.Decode(x, s); v != filter.Park {
			t.Fatalf("%s: verdict %d", c.rule, v)
		}
		o.answer(c.answer)
		status := 0
		if o.reply != nil {
			status = o.reply.Status
		}
		user, _ := x.Request.Value("x-user")
		if status != c.status || o.resumed != (c.status == 0) || string(user) != c.user || x.Request.Has(httpmsg.ContentLength) {
			t.Errorf("%s: status %d, resumed %v, x-user %q", c.rule, status, o.resumed, user)
		}
	}
}

func TestAskedByAllValues(t *testing.T) {
	o := &terminal{}
	x, s := exchange(o), &filter.Slot{}
	f := New(&config.ExtAuthz{HTTP: &config.AuthzHTTP{}, Enabled: config.Percent{PerMillion: 1e6}, AllHeaders: true}, "z")
	f.Decode(x, s)
	var h httpmsg.Head
	o.asked.Head(&h)
	if v, _ := h.Value("x-user"); string(v) != "good,evil!" {
		t.Errorf("the service sees x-user %q", v)
	}
	f.Done(x, s)
	if o.cancels != 1 {
		t.Errorf("a client that goes cancels the check %d times", o.cancels)
	}
}

func TestUnchecked(t *testing.T) {
	some := &config.MetadataMatch{Namespace: "a", Path: []string{"b"}, Value: &config.ValueMatch{}}
	for _, c := range []struct {
		rule    string
		policy  config.ExtAuthz
		route   config.ExtAuthzRoute
		verdict filter.Verdict
	}{
		{"a route that is out", config.ExtAuthz{Enabled: config.Percent{PerMillion: 1e6}}, config.ExtAuthzRoute{Disabled: true}, filter.Continue},
		{"metadata that isn't there", config.ExtAuthz{Enabled: config.Percent{PerMillion: 1e6}, EnabledMetadata: some}, config.ExtAuthzRoute{}, filter.Continue},
		{"no share of requests", config.ExtAuthz{}, config.ExtAuthzRoute{}, filter.Continue},
		{"what isn't checked may be refused", config.ExtAuthz{DenyDisabled: true}, config.ExtAuthzRoute{}, filter.Stop},
	} {
		c.policy.HTTP = &config.AuthzHTTP{}
		if v := New(&c.policy, "z").ForRoute(&c.route).Decode(exchange(&terminal{}), &filter.Slot{}); v != c.verdict {
			t.Errorf("%s: verdict %d", c.rule, v)
		}
	}
}

func TestContentIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		rule                string
		upgrade, connection string
		noBody              bool
		verdict             filter.Verdict
	}{
		{"content to come", "", "", false, filter.Gather},
		{"not where a route is content without", "", "", true, filter.Park},
		{"nor of a WebSocket", "websocket", "Upgrade", false, filter.Park},
		{"but of what only says so", "websocket", "close", false, filter.Gather},
		{"and of another upgrade", "h2c", "upgrade", false, filter.Gather},
	} {
		x := exchange(&terminal{})
		x.End = false
		x.Request.AddString(httpmsg.Upgrade, c.upgrade)
		x.Request.AddString(httpmsg.Connection, c.connection)
		f := New(&config.ExtAuthz{HTTP: &config.AuthzHTTP{}, Enabled: config.Percent{PerMillion: 1e6}, Body: &config.AuthzBody{Max: 5}}, "z")
		if v := f.ForRoute(&config.ExtAuthzRoute{NoBody: c.noBody}).Decode(x, &filter.Slot{}); v != c.verdict {
			t.Errorf("%s: verdict %d, want %d", c.rule, v, c.verdict)
		}
	}
}
