package httpproxy

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"sluice/internal/h1"
	"sluice/internal/h2"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/upstream"
	"sluice/upstream/call"
)

// local is what one worker's connection managers share: pooled requests, clocks
// and buffers.
type local struct {
	worker   *worker.Worker
	index    int
	clusters *upstream.Local
	set      *telemetry.Set
	log      telemetry.Writer
	heads    *httpmsg.Pool
	streams  *h2.Pool
	codec1   h1.Counters
	codec2   h2.Counters
	rnd      *rand.PCG
	free     []*request
	over     []*request // finished in this turn
	reap     worker.Deferred
	groups   map[string]*telemetry.Group // by stat_prefix
	retired  map[string]bool             // stat_prefixes no listener has: gone with the last connection
	own      netip.Addr                  // this machine's address, for x-forwarded-for
	calls    call.Caller                 // of filters

	dateAt int64
	date   []byte

	bufA, bufB, bufC []byte
	joined           []byte
}

func newLocal(o *Options, i int) *local {
	l := &local{worker: o.Workers[i], index: i, clusters: o.Clusters.Local(i), set: o.Sets[i], heads: &httpmsg.Pool{}, streams: &h2.Pool{},
		rnd: rand.NewPCG(rand.Uint64(), rand.Uint64()), groups: make(map[string]*telemetry.Group), retired: make(map[string]bool), own: o.LocalAddress}
	l.calls = call.Caller{Worker: l.worker, Clusters: l.clusters, Own: l.own, Random: l.rnd}
	l.log = telemetry.Writer{Worker: i, Format: telemetry.NewFormatter(o.Env)}
	l.reap.Run = l.recycle
	l.worker.OnTrim(func() { l.free, *l.heads, *l.streams = nil, httpmsg.Pool{}, h2.Pool{} })
	l.countCodecs()
	return l
}

// countCodecs shows the statistics of the codecs, once a connection used them.
func (l *local) countCodecs() {
	l.set.Add("http1", "", nil).More = func(emit func(string, uint64, telemetry.Kind)) {
		if l.codec1.Used {
			l.codec1.Each(func(name string, v uint64) { emit(name, v, telemetry.Counter) })
		}
	}
	l.set.Add("http2", "", nil).More = func(emit func(string, uint64, telemetry.Kind)) {
		if l.codec2.Used {
			l.codec2.Each(func(name string, v uint64) { emit(name, v, telemetry.Counter) })
		}
	}
}

// take gives a request object; done with release.
func (l *local) take() *request {
	if n := len(l.free); n > 0 {
		r := l.free[n-1]
		l.free = l.free[:n-1]
		return r
	}
	return newRequest(l)
}

// release gives a request back at the end of the turn: callers further up the
// stack may still hold it.
func (l *local) release(r *request) {
	l.over = append(l.over, r)
	l.worker.Later(&l.reap)
}

func (l *local) recycle() {
	for i, r := range l.over {
		r.clear()
		if len(l.free) < 4096 {
			l.free = append(l.free, r)
		}
		l.over[i] = nil
	}
	l.over = l.over[:0]
}

// dateNow is the value of a date header.
func (l *local) dateNow() []byte {
	if s := l.worker.Wall().Unix(); s != l.dateAt {
		l.dateAt = s
		l.date = l.worker.Wall().UTC().AppendFormat(l.date[:0], "Mon, 02 Jan 2006 15:04:05 GMT")
	}
	return l.date
}

func (l *local) uuid() (u [16]byte) {
	a, b := l.rnd.Uint64(), l.rnd.Uint64()
	for i := range 8 {
		u[i], u[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u
}

// group gives the counters of a stat_prefix, shared by its connection managers.
func (l *local) group(prefix string) *telemetry.Group {
	g := l.groups[prefix]
	if g == nil {
		g = l.set.Add("http", prefix, httpStats())
		l.groups[prefix] = g
	}
	return g
}

// retire gives up the groups whose stat_prefix isn't in use any more.
func (l *local) retire(used map[string]bool) {
	for prefix, g := range l.groups {
		if used[prefix] {
			delete(l.retired, prefix)
			continue
		}
		l.retired[prefix] = true
		l.drop(prefix, g)
	}
}

// drop removes a retired group that has no connection left.
func (l *local) drop(prefix string, g *telemetry.Group) {
	if l.retired[prefix] && g.Values[cxActive] == 0 && l.groups[prefix] == g {
		l.set.Remove(g)
		delete(l.groups, prefix)
		delete(l.retired, prefix)
	}
}

func ms(d time.Duration) int64 { return int64(d / time.Millisecond) }
