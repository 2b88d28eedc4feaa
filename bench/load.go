package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// loadSpec is one load: what is sent, over how many connections, for how long.
type loadSpec struct {
	Kind     string // h1, h2, grpc, pingpong, bulk, idle, handshake
	To       string
	Conns    int
	Streams  int     // h2 and grpc: concurrent streams a connection
	Rate     float64 // units a second; 0: closed loop
	Size     int     // bytes of a message or body
	Warm     time.Duration
	Length   time.Duration
	CertDir  string // client.pem, client.key, ca.pem: TLS
	Interval time.Duration
}

func (s *loadSpec) flags(f *flag.FlagSet) {
	f.StringVar(&s.Kind, "kind", "h1", "h1, h2, grpc, pingpong, bulk, idle or handshake")
	f.StringVar(&s.To, "to", "", "address of the proxy")
	f.IntVar(&s.Conns, "conns", 32, "connections")
	f.IntVar(&s.Streams, "streams", 1, "streams a connection")
	f.Float64Var(&s.Rate, "rate", 0, "units a second; 0 sends as fast as answers come")
	f.IntVar(&s.Size, "size", 1024, "bytes of a message")
	f.DurationVar(&s.Warm, "warm", 500*time.Millisecond, "time before counting starts")
	f.DurationVar(&s.Length, "length", 3*time.Second, "time that is counted")
	f.StringVar(&s.CertDir, "certs", "", "folder with client.pem, client.key and ca.pem: use TLS")
}

// loadResult is what a load process prints as JSON.
type loadResult struct {
	Units  uint64 // requests, messages, bytes (bulk), handshakes or connections
	Errors uint64
	P50    float64 // microseconds; from the intended send time with a rate
	P99    float64
	P999   float64
	Lag    float64 // p99 of the client's own lateness, microseconds
	Error  string  // the first one
}

// tally collects a load's results from its connections.
type tally struct {
	start, end time.Time
	units      atomic.Uint64
	errors     atomic.Uint64
	mu         sync.Mutex
	latency    []int64
	lag        []int64
	first      error
}

func (t *tally) counts(now time.Time) bool { return now.After(t.start) && now.Before(t.end) }

func (t *tally) fail(err error) {
	t.errors.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = err
	}
}

func (t *tally) merge(latency, lag []int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latency = append(t.latency, latency...)
	t.lag = append(t.lag, lag...)
}

func quantile(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))]) / 1000
}

func (t *tally) result() loadResult {
	slices.Sort(t.latency)
	slices.Sort(t.lag)
	r := loadResult{
		Units: t.units.Load(), Errors: t.errors.Load(),
		P50: quantile(t.latency, .5), P99: quantile(t.latency, .99), P999: quantile(t.latency, .999), Lag: quantile(t.lag, .99),
	}
	if t.first != nil {
		r.Error = t.first.Error()
	}
	return r
}

// load runs s and prints "go" on out when counting starts, then the result.
// The parent reads the proxy's CPU at both moments.
func load(ctx context.Context, s loadSpec, out io.Writer) error {
	work, ok := map[string]func(*loadSpec, *tally, int, net.Conn) error{
		"h1": h1Load, "h2": h2Load, "grpc": h2Load, "pingpong": pingPong, "bulk": bulk, "idle": idle,
	}[s.Kind]
	if !ok {
		return fmt.Errorf("unknown load %q", s.Kind)
	}
	t := &tally{start: time.Now().Add(s.Warm)}
	t.end = t.start.Add(s.Length)
	var wg sync.WaitGroup
	for i := range s.Conns {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(t.end.Add(10 * time.Second))
		wg.Go(func() {
			if err := work(&s, t, i, c); err != nil {
				t.fail(err)
			}
		})
	}
	time.Sleep(time.Until(t.start))
	fmt.Fprintln(out, "go")
	time.Sleep(time.Until(t.end))
	fmt.Fprintln(out, "stop")
	wg.Wait()
	return json.NewEncoder(out).Encode(t.result())
}

func (s *loadSpec) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", s.To)
	if err != nil || s.CertDir == "" {
		return c, err
	}
	cert, err := tls.LoadX509KeyPair(s.CertDir+"/client.pem", s.CertDir+"/client.key")
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(s.CertDir + "/ca.pem")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	tc := tls.Client(c, &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "server.example"})
	return tc, tc.HandshakeContext(ctx)
}

// pacer spaces units of one connection in an open loop; the zero value doesn't wait.
type pacer struct {
	next time.Time
	gap  time.Duration
}

func newPacer(s *loadSpec, i int) pacer {
	if s.Rate == 0 {
		return pacer{}
	}
	gap := time.Duration(float64(time.Second) * float64(s.Conns) / s.Rate)
	return pacer{next: time.Now().Add(gap * time.Duration(i) / time.Duration(s.Conns)), gap: gap}
}

// wait returns the intended send time and how late the client is.
func (p *pacer) wait() (intended time.Time, late time.Duration) {
	if p.gap == 0 {
		return time.Now(), 0
	}
	intended = p.next
	p.next = p.next.Add(p.gap)
	if d := time.Until(intended); d > 0 {
		time.Sleep(d)
	}
	return intended, time.Since(intended)
}

// units runs one until the end and records each.
func units(s *loadSpec, t *tally, i int, one func() error) error {
	var latency, lag []int64
	defer func() { t.merge(latency, lag) }()
	for p := newPacer(s, i); time.Now().Before(t.end); {
		sent, late := p.wait()
		if err := one(); err != nil {
			return err
		}
		if now := time.Now(); t.counts(now) {
			t.units.Add(1)
			latency = append(latency, int64(now.Sub(sent)))
			if s.Rate > 0 {
				lag = append(lag, int64(late))
			}
		}
	}
	return nil
}

func pingPong(s *loadSpec, t *tally, i int, c net.Conn) error {
	msg, buf := make([]byte, s.Size), make([]byte, s.Size)
	return units(s, t, i, func() error {
		if _, err := c.Write(msg); err != nil {
			return err
		}
		_, err := io.ReadFull(c, buf)
		return err
	})
}

// bulk reads from a source back end; units are bytes.
func bulk(_ *loadSpec, t *tally, _ int, c net.Conn) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := c.Read(buf)
		now := time.Now()
		if t.counts(now) {
			t.units.Add(uint64(n))
		}
		if now.After(t.end) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// idle makes one exchange and then holds the connection; units are connections.
func idle(s *loadSpec, t *tally, _ int, c net.Conn) error {
	msg := make([]byte, s.Size)
	if _, err := c.Write(msg); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, msg); err != nil {
		return err
	}
	t.units.Add(1)
	time.Sleep(time.Until(t.end))
	return nil
}
