package httpproxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/upstream"
)

// bench is a whole proxy with one worker: a listener, a connection manager,
// clusters, and an access log in memory.
type bench struct {
	t        testing.TB
	worker   *worker.Worker
	clusters *upstream.Clusters
	server   *Server
	files    *telemetry.Files
	registry *telemetry.Registry
	log      *lockedBuffer
	addr     string
	ctx      context.Context
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testLog writes METHOD PATH CODE FLAGS DETAILS ATTEMPTS.
func testLog() *config.AccessLog {
	op := func(op, arg string) config.FormatItem { return config.FormatItem{Op: op, Arg: arg} }
	sp := config.FormatItem{Text: " "}
	return &config.AccessLog{Sink: &config.FileLog{Path: "/dev/stdout", Text: &config.Format{Items: []config.FormatItem{
		op("REQ", ":method"), sp, op("REQ", ":path"), sp, op("RESPONSE_CODE", ""), sp, op("RESPONSE_FLAGS", ""), sp,
		op("RESPONSE_CODE_DETAILS", ""), sp, op("UPSTREAM_REQUEST_ATTEMPT_COUNT", ""), {Text: "\n"}}}}}
}

func hcm(routes ...*config.Route) *config.HTTPConnectionManager {
	return &config.HTTPConnectionManager{StatPrefix: "in", GenerateRequestID: true, HTTP1: config.HTTP1Options{AllowAbsoluteURL: true},
		AccessLogs: []*config.AccessLog{testLog()}, DelayedCloseTimeout: 50 * time.Millisecond,
		Routes: &config.RouteConfiguration{VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: routes, RetryBufferLimit: -1}}}}
}

func to(prefix, cluster string) *config.Route {
	return &config.Route{Match: config.RouteMatch{Path: prefix}, Action: &config.RouteAction{Cluster: cluster, Timeout: 5 * time.Second}, RetryBufferLimit: -1}
}

func static(name string, addrs ...string) *config.Cluster {
	c := &config.Cluster{Meta: config.Meta{Name: name}, ClusterOptions: &config.ClusterOptions{ConnectTimeout: 2 * time.Second, LB: config.RoundRobin}, Load: &config.LoadAssignment{}}
	c.LBCommon.PanicThreshold = 50
	l := config.Locality{}
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, config.Endpoint{Address: config.Address{IP: netip.MustParseAddrPort(a)}, Weight: 1})
	}
	c.Load.Localities = []config.Locality{l}
	return c
}

func start(t testing.TB, m *config.HTTPConnectionManager, clusters ...*config.Cluster) *bench {
	t.Helper()
	w, err := worker.New(worker.Options{VisibleWait: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	set := telemetry.NewSet()
	b := &bench{t: t, worker: w, log: &lockedBuffer{}, registry: &telemetry.Registry{}, ctx: ctx}
	b.registry.Register(w.Post, set)
	b.files = telemetry.NewFiles(1, time.Millisecond, b.log, io.Discard)
	b.clusters = upstream.New(upstream.Options{Workers: []*worker.Worker{w}, Sets: []*telemetry.Set{set}})
	b.server = New(Options{Workers: []*worker.Worker{w}, Sets: []*telemetry.Set{set}, Clusters: b.clusters, Files: b.files,
		Tracer: func(t *config.Tracing) *telemetry.Tracer {
			return &telemetry.Tracer{Config: t, Node: "node", Send: func(int, []byte) {}}
		},
		LocalAddress: netip.MustParseAddr("192.0.2.1")})
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{w.Run, b.clusters.Run, b.files.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	b.apply(clusters...)
	p, err := b.server.Build(m, &config.Listener{Meta: config.Meta{Name: "l"}, BufferLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b.listen(p)
	return b
}

func (b *bench) apply(clusters ...*config.Cluster) {
	b.t.Helper()
	s := &config.Snapshot{Clusters: map[string]*config.Cluster{}}
	for _, c := range clusters {
		s.Clusters[c.Name] = c
	}
	if err := b.clusters.Apply(b.ctx, s); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) listen(p *Proxy) {
	b.t.Helper()
	fd, err := worker.OpenListener(netip.MustParseAddrPort("127.0.0.1:0"), "", worker.SocketOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.addr = worker.SocketName(fd).String()
	done := make(chan error, 1)
	var id uint64
	b.worker.Post(func() {
		_, err := b.worker.Listen(fd, func(fd int, peer netip.AddrPort) {
			id++
			c := &downstream.Connection{ID: id, Src: peer, Start: b.worker.Now(), Began: b.worker.Wall().UnixNano()}
			c.Conn = b.worker.Adopt(fd, waitHandler{})
			c.Dst = c.Conn.LocalAddr()
			c.Port = c.Dst.Port()
			p.Serve(c)
		})
		done <- err
	})
	if err := <-done; err != nil {
		b.t.Fatal(err)
	}
}

type waitHandler struct{}

func (waitHandler) OnData(*worker.Conn, []byte) int { return 0 }
func (waitHandler) OnEOF(*worker.Conn)              {}
func (waitHandler) OnDrain(*worker.Conn)            {}
func (waitHandler) OnClose(*worker.Conn, error)     {}
func (waitHandler) OnConnect(*worker.Conn, error)   {}

// origin is a scripted HTTP/1 upstream.
func origin(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return l.Addr().String()
}

// closed is an address where nobody listens.
func closed(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// raw sends bytes and reads one response per method given.
func (b *bench) raw(send string, methods ...string) (out []string) {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		b.t.Fatal(err)
	}
	if _, err := io.WriteString(c, send); err != nil {
		b.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for _, m := range methods {
		resp, err := http.ReadResponse(r, &http.Request{Method: m})
		if err != nil {
			return append(out, "error: "+err.Error())
		}
		body, err := io.ReadAll(resp.Body)
		text := fmt.Sprintf("%d %s", resp.StatusCode, body)
		if err != nil {
			text += " cut"
		}
		out = append(out, text)
	}
	return out
}

func (b *bench) get(path string) string {
	b.t.Helper()
	return b.raw("GET "+path+" HTTP/1.1\r\nhost: svc.test\r\n\r\n", "GET")[0]
}

// logged waits for n lines of the access log.
func (b *bench) logged(n int) []string {
	b.t.Helper()
	for range 500 {
		if s := b.log.String(); strings.Count(s, "\n") >= n {
			return strings.Split(strings.TrimSpace(s), "\n")
		}
		time.Sleep(2 * time.Millisecond)
	}
	b.t.Fatalf("%d log lines never came: %q", n, b.log.String())
	return nil
}

func (b *bench) stat(name string) uint64 {
	b.t.Helper()
	for _, m := range b.registry.Gather(b.ctx) {
		if m.Name == name {
			return m.Value
		}
	}
	b.t.Fatalf("no metric %s", name)
	return 0
}

// client is a connection to the bench.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (b *bench) dial() *client {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		b.t.Fatal(err)
	}
	return &client{c, b.t, bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads until want has come.
func (c *client) expect(want string) {
	c.t.Helper()
	var got []byte
	for !strings.Contains(string(got), want) {
		x, err := c.r.ReadByte()
		if err != nil {
			c.t.Fatalf("%q came before %v, want %q", got, err, want)
		}
		got = append(got, x)
	}
}

// await waits for a metric to have a value.
func (b *bench) await(name string, want uint64) {
	b.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); b.stat(name) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s never became %d", name, want)
		}
	}
}
