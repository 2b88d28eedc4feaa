package relay

import (
	"bufio"
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
	"sluice/listener/tcpproxy"
	"sluice/upstream"
)

// rig is a listening socket whose connections a tcpproxy takes, with one
// cluster "c" at an address.
type rig struct {
	t       *testing.T
	set     *telemetry.Set
	post    func(func())
	reports *Reports
	mu      sync.Mutex
	records []*tcpproxy.Record
}

func serve(t *testing.T, f *config.TCPProxy, change func(c *config.Cluster), to string) (*rig, netip.AddrPort) {
	t.Helper()
	w, err := worker.New(worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &rig{t: t, set: telemetry.NewSet(), post: w.Post}
	clusters := upstream.New(upstream.Options{Workers: []*worker.Worker{w}, Sets: []*telemetry.Set{r.set}})
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	wg.Go(func() { clusters.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	c := &config.Cluster{Meta: config.Meta{Name: "c"}, ClusterOptions: &config.ClusterOptions{ConnectTimeout: time.Second}}
	for i := range c.Breakers {
		c.Breakers[i] = config.Breaker{Connections: 100, Pending: 100, Requests: 100, Retries: 3, Pools: config.Unlimited, PerHostConnections: config.Unlimited}
	}
	c.Load = &config.LoadAssignment{Localities: []config.Locality{{Endpoints: []config.Endpoint{{Address: config.Address{IP: netip.MustParseAddrPort(to)}, Weight: 1}}}}}
	if change != nil {
		change(c)
	}
	if err := clusters.Apply(ctx, &config.Snapshot{Clusters: map[string]*config.Cluster{"c": c}}); err != nil {
		t.Fatal(err)
	}
	f.Cluster = "c"
	r.reports = NewReports(telemetry.NewFiles(1, time.Second, io.Discard, io.Discard), clusters, []*telemetry.Set{r.set}, func(string) string { return "" })
	fd, err := worker.OpenListener(netip.MustParseAddrPort("127.0.0.1:0"), "", worker.SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Post(func() {
		p := tcpproxy.New(w, f, tcpproxy.Options{Connect: Connect(clusters, nil), Began: r.reports.Began, Live: r.reports.Live, Log: func(x *tcpproxy.Record) {
			r.reports.Log(x)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.records = append(r.records, x)
		}})
		w.Listen(fd, func(fd int, peer netip.AddrPort) {
			d := &downstream.Connection{Src: peer, Dst: netip.MustParseAddrPort("10.0.0.2:80"), ID: 1, Start: w.Now(), Began: w.Wall().UnixNano()}
			d.Conn = w.Adopt(fd, idle{})
			p.Serve(d)
		})
	})
	return r, worker.SocketName(fd)
}

func (r *rig) record() *tcpproxy.Record {
	r.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		r.mu.Lock()
		if n := len(r.records); n > 0 {
			x := r.records[n-1]
			r.mu.Unlock()
			return x
		}
		r.mu.Unlock()
		if time.Now().After(end) {
			r.t.Fatal("no record")
		}
	}
}

func dial(t *testing.T, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn)
}

// tunnelServer answers a request head with f's text, and after 200 to CONNECT
// echoes until the client's end.
func tunnelServer(t *testing.T, answer string) (to string, asked chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked = make(chan string, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := bufio.NewReader(c)
				req, err := http.ReadRequest(b)
				if err != nil {
					return
				}
				asked <- fmt.Sprintf("%s %s x=%s", req.Method, req.Host, req.Header.Get("x"))
				io.WriteString(c, answer)
				io.Copy(c, b)
			}()
		}
	}()
	return l.Addr().String(), asked
}

func text(s string) *config.Format { return &config.Format{Items: []config.FormatItem{{Text: s}}} }

func TestTunnelOverHTTP1(t *testing.T) {
	for _, x := range []struct {
		name, answer, got, flags, reason string
	}{
		{"200 opens it", "HTTP/1.1 200 OK\r\n\r\n", "hello", "", ""},
		{"an informational answer says nothing", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "hello", "", ""},
		{"another status closes the client", "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", "", "UF,URX", "tunnel_response:403"},
		{"201 is another status", "HTTP/1.1 201 Created\r\n\r\n", "", "UF,URX", "tunnel_response:201"},
	} {
		to, asked := tunnelServer(t, x.answer)
		f := &config.TCPProxy{StatPrefix: "t", MaxConnectAttempts: 1, TunnelHost: text("target.example:443"), TunnelHeaders: []config.HeaderAppend{{Name: "x", Value: text("y")}}}
		r, at := serve(t, f, nil, to)
		c := dial(t, at)
		io.WriteString(c, "hello")
		got := make([]byte, 5)
		n, _ := io.ReadFull(c, got)
		got = got[:n]
		c.CloseWrite() // of HTTP/1 the end of both directions
		io.Copy(io.Discard, c)
		if a := <-asked; a != "CONNECT target.example:443 x=y" {
			t.Errorf("%s: asked %q", x.name, a)
		}
		rec := r.record()
		if string(got) != x.got || strings.Join(rec.Flags, ",") != x.flags || rec.TransportFailure != x.reason {
			t.Errorf("%s: %q, flags %v, reason %q", x.name, got, rec.Flags, rec.TransportFailure)
		}
	}
}

func TestProxyHeaderGoesAheadAndNamesTheClient(t *testing.T) {
	for _, x := range []struct {
		name   string
		header *config.ProxyHeader
		want   string // %d is the client's port, in text or as two bytes
	}{
		{"version 1", &config.ProxyHeader{Version: 1}, "PROXY TCP4 127.0.0.1 10.0.0.2 %d 80\r\nhello"},
		{"version 2 with a TLV", &config.ProxyHeader{Version: 2, Added: []config.TLV{{Type: 0xE0, Value: []byte("v")}}}, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x10\x7f\x00\x00\x01\x0a\x00\x00\x02%s\x00\x50\xe0\x00\x01vhello"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got := make(chan string, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			c.Close()
			got <- string(b)
		}()
		_, at := serve(t, &config.TCPProxy{StatPrefix: "t"}, func(c *config.Cluster) { c.ProxyProtocol = x.header }, l.Addr().String())
		c := dial(t, at)
		io.WriteString(c, "hello")
		c.CloseWrite()
		port := c.LocalAddr().(*net.TCPAddr).Port
		want := strings.ReplaceAll(x.want, "%s", string([]byte{byte(port >> 8), byte(port)}))
		want = strings.ReplaceAll(want, "%d", fmt.Sprint(port))
		if g := <-got; g != want {
			t.Errorf("%s: %q, want %q", x.name, g, want)
		}
	}
}

// echo serves connections that give back what they get.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().String()
}

func TestLiveConnectionsAreCountedAtAScrapeAndOnce(t *testing.T) {
	w := &telemetry.Registry{}
	r, at := serve(t, &config.TCPProxy{StatPrefix: "t"}, nil, echo(t))
	w.Register(r.post, r.set)
	c := dial(t, at)
	io.WriteString(c, "hello")
	io.ReadFull(c, make([]byte, 5))
	for _, end := range []bool{false, false, true} {
		if end {
			c.Close()
			r.record()
		}
		got := map[string]uint64{}
		for _, m := range w.Gather(context.Background()) {
			got[m.Name] = m.Value
		}
		for name, want := range map[string]uint64{"tcp.t.downstream_cx_total": 1, "tcp.t.downstream_cx_rx_bytes_total": 5, "tcp.t.downstream_cx_tx_bytes_total": 5,
			"cluster.c.upstream_cx_rx_bytes_total": 5, "cluster.c.upstream_cx_tx_bytes_total": 5} {
			if got[name] != want {
				t.Errorf("ended %v: %s is %d, want %d", end, name, got[name], want)
			}
		}
	}
}
