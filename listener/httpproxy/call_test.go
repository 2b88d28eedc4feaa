package httpproxy

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/filter"
	"sluice/upstream/call"
)

// caller is a filter that parks each request until it has asked for what the path
// names, and answers with what that was.
type caller struct{ ask call.Request }

func (f *caller) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	if string(x.Request.Path()) == "/none" {
		return filter.Continue
	}
	ask, path := f.ask, string(x.Request.Path())
	ask.Head = func(h *httpmsg.Head) {
		h.SetMethod([]byte("GET"))
		h.SetPath([]byte(path))
		h.SetScheme([]byte("http"))
		h.SetAuthority([]byte("k"))
	}
	s.Any = x.Call(&ask, func(a *call.Answer) {
		if path == "/resume" {
			x.Resume()
			return
		}
		x.Reply(filter.Reply{Status: 200 + a.Status%100, Body: string(a.Body[:min(len(a.Body), 9)]), GRPC: -1})
	})
	return filter.Park
}

func (*caller) Encode(*filter.Exchange, *filter.Slot) {}

func (*caller) Done(_ *filter.Exchange, s *filter.Slot) {
	if cancel, _ := s.Any.(func()); cancel != nil {
		cancel()
	}
}

func calling(t *testing.T, keys http.HandlerFunc) *bench {
	t.Helper()
	m := hcm(to("/", "a"))
	b := start(t, m, static("a", origin(t, echo)), static("keys", origin(t, keys)))
	b.server.opts.Filters = func(*config.HTTPFilter, *config.HTTPConnectionManager, *config.Listener) (filter.HTTP, error) {
		return &caller{call.Request{Cluster: "keys", Timeout: 300 * time.Millisecond, Retries: config.Retries{Max: 1, Base: time.Millisecond, MaxInterval: time.Millisecond}}}, nil
	}
	again := *m
	again.Filters = []config.HTTPFilter{{Name: "call", Policy: &config.GRPCWeb{}}}
	p, err := b.server.Build(&again, &config.Listener{Meta: config.Meta{Name: "f"}, BufferLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b.listen(p)
	return b
}

func TestCalls(t *testing.T) {
	var asked, broken atomic.Int32
	left := make(chan struct{}, 8)
	b := calling(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/good":
			_, _ = io.WriteString(w, "content")
		case "/again":
			if broken.Add(1) == 1 {
				w.WriteHeader(503)
				return
			}
			_, _ = io.WriteString(w, "second")
		case "/bad":
			w.WriteHeader(500)
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("x", call.Limit+1))
		case "/hang":
			<-r.Context().Done()
			left <- struct{}{}
		}
	})
	for _, c := range []struct {
		path, want string
		asked      int32
	}{
		{"/good", "200 content", 1}, {"/again", "200 second", 2}, {"/bad", "200 ", 2}, {"/large", "200 ", 2}, {"/hang", "200 ", 1},
	} {
		asked.Store(0)
		if got := b.get(c.path); got != c.want || asked.Load() != c.asked {
			t.Errorf("%s: %q after %d tries, want %q after %d", c.path, got, asked.Load(), c.want, c.asked)
		}
	}
	<-left
	if got := b.raw("POST /resume HTTP/1.1\r\nhost: s\r\ncontent-length: 5\r\n\r\nhello", "POST")[0]; !strings.HasPrefix(got, "200 ") {
		t.Errorf("a request that goes on: %q", got)
	}
	c := b.dial()
	asked.Store(0)
	c.send("GET /hang HTTP/1.1\r\nhost: s\r\n\r\n")
	for range 500 {
		if asked.Load() > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_ = c.Close()
	select {
	case <-left:
	case <-time.After(200 * time.Millisecond):
		t.Error("the call of a client that is gone goes on")
	}
	b.await("cluster.keys.upstream_rq_active", 0)
}
