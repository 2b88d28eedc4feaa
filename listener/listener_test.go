package listener

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/config"
	"sluice/internal/tlsconn"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/tcpproxy"
)

// rig is two workers, their listeners, and an echo upstream.
type rig struct {
	t       *testing.T
	l       *Listeners
	ctx     context.Context
	up      string
	mu      sync.Mutex
	refused []string
	records []*tcpproxy.Record
	pool    *tlsconn.Pool
}

// dialing is a connection to an upstream on its way.
type dialing struct {
	conn *worker.Conn
	done func(tcpproxy.Upstream, error)
}

func (d *dialing) OnData(*worker.Conn, []byte) int { return 0 }
func (d *dialing) OnEOF(*worker.Conn)              {}
func (d *dialing) OnDrain(*worker.Conn)            {}
func (d *dialing) OnClose(*worker.Conn, error)     {}
func (d *dialing) OnConnect(c *worker.Conn, e error) {
	if e != nil {
		d.done(tcpproxy.Upstream{}, &tcpproxy.Failure{Flag: "UF", Reason: "delayed connect error: " + e.Error()})
		return
	}
	d.done(tcpproxy.Upstream{Conn: c}, nil)
}

// connect connects every cluster to r.up; "none" has no host, "closed" a closed port.
func (r *rig) connect(d *downstream.Connection, q *tcpproxy.Request, done func(tcpproxy.Upstream, error)) func() {
	w := d.Conn.Worker()
	if q.Cluster == "none" {
		w.Later(&worker.Deferred{Run: func() { done(tcpproxy.Upstream{}, &tcpproxy.Failure{Flag: "UH", Cluster: "none"}) }})
		return func() {}
	}
	addr := r.up
	if q.Cluster == "closed" {
		addr = "127.0.0.1:1"
	}
	x := &dialing{done: done}
	x.conn = w.Dial(netip.MustParseAddrPort(addr), "", worker.DialOptions{Timeout: time.Second}, x)
	return x.conn.Close
}

// echoUpstream answers with what it gets; the first byte may ask for more:
// 'R' resets, 'F' says "bye" and ends its side.
func echoUpstream(t *testing.T) string {
	return upstream(t, func(c *net.TCPConn) {
		defer c.Close()
		b := make([]byte, 1)
		if n, _ := c.Read(b); n == 0 {
			return
		}
		switch b[0] {
		case 'R':
			io.WriteString(c, "half")
			time.Sleep(20 * time.Millisecond)
			c.SetLinger(0)
		case 'F':
			io.WriteString(c, "bye")
			c.CloseWrite()
			io.Copy(io.Discard, c)
		default:
			c.Write(b)
			io.Copy(c, c)
		}
	})
}

func newRig(t *testing.T, change func(o *Options)) *rig {
	t.Helper()
	r := &rig{t: t, up: echoUpstream(t), pool: tlsconn.NewPool()}
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = ctx
	o := Options{Handshakes: r.pool, DrainTime: 200 * time.Millisecond}
	var wg sync.WaitGroup
	for i := range 2 {
		w, err := worker.New(worker.Options{Index: i})
		if err != nil {
			t.Fatal(err)
		}
		o.Workers = append(o.Workers, w)
		wg.Add(1)
		go func() { defer wg.Done(); w.Run(ctx) }()
	}
	o.TCP = tcpproxy.Options{Connect: r.connect, Log: func(x *tcpproxy.Record) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.records = append(r.records, x)
	}}
	o.Closed = func(c *downstream.Connection) {
		n := c.Notes()
		if c.Served || n.Flag == "" && n.TransportFailure == "" && n.Termination == "" {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refused = append(r.refused, strings.TrimSpace(n.Flag+" "+n.Details+" sni="+c.SNI+" "+n.TransportFailure))
	}
	if change != nil {
		change(&o)
	}
	r.l = New(o)
	t.Cleanup(func() { cancel(); wg.Wait(); r.pool.Wait() })
	return r
}

// recorded waits for n records and takes them.
func (r *rig) recorded(n int) []*tcpproxy.Record {
	r.t.Helper()
	waitFor(r.t, "records", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.records) == n })
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.records
	r.records = nil
	return x
}

// refusals waits for n refusals.
func (r *rig) refusals(n int) []string {
	r.t.Helper()
	waitFor(r.t, "refusals", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.refused) == n })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

func (r *rig) apply(list ...*config.Listener) {
	r.t.Helper()
	if err := r.l.Apply(r.ctx, list); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) dial(name string) *net.TCPConn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.l.Bound(name)[0].String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn)
}

func listenerOf(name string, hash uint64, chains ...*config.FilterChain) *config.Listener {
	return &config.Listener{Meta: config.Meta{Name: name, Hash: hash}, Address: config.Address{IP: netip.MustParseAddrPort("127.0.0.1:0")}, BindToPort: true, ReusePort: true, Chains: chains}
}

func chainOf(name string, f ...config.NetworkFilter) *config.FilterChain {
	h := uint64(7)
	for _, b := range fmt.Sprintf("%s %+v", name, f) {
		h = h*31 + uint64(b)
	}
	return &config.FilterChain{Name: name, Hash: h, Filters: f}
}

func says(text string) *config.DirectResponse { return &config.DirectResponse{Body: []byte(text)} }

func answer(t *testing.T, c net.Conn, send string) string {
	t.Helper()
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil && len(b) == 0 {
		return err.Error()
	}
	return string(b)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

func TestTCPProxyRelaysBothWays(t *testing.T) {
	r := newRig(t, nil)
	r.apply(listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"})))
	for _, size := range []int{10, 100 << 10, 8 << 20} { // the last one splices
		c := r.dial("l")
		want := bytes.Repeat([]byte("0123456789"), size/10)
		go func() { c.Write(want); c.CloseWrite() }()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d of %d bytes, %v", len(got), len(want), err)
		}
	}
	records := r.recorded(3)
	for i, size := range []uint64{10, 102400, 8388600} {
		if x := records[i]; x.Received != size/10*10 || x.Sent != x.Received || len(x.Flags) != 0 || x.DownstreamClose != "Normal" {
			t.Errorf("record %d: %+v", i, x)
		}
	}
	waitFor(t, "no open connection", func() bool { n, err := r.l.Open(r.ctx); return n == 0 && err == nil })
}

func TestTCPProxyEnds(t *testing.T) {
	r := newRig(t, nil)
	r.apply(
		listenerOf("a", 1, chainOf("c", &config.TCPProxy{Cluster: "a", IdleTimeout: time.Hour})),
		listenerOf("idle", 1, chainOf("c", &config.TCPProxy{Cluster: "a", IdleTimeout: 100 * time.Millisecond})),
		listenerOf("max", 1, chainOf("c", &config.TCPProxy{Cluster: "a", MaxConnectionDuration: 150 * time.Millisecond})),
		listenerOf("none", 1, chainOf("c", &config.TCPProxy{Cluster: "none"})),
		listenerOf("closed", 1, chainOf("c", &config.TCPProxy{Cluster: "closed", MaxConnectAttempts: 3})),
	)
	for _, c := range []struct {
		name, to, send, got, flags, end string
		attempts                        int
	}{
		{"the server's end first", "a", "F", "bye", "", "Normal Normal", 1},
		{"the server resets after data", "a", "R", "half", "UR", "LocalReset RemoteReset", 1},
		{"idle", "idle", "x", "x", "", "Normal Normal", 1},
		{"too old", "max", "x", "x", "DT", "Normal Normal", 1},
		{"no host", "none", "", "", "UH", "Normal Normal", 0},
		{"refused, three attempts", "closed", "", "", "UF,URX", "Normal Normal", 3},
	} {
		conn := r.dial(c.to)
		io.WriteString(conn, c.send)
		b, err := io.ReadAll(conn)
		if string(b) != c.got || (err != nil) != (c.flags == "UR") && c.got != "" {
			t.Errorf("%s: %q %v", c.name, b, err)
		}
		conn.Close()
		x := r.recorded(1)[0]
		if f := strings.Join(x.Flags, ","); f != c.flags || x.DownstreamClose+" "+x.UpstreamEnds != c.end || x.Attempts != c.attempts {
			t.Errorf("%s: flags %q, %s %s, %d attempts", c.name, f, x.DownstreamClose, x.UpstreamEnds, x.Attempts)
		}
	}
}

func TestClientResetReachesTheServer(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	end := make(chan error, 1)
	go func() {
		c, _ := l.Accept()
		_, err := io.Copy(io.Discard, c)
		end <- err
	}()
	r := newRig(t, nil)
	r.up = l.Addr().String()
	r.apply(listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"})))
	c := r.dial("l")
	io.WriteString(c, "hello")
	time.Sleep(50 * time.Millisecond)
	c.SetLinger(0)
	c.Close()
	select {
	case err := <-end:
		if err == nil || !strings.Contains(err.Error(), "reset") {
			t.Errorf("server saw %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("server saw nothing")
	}
}

func TestAReaderThatStopsHoldsTheWriterBack(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			time.Sleep(3 * time.Second) // reads nothing
			c.Close()
		}
	}()
	r := newRig(t, nil)
	r.up = l.Addr().String()
	r.apply(listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"})))
	c := r.dial("l")
	c.SetWriteDeadline(time.Now().Add(700 * time.Millisecond))
	n, err := c.Write(make([]byte, 256<<20))
	if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(fmt.Sprint(err), "timeout") {
		t.Errorf("wrote %d bytes, %v: nothing held it back", n, err)
	}
}

func TestInspectorsChooseTheChain(t *testing.T) {
	r := newRig(t, nil)
	withMatch := func(c *config.FilterChain, m config.FilterChainMatch) *config.FilterChain { c.Match = m; return c }
	l := listenerOf("l", 1,
		withMatch(chainOf("http", says("http")), config.FilterChainMatch{TransportProtocol: "raw_buffer", ApplicationProtos: []string{"http/1.1", "h2c"}}),
		withMatch(chainOf("tls", says("tls")), config.FilterChainMatch{TransportProtocol: "tls", ServerNames: []string{"*.example"}}),
	)
	l.Filters = config.ListenerFilters{TLSInspector: &config.Inspector{}, HTTPInspector: &config.Inspector{}}
	r.apply(l)
	hello := func(name string) string {
		a, b := net.Pipe()
		go tls.Client(a, &tls.Config{ServerName: name}).Handshake()
		buf := make([]byte, 4096)
		n, _ := b.Read(buf)
		b.Close()
		return string(buf[:n])
	}
	for _, c := range []struct{ name, send, want string }{
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "http"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http"},
		{"TLS", hello("a.example"), "tls"},
	} {
		conn := r.dial("l")
		for i := range len(c.send) { // byte by byte
			if _, err := conn.Write([]byte(c.send[i : i+1])); err != nil {
				break
			}
		}
		if got, _ := io.ReadAll(conn); string(got) != c.want {
			t.Errorf("%s, %d bytes: got %q, want %q", c.name, len(c.send), got, c.want)
		}
	}
	answer(t, r.dial("l"), "\x00binary")
	r.refusals(1) // the next one's worker may be another, and faster
	answer(t, r.dial("l"), hello("other.org"))
	if x := r.refusals(2); x[0] != "NR filter_chain_not_found sni= TLS_error|error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER:TLS_error_end" || x[1] != "NR filter_chain_not_found sni=other.org" {
		t.Errorf("%q", x)
	}
}

func TestVirtualListenerHandsOff(t *testing.T) {
	r := newRig(t, nil)
	virtual := listenerOf("virtual", 1, chainOf("catchall", says("virtual")))
	virtual.UseOriginalDst = true
	virtual.Filters.ProxyProtocol = &config.ProxyProtocol{}
	inner := func(name, addr string) *config.Listener {
		l := listenerOf(name, 1, chainOf("c", says(name)))
		l.BindToPort = false
		l.Address.IP = netip.MustParseAddrPort(addr)
		return l
	}
	sniffed := inner("sniffed", "10.0.0.9:90")
	sniffed.Filters.HTTPInspector = &config.Inspector{}
	sniffed.Chains[0].Match.ApplicationProtos = []string{"http/1.1"}
	r.apply(virtual, inner("exact", "10.0.0.2:80"), inner("wild", "0.0.0.0:80"), sniffed)
	for dst, want := range map[string]string{"10.0.0.2 8080 80": "exact", "10.0.0.3 8080 80": "wild", "10.0.0.3 8080 81": "virtual", "10.0.0.9 8080 90": "sniffed"} {
		if got := answer(t, r.dial("virtual"), "PROXY TCP4 1.1.1.1 "+dst+"\r\nGET / HTTP/1.1\r\n\r\n"); got != want {
			t.Errorf("%s: got %q, want %q", dst, got, want)
		}
	}
}

func TestProxyHeaderIsNotCounted(t *testing.T) {
	r := newRig(t, nil)
	l := listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"}))
	l.Filters.ProxyProtocol = &config.ProxyProtocol{AllowWithoutHeader: true}
	r.apply(l)
	for _, c := range []struct{ header, src string }{{"PROXY TCP4 10.0.0.1 10.0.0.2 8080 80\r\n", "10.0.0.1:8080"}, {"", ""}} {
		conn := r.dial("l")
		io.WriteString(conn, c.header+"hello")
		conn.CloseWrite()
		if b, err := io.ReadAll(conn); string(b) != "hello" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		x := r.recorded(1)[0]
		if src := x.Downstream.Src.String(); x.Received != 5 || x.Sent != 5 || c.src != "" && src != c.src {
			t.Errorf("%d in, %d out, from %s", x.Received, x.Sent, src)
		}
	}
}

func TestListenerUpdates(t *testing.T) {
	r := newRig(t, nil)
	echoing := chainOf("stays", &config.EchoFilter{})
	echoing.Match.SourcePrefix = config.Prefixes{netip.MustParsePrefix("127.0.0.0/8")}
	going := chainOf("goes", &config.EchoFilter{})
	r.apply(listenerOf("l", 1, echoing, going), listenerOf("gone", 1, chainOf("x", &config.EchoFilter{})))
	at := r.l.Bound("l")[0]
	say := func(c net.Conn) error {
		if _, err := io.WriteString(c, "x"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	kept, dropped := r.dial("l"), r.dial("gone")
	if err := errors.Join(say(kept), say(dropped)); err != nil {
		t.Fatal(err)
	}
	l2 := listenerOf("l", 2, echoing)
	r.apply(l2)
	if r.l.Bound("l")[0] != at {
		t.Error("the socket changed")
	}
	if err := say(dropped); err != nil {
		t.Error("dropped before the drain time: ", err)
	}
	time.Sleep(300 * time.Millisecond)
	if err := say(kept); err != nil {
		t.Error("a connection on an unchanged chain: ", err)
	}
	if err := say(dropped); err == nil {
		t.Error("a connection of a removed listener outlived the drain time")
	}
	frame := listenerOf("l", 3, echoing)
	frame.StatPrefix = "other" // more than chains changed
	r.apply(frame)
	time.Sleep(300 * time.Millisecond)
	if err := say(kept); err == nil {
		t.Error("a connection of a changed listener outlived the drain time")
	}
	if err := say(r.dial("l")); err != nil {
		t.Error("a new connection: ", err)
	}
}

func TestBindErrorsAreReported(t *testing.T) {
	r := newRig(t, nil)
	other, _ := net.Listen("tcp", "127.0.0.1:0")
	taken := listenerOf("taken", 1, chainOf("c", says("x")))
	taken.Address.IP = netip.MustParseAddrPort(other.Addr().String())
	ok := listenerOf("ok", 1, chainOf("c", says("ok")))
	err := r.l.Apply(r.ctx, []*config.Listener{taken, ok})
	if err == nil || !strings.Contains(err.Error(), `listener "taken": address `+other.Addr().String()+": binding: address already in use") {
		t.Errorf("got %v", err)
	}
	if got := answer(t, r.dial("ok"), ""); got != "ok" {
		t.Errorf("the other listener says %q", got)
	}
	other.Close()
	r.apply(taken, ok) // tried again
	if got := answer(t, r.dial("taken"), ""); got != "x" {
		t.Errorf("got %q", got)
	}
}

func TestConnectionLimits(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxConnections = 2 })
	limited := listenerOf("limited", 1, chainOf("c", &config.EchoFilter{}))
	limited.MaxConnections = 1
	free := listenerOf("free", 1, chainOf("c", &config.EchoFilter{}))
	free.IgnoreGlobalCxLimit = true
	r.apply(limited, listenerOf("any", 1, chainOf("c", &config.EchoFilter{})), free)
	works := func(c net.Conn) bool {
		c.SetDeadline(time.Now().Add(2 * time.Second))
		io.WriteString(c, "x")
		_, err := io.ReadFull(c, make([]byte, 1))
		return err == nil
	}
	first := r.dial("limited")
	if !works(first) { // before the next is dialed: workers accept in any order
		t.Fatal("the first connection of a listener limited to one")
	}
	if works(r.dial("limited")) {
		t.Error("a second connection of a listener limited to one")
	}
	if !works(r.dial("any")) {
		t.Error("a second connection of two in all")
	}
	if works(r.dial("any")) || !works(r.dial("free")) {
		t.Error("the global limit")
	}
	first.Close()
	waitFor(t, "a place", func() bool { n, _ := r.l.Open(r.ctx); return n == 2 })
	if !works(r.dial("limited")) {
		t.Error("the place was not given back")
	}
}

func TestExactBalanceSpreadsConnectionsEvenly(t *testing.T) {
	var mu sync.Mutex
	var open []*downstream.Connection
	r := newRig(t, func(o *Options) {
		o.HTTP = func(*worker.Worker, *config.Listener, *config.FilterChain, *config.HTTPConnectionManager) downstream.Terminal {
			return terminalFunc(func(c *downstream.Connection) {
				mu.Lock()
				defer mu.Unlock()
				open = append(open, c)
				c.Conn.SetHandler(closeOnEOF{c})
			})
		}
	})
	byWorker := func(want int) (n [2]int) {
		waitFor(t, "connections", func() bool { mu.Lock(); defer mu.Unlock(); return len(open) == want })
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			n[c.Conn.Worker().Index()]++
		}
		return n
	}
	l := listenerOf("even", 1, chainOf("c", &config.HTTPConnectionManager{}))
	l.ExactBalance, l.ReusePort = true, true
	r.apply(l)
	var conns []*net.TCPConn
	for range 20 {
		conns = append(conns, r.dial("even"))
		if n := byWorker(len(conns)); n[0]-n[1] > 1 || n[1]-n[0] > 1 {
			t.Fatalf("%v of %d connections", n, len(conns))
		}
	}
	// What ends is counted: the places of one worker's connections go to new ones.
	mu.Lock()
	ended := map[string]bool{}
	for _, c := range open {
		if c.Conn.Worker().Index() == 0 && len(ended) < 6 {
			ended[c.Src.String()] = true
		}
	}
	open = nil
	mu.Unlock()
	for _, c := range conns {
		if ended[c.LocalAddr().String()] {
			c.Close()
		}
	}
	waitFor(t, "places", func() bool { n, _ := r.l.Open(r.ctx); return n == 14 })
	for range 6 {
		r.dial("even")
	}
	if n := byWorker(6); n != [2]int{6, 0} {
		t.Errorf("%v of the 6 after 6 of the first worker's ended", n)
	}
}

// TestGivenConnectionsAreUncountedAsTheyWereCounted, even if the listener has
// changed on the way to their worker.
func TestGivenConnectionsAreUncountedAsTheyWereCounted(t *testing.T) {
	var ended sync.WaitGroup
	ended.Add(1)
	r := newRig(t, func(o *Options) {
		o.Closed = func(*downstream.Connection) { ended.Done() }
		o.HTTP = func(*worker.Worker, *config.Listener, *config.FilterChain, *config.HTTPConnectionManager) downstream.Terminal {
			return terminalFunc(func(c *downstream.Connection) { c.Conn.SetHandler(closeOnEOF{c}) })
		}
	})
	before := listenerOf("l", 1, chainOf("c", &config.HTTPConnectionManager{}))
	before.ExactBalance, before.MaxConnections = true, 5
	r.apply(before)
	a := r.l.perW[0].byName["l"]
	after := listenerOf("l", 2, chainOf("c", &config.HTTPConnectionManager{}))
	r.apply(after)

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	here := netip.MustParseAddrPort("127.0.0.1:1")
	a.w.Post(func() {
		if !a.admitted() {
			t.Error("not admitted")
		}
		a.shared.balance.open[1]++ // as if the other worker's turn had come
		a.give(1, here, pair[0], here)
	})
	unix.Close(pair[1])
	ended.Wait()
	if n := a.shared.open.Load(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	if n := a.shared.balance.open; n[0] != 0 || n[1] != 0 {
		t.Errorf("the workers have %v", n)
	}
}

// closeOnEOF ends a connection with its peer.
type closeOnEOF struct{ c *downstream.Connection }

func (h closeOnEOF) OnData(_ *worker.Conn, b []byte) int { return len(b) }
func (h closeOnEOF) OnEOF(c *worker.Conn)                { c.Close() }
func (h closeOnEOF) OnDrain(*worker.Conn)                {}
func (h closeOnEOF) OnConnect(*worker.Conn, error)       {}
func (h closeOnEOF) OnClose(*worker.Conn, error)         { h.c.Gone() }

// drainerFunc is told of the beginning of a drain.
type drainerFunc func()

func (f drainerFunc) BeginDrain() { f() }
func (drainerFunc) EndDrain()     {}

func TestDrainTellsTerminals(t *testing.T) {
	told := make(chan string, 4)
	r := newRig(t, func(o *Options) {
		o.HTTP = func(w *worker.Worker, l *config.Listener, c *config.FilterChain, m *config.HTTPConnectionManager) downstream.Terminal {
			return terminalFunc(func(c *downstream.Connection) {
				c.Drainer = drainerFunc(func() { told <- "drain" })
				c.Conn.SetHandler(&leaving{c})
				told <- "serve"
			})
		}
	})
	r.apply(listenerOf("l", 1, chainOf("c", &config.HTTPConnectionManager{})))
	r.dial("l")
	if x := <-told; x != "serve" {
		t.Fatal(x)
	}
	if err := r.l.Drain(r.ctx, true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
		t.Error("an outbound listener drained with the inbound ones")
	case <-time.After(50 * time.Millisecond):
	}
	r.l.Drain(r.ctx, false)
	if x := <-told; x != "drain" {
		t.Fatal(x)
	}
}

func TestWhatDrainsIsCounted(t *testing.T) {
	r := newRig(t, nil)
	want := func(what string, s Stats) {
		t.Helper()
		got := r.l.Stats()
		got.CreateSuccess, got.CreateFailure = 0, 0
		if got != s {
			t.Errorf("%s: %+v, want %+v", what, got, s)
		}
	}
	a := chainOf("a", &config.EchoFilter{})
	a.Match.SourcePrefix = config.Prefixes{netip.MustParsePrefix("127.0.0.0/8")}
	r.apply(listenerOf("l", 1, a, chainOf("b", &config.EchoFilter{})), listenerOf("m", 1, chainOf("c", &config.EchoFilter{})))
	if got := r.l.Stats(); got.CreateSuccess != uint64(2*len(r.l.perW)) {
		t.Errorf("created %d", got.CreateSuccess)
	}
	want("nothing has changed", Stats{})
	r.apply(listenerOf("l", 2, a), listenerOf("m", 1, chainOf("c", &config.EchoFilter{})))
	want("one chain is gone", Stats{DrainingChains: 1})
	r.apply(listenerOf("l", 2, a))
	want("a listener too", Stats{DrainingChains: 1, Draining: 1})
	if got := r.l.Names(); len(got) != 1 || got[0] != "l" {
		t.Errorf("running: %v", got)
	}
	time.Sleep(250 * time.Millisecond)
	want("after the drain time", Stats{})
}

func TestClosedListenersStayClosed(t *testing.T) {
	r := newRig(t, nil)
	in := listenerOf("in", 1, chainOf("a", &config.EchoFilter{}))
	in.Direction = config.Inbound
	out := listenerOf("out", 1, chainOf("b", &config.EchoFilter{}))
	r.apply(in, out)
	at := r.l.Bound("in")[0].String()
	for range 2 { // twice counts once
		if err := r.l.Close(r.ctx, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.l.Stats().Stopped; got != 1 {
		t.Errorf("%d stopped, want the inbound one", got)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("the inbound listener accepts")
	}
	r.dial("out")
	moved := listenerOf("in", 2, chainOf("a", &config.EchoFilter{}))
	moved.Direction, moved.Backlog = config.Inbound, 5 // wants a new socket
	r.apply(moved, out)
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("a changed listener opened again")
	}
}

type terminalFunc func(c *downstream.Connection)

func (f terminalFunc) Serve(c *downstream.Connection) { f(c) }

func TestTLSChain(t *testing.T) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, _ := x509.ParseCertificate(der)
	secret := &config.Secret{Certificate: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}}
	r := newRig(t, func(o *Options) { o.Secrets = func(name string) *config.Secret { return secret } })
	c := chainOf("tls", &config.TCPProxy{Cluster: "a"})
	c.TLS = &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: []config.SecretRef{{Name: "default"}}}}
	l := listenerOf("l", 1, c)
	l.Filters.TLSInspector = &config.Inspector{}
	r.apply(l)
	conn, err := tls.Dial("tcp", r.l.Bound("l")[0].String(), &tls.Config{InsecureSkipVerify: true, ServerName: "A.example"})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	want := bytes.Repeat([]byte("0123456789"), 1<<17)
	go func() { conn.Write(want); conn.CloseWrite() }()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(want), err)
	}
	if x := r.recorded(1)[0]; x.Received != uint64(len(want)) || x.Downstream.TLS == nil || x.Downstream.SNI != "a.example" {
		t.Errorf("%+v", x)
	}
	// Plain bytes to the TLS chain: refused with a reason.
	answer(t, r.dial("l"), "GET / HTTP/1.1\r\n\r\n")
	if x := r.refusals(1); !strings.Contains(x[0], "HTTP_REQUEST") {
		t.Error(x)
	}
}
