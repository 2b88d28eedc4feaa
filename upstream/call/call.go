// Package call makes requests of the proxy's own to a cluster: what filters ask
// for and what reports are sent by. A call takes a host, a connection and its
// limits from the cluster as any request does; it has neither route nor access
// log. Everything of one Caller happens on its worker.
package call

import (
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/worker"
	"sluice/upstream"
	"sluice/upstream/pool"
)

// Limit bounds the content of an answer, in bytes.
const Limit = 1 << 20

// Request is what to ask. It is sent as often as there are tries, so it stays as
// it is until the answer.
type Request struct {
	Cluster string
	// Head writes method, path, authority, scheme and headers. Nothing is added
	// but what Envoy's own client adds: x-envoy-internal, with Timeout
	// x-envoy-expected-rq-timeout-ms, and content-length.
	Head      func(h *httpmsg.Head)
	Body      []byte
	Forwarded bool // x-forwarded-for names this machine
	Streamed  bool // no content-length

	Timeout time.Duration  // of all tries; 0: none
	Retries config.Retries // after a failure or a 5xx
}

// Answer is what came back, valid until the function it is given to returns. A
// last try that failed leaves its Status, 0 where none came.
type Answer struct {
	Status   int
	Head     *httpmsg.Head // nil: no answer
	Body     []byte
	Trailers *httpmsg.Head // nil: none
	Late     bool          // the timeout ended it
}

// Caller makes calls on one worker.
type Caller struct {
	Worker   *worker.Worker
	Clusters *upstream.Local
	Own      netip.Addr // this machine's address; may be invalid
	Random   *rand.PCG
}

// Do asks, and calls done once, on the worker: also before it returns, where the
// cluster isn't there. After cancel done isn't called any more.
func (c *Caller) Do(r *Request, done func(*Answer)) (cancel func()) {
	k := &exchange{caller: c, ask: r, done: done, cluster: c.Clusters.Get(r.Cluster)}
	k.wait.User = k
	k.timer.Fire, k.pause.Fire = k.late, k.try
	if k.cluster == nil {
		done(&Answer{})
		return func() {}
	}
	if r.Timeout > 0 {
		c.Worker.Start(&k.timer, r.Timeout)
	}
	k.try()
	return k.cancel
}

// exchange is a call under way. It ends once: by done, or by its cancel.
type exchange struct {
	caller  *Caller
	ask     *Request
	done    func(*Answer)
	cluster *upstream.Cluster
	host    *upstream.Host // nil: no try under way
	conn    *pool.Conn
	stream  httpmsg.Stream
	wait    pool.Request
	sent    httpmsg.Head
	head    httpmsg.Head
	tail    httpmsg.Head
	timer   worker.Timer // the whole call
	pause   worker.Timer // until the next try
	tries   int
	answer  Answer
	over    bool
}

// try makes one try.
func (k *exchange) try() {
	k.tries++
	k.answer = Answer{}
	k.fill()
	k.host = k.cluster.Pick(&upstream.Query{})
	if k.host == nil {
		k.cluster.Count(503, true)
		k.failed()
		return
	}
	k.host.Active++
	k.cluster.Acquire(k.host, &k.wait, &upstream.StreamOptions{Host: string(k.sent.Authority())})
}

func (k *exchange) fill() {
	h := &k.sent
	h.Reset()
	k.ask.Head(h)
	h.SetString(httpmsg.XEnvoyInternal, "true")
	if k.ask.Forwarded && k.caller.Own.IsValid() {
		h.SetString(httpmsg.XForwardedFor, k.caller.Own.String())
	}
	if len(k.ask.Body) > 0 && !k.ask.Streamed {
		h.SetString(httpmsg.ContentLength, strconv.Itoa(len(k.ask.Body)))
	}
	if k.ask.Timeout > 0 {
		h.SetString(httpmsg.XEnvoyExpectedRqTimeoutMs, strconv.FormatInt(k.ask.Timeout.Milliseconds(), 10))
	}
}

// OnStream implements pool.User.
func (k *exchange) OnStream(s httpmsg.Stream, c *pool.Conn) {
	k.stream, k.conn = s, c
	s.SendHead(&k.sent, len(k.ask.Body) == 0)
	if len(k.ask.Body) > 0 && k.stream != nil { // a connection that just broke has told us
		s.SendData(k.ask.Body, true)
	}
}

// OnNoStream implements pool.User.
func (k *exchange) OnNoStream(pool.Failure) {
	k.cluster.Count(503, true)
	k.leave()
	k.failed()
}

// OnHead implements httpmsg.Receiver.
func (k *exchange) OnHead(h *httpmsg.Head, end bool) {
	if h.Status < 200 {
		return
	}
	k.head.CopyFrom(h)
	k.answer.Status, k.answer.Head = h.Status, &k.head
	k.cluster.Count(h.Status, true)
	k.host.ReportCode(h.Status)
	if end {
		k.answered()
	}
}

// OnData implements httpmsg.Receiver.
func (k *exchange) OnData(p []byte, end bool) {
	if len(k.answer.Body)+len(p) > Limit {
		k.reset()
		k.failed()
		return
	}
	k.answer.Body = append(k.answer.Body, p...)
	if end {
		k.answered()
	}
}

// OnTrailers implements httpmsg.Receiver.
func (k *exchange) OnTrailers(t *httpmsg.Head) {
	k.tail.CopyFrom(t)
	k.answer.Trailers = &k.tail
	k.answered()
}

// OnReset implements httpmsg.Receiver.
func (k *exchange) OnReset(httpmsg.ResetReason) {
	k.leave()
	k.failed()
}

// OnDrain implements httpmsg.Receiver.
func (k *exchange) OnDrain() {}

func (k *exchange) answered() {
	k.leave()
	if k.answer.Status >= 500 && k.again() {
		return
	}
	k.finish(&k.answer)
}

// failed makes another try if one is left. The answer it ends with has no
// content: what came is not all of it.
func (k *exchange) failed() {
	if k.over || k.again() {
		return
	}
	k.finish(&Answer{Status: k.answer.Status})
}

// again waits for another try, if one is left.
func (k *exchange) again() bool {
	if k.tries > k.ask.Retries.Max {
		return false
	}
	k.cluster.Stats[pool.RqRetry]++
	k.caller.Worker.Start(&k.pause, k.backoff())
	return true
}

// backoff is random below a bound that doubles, as Envoy's.
func (k *exchange) backoff() time.Duration {
	bound := min(k.ask.Retries.Base<<min(k.tries-1, 16), k.ask.Retries.MaxInterval)
	return time.Duration(k.caller.Random.Uint64() % uint64(max(bound, 1)))
}

func (k *exchange) late() {
	k.cluster.Stats[pool.RqTimeout]++
	k.reset()
	k.finish(&Answer{Late: true})
}

func (k *exchange) finish(a *Answer) {
	if k.over {
		return
	}
	k.stop()
	k.done(a)
}

func (k *exchange) cancel() {
	if !k.over {
		k.stop()
		k.reset()
	}
}

func (k *exchange) stop() {
	k.over = true
	k.caller.Worker.Stop(&k.timer)
	k.caller.Worker.Stop(&k.pause)
}

// reset gives up the try under way.
func (k *exchange) reset() {
	if k.wait.Waiting() {
		k.wait.Cancel()
	}
	if st := k.stream; st != nil {
		st.Reset(httpmsg.ResetReason{Kind: httpmsg.ResetLocal})
	}
	k.leave()
}

// leave gives back what the try held.
func (k *exchange) leave() {
	if k.host != nil {
		k.host.Active--
		k.host = nil
	}
	if k.stream != nil {
		k.stream = nil
		k.conn.Release(k.wait.Priority)
	}
}
