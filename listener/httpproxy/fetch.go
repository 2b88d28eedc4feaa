package httpproxy

import (
	"strconv"
	"time"

	"sluice/internal/httpmsg"
	"sluice/internal/worker"
	"sluice/listener/filter"
	"sluice/upstream"
	"sluice/upstream/pool"
)

// fetch is a GET that a filter makes: its own request to a cluster, which has
// neither route nor access log. It ends once: by done, or by its cancel.
type fetch struct {
	local   *local
	ask     filter.Fetch
	done    func(status int, body []byte)
	cluster *upstream.Cluster
	host    *upstream.Host // nil: no try under way
	conn    *pool.Conn
	stream  httpmsg.Stream
	wait    pool.Request
	head    httpmsg.Head
	timer   worker.Timer // the whole fetch
	pause   worker.Timer // until the next try
	tries   int
	status  int
	body    []byte
	over    bool
}

// Fetch implements filter.Ops.
func (r *request) Fetch(ask filter.Fetch, done func(status int, body []byte)) (cancel func()) {
	f := &fetch{local: r.local, ask: ask, done: done, cluster: r.local.clusters.Get(ask.Cluster)}
	f.wait.User = f
	f.timer.Fire, f.pause.Fire = f.late, f.try
	if f.cluster == nil {
		done(0, nil)
		return func() {}
	}
	r.local.worker.Start(&f.timer, ask.Timeout)
	f.try()
	return f.cancel
}

// try makes one try.
func (f *fetch) try() {
	f.tries++
	f.status, f.body = 0, nil
	f.fill()
	f.host = f.cluster.Pick(&upstream.Query{})
	if f.host == nil {
		f.cluster.Count(503, true)
		f.failed()
		return
	}
	f.host.Active++
	f.cluster.Acquire(f.host, &f.wait, &upstream.StreamOptions{Host: f.ask.Host})
}

// fill writes the request, as Envoy's client for such things does.
func (f *fetch) fill() {
	h := &f.head
	h.Reset()
	h.SetMethod([]byte("GET"))
	h.SetPath([]byte(f.ask.Path))
	h.SetScheme([]byte(f.ask.Scheme))
	h.SetAuthority([]byte(f.ask.Host))
	h.AddName("user-agent", []byte("Go-browser"))
	h.SetString(httpmsg.XEnvoyInternal, "true")
	if f.local.own.IsValid() {
		h.SetString(httpmsg.XForwardedFor, f.local.own.String())
	}
	h.SetString(httpmsg.XEnvoyExpectedRqTimeoutMs, strconv.FormatInt(f.ask.Timeout.Milliseconds(), 10))
}

// OnStream implements pool.User.
func (f *fetch) OnStream(s httpmsg.Stream, c *pool.Conn) {
	f.stream, f.conn = s, c
	s.SendHead(&f.head, true)
}

// OnNoStream implements pool.User.
func (f *fetch) OnNoStream(pool.Failure) {
	f.cluster.Count(503, true)
	f.leave()
	f.failed()
}

// OnHead implements httpmsg.Receiver.
func (f *fetch) OnHead(h *httpmsg.Head, end bool) {
	if h.Status < 200 {
		return
	}
	f.status = h.Status
	f.cluster.Count(h.Status, true)
	f.host.ReportCode(h.Status)
	if end {
		f.answered()
	}
}

// OnData implements httpmsg.Receiver.
func (f *fetch) OnData(p []byte, end bool) {
	if len(f.body)+len(p) > filter.FetchLimit {
		f.reset()
		f.failed()
		return
	}
	f.body = append(f.body, p...)
	if end {
		f.answered()
	}
}

// OnTrailers implements httpmsg.Receiver.
func (f *fetch) OnTrailers(*httpmsg.Head) { f.answered() }

// OnReset implements httpmsg.Receiver.
func (f *fetch) OnReset(httpmsg.ResetReason) {
	f.leave()
	f.failed()
}

// OnDrain implements httpmsg.Receiver.
func (f *fetch) OnDrain() {}

func (f *fetch) answered() {
	f.leave()
	if f.status >= 500 {
		f.failed()
		return
	}
	f.finish(f.status, f.body)
}

// failed makes another try if one is left.
func (f *fetch) failed() {
	if f.over {
		return
	}
	if f.tries > f.ask.Retries {
		f.finish(f.status, nil)
		return
	}
	f.cluster.Stats[pool.RqRetry]++
	f.local.worker.Start(&f.pause, f.backoff())
}

// backoff is random below a bound that doubles, as Envoy's.
func (f *fetch) backoff() time.Duration {
	bound := min(f.ask.Backoff<<min(f.tries-1, 16), f.ask.MaxBackoff)
	return time.Duration(f.local.rnd.Uint64() % uint64(max(bound, 1)))
}

func (f *fetch) late() {
	f.cluster.Stats[pool.RqTimeout]++
	f.reset()
	f.finish(0, nil)
}

func (f *fetch) finish(status int, body []byte) {
	if f.over {
		return
	}
	f.stop()
	f.done(status, body)
}

// cancel gives the fetch up; done isn't called.
func (f *fetch) cancel() {
	if !f.over {
		f.stop()
		f.reset()
	}
}

func (f *fetch) stop() {
	f.over = true
	f.local.worker.Stop(&f.timer)
	f.local.worker.Stop(&f.pause)
}

// reset gives up the try under way.
func (f *fetch) reset() {
	if f.wait.Waiting() {
		f.wait.Cancel()
	}
	if st := f.stream; st != nil {
		st.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetLocal})
	}
	f.leave()
}

// leave gives back what the try held.
func (f *fetch) leave() {
	if f.host != nil {
		f.host.Active--
		f.host = nil
	}
	if f.stream != nil {
		f.stream = nil
		f.conn.Release(f.wait.Priority)
	}
}
