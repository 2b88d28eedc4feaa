// Package load is the load generator: one epoll loop for plaintext, a goroutine
// a connection for TLS, the same protocol engines on both. With a rate it is an
// open loop: units have intended times, fixed before the run, and every latency
// counts from there. It reads the processor accounts itself at both ends of the
// measured time, because nobody else on its core would be in time.
package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"sluice/bench/machine"
	"sluice/bench/stat"
)

// Spec is one load: what is sent, over how many connections, for how long.
type Spec struct {
	Kind    string // h1, h2, grpc, stream, pingpong, down, up, short, handshake, resume, idle, idle-http
	To      string // address and port
	Conns   int
	Streams int     // h2, grpc and stream: concurrent streams a connection
	Rate    float64 // units a second; 0: closed loop
	Size    int     // bytes of a message or body
	Idle    int     // connections that are opened first and then only held
	Warm    time.Duration
	Length  time.Duration
	Certs   string // folder with client.pem, client.key and ca.pem: TLS
	Watch   machine.Account
	Origin  int // process of the back end, 0 for none
	PID     int // process whose memory is read (idle)
	Steps   []int
	Hold    time.Duration // idle: from the last connection to the reading of memory
}

// Result is what a load process prints as JSON.
type Result struct {
	Units      uint64 // requests, messages, bytes (down, up), connections
	Errors     uint64
	Error      string   // the first one
	Latency    []uint32 // sparse histogram
	Max        float64  // microseconds
	Proxy      machine.CPU
	Conditions stat.Conditions
	Memory     []float64 // KB a connection at each of Steps
}

// Run makes the load and prints its result.
func Run(ctx context.Context, s Spec, out io.Writer) error {
	debug.SetGCPercent(400)
	to, err := netip.ParseAddrPort(s.To)
	if err != nil {
		return fmt.Errorf("-to: %w", err)
	}
	var r Result
	switch {
	case strings.HasPrefix(s.Kind, "idle"):
		r, err = hold(ctx, s)
	case s.Kind == "handshake" || s.Kind == "resume":
		r, err = handshakes(ctx, s)
	case s.Certs != "":
		r, err = overTLS(ctx, s)
	default:
		r, err = onLoop(ctx, s, to)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// window is the measured time and what was read at its start.
type window struct {
	spec                  Spec
	began                 int64
	proxy, client, origin machine.CPU
	cores                 machine.Cores
}

func self() machine.Account { return machine.OfProcesses(os.Getpid()) }

func (w *window) open(s Spec) (err error) {
	w.spec, w.began = s, machine.Monotonic()
	return w.read(&w.proxy, &w.client, &w.origin, &w.cores)
}

func (w *window) read(proxy, client, origin *machine.CPU, cores *machine.Cores) (err error) {
	if w.spec.Watch != "" {
		if *proxy, err = w.spec.Watch.Read(); err != nil {
			return err
		}
	}
	*cores = machine.ReadCores()
	if w.spec.Origin > 0 {
		if *origin, err = machine.OfProcesses(w.spec.Origin).Read(); err != nil {
			return err
		}
	}
	*client, err = self().Read()
	return err
}

// close fills in what was used while the window was open.
func (w *window) close(r *Result) error {
	var proxy, client, origin machine.CPU
	var cores machine.Cores
	if err := w.read(&proxy, &client, &origin, &cores); err != nil {
		return err
	}
	ns := float64(machine.Monotonic() - w.began)
	r.Proxy = proxy.Sub(w.proxy)
	used := cores.Sub(w.cores)
	c, o := client.Sub(w.client).Total, origin.Sub(w.origin).Total
	r.Conditions = stat.Conditions{
		Seconds: ns / 1e9, Client: c / ns, Origin: o / ns, Core0: used.Busy[0] / ns, Steal: used.Steal / ns / 2,
		Foreign0: max(0, (used.Busy[0]-c-o)/ns), Foreign1: max(0, (used.Busy[1]-r.Proxy.Total)/ns),
		OpenLoop: w.spec.Rate > 0, Accounted: cores.Known, ProxyAlone: w.spec.Watch != "",
	}
	return nil
}

// recorder counts finished units; it allocates nothing.
type recorder struct {
	counting bool
	units    uint64
	errors   uint64
	first    error
	latency  *stat.Histogram
	lag      *stat.Histogram
	clock    func() int64
}

func newRecorder(clock func() int64) *recorder {
	return &recorder{latency: stat.NewHistogram(), lag: stat.NewHistogram(), clock: clock}
}

// done counts a unit whose clock started at from.
func (r *recorder) done(from int64) {
	if r.counting {
		r.units++
		r.latency.Add(r.clock() - from)
	}
}

// moved counts bytes.
func (r *recorder) moved(n int) {
	if r.counting {
		r.units += uint64(n)
	}
}

func (r *recorder) fail(err error) {
	r.errors++
	if r.first == nil {
		r.first = err
	}
}

func (r *recorder) merge(o *recorder) {
	r.units += o.units
	r.errors += o.errors
	if r.first == nil {
		r.first = o.first
	}
	r.latency.Merge(o.latency)
	r.lag.Merge(o.lag)
}

func (r *recorder) into(out *Result) {
	out.Units, out.Errors, out.Latency, out.Max = r.units, r.errors, r.latency.Sparse(), float64(r.latency.Max)/1000
	if r.first != nil {
		out.Error = r.first.Error()
	}
	out.Conditions.LagP99 = r.lag.Quantile(.99)
}
