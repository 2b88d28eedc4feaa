package tlsconn

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/worker"
)

// echoTLS is a crypto/tls echo server.
func echoTLS(t *testing.T, c *tls.Config) netip.AddrPort {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c)
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
			go func(c net.Conn) { io.Copy(c, c); c.Close() }(c)
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// once makes a connection, has five bytes echoed, and tells its state.
func (b *bench) once(t *testing.T, to netip.AddrPort, x *ClientContext) *State {
	t.Helper()
	end := make(chan outcome, 1)
	b.on(func() {
		b.w.Dial(to, "", worker.DialOptions{}, &peer{up: func(c *worker.Conn, err error) {
			if err != nil {
				end <- outcome{err: err}
				return
			}
			b.pool.Client(c, x, ClientOptions{}, 5*time.Second, func(s *State, err error) {
				if err != nil {
					end <- outcome{err: err}
					return
				}
				got := ""
				c.SetHandler(&peer{data: func(c *worker.Conn, p []byte) int {
					if got += string(p); got == "hello" {
						end <- outcome{state: s}
						c.Close()
					}
					return len(p)
				}, close: func(err error) {
					if err != nil {
						end <- outcome{err: err}
					}
				}})
				c.Write([]byte("hello"))
			})
		}})
	})
	select {
	case o := <-end:
		if o.err != nil {
			t.Fatal(o.err)
		}
		return o.state
	case <-time.After(10 * time.Second):
		t.Fatal("no end")
		return nil
	}
}

func TestClientResumesUntilItsSecretsChange(t *testing.T) {
	ca := newAuthority(t, "ca")
	server, client := ca.issue(t, leaf{id: "spiffe://td/server"}), ca.issue(t, leaf{id: "spiffe://td/client"})
	for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
		engines(t, func(t *testing.T, legacy bool) {
			serve := &tls.Config{Certificates: []tls.Certificate{*server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool, MaxVersion: version}
			to, other := echoTLS(t, serve), echoTLS(t, serve)
			b := newBench(t, legacy)
			secret := &config.Secret{Certificate: client}
			x := NewClientContext(&config.UpstreamTLS{MaxSessionKeys: 1, TLSParams: config.TLSParams{Max: tls.VersionTLS13,
				Certificates: []config.SecretRef{{Name: "default"}},
				Validation:   &config.Validation{Roots: ca.pool, SANs: []config.SANMatch{{Type: config.SANURI, Match: config.StringMatch{Value: "spiffe://td/server"}}}},
			}}, func(string) *config.Secret { return secret })
			for i, want := range []bool{false, true, true} {
				if s := b.once(t, to, x); s.Resumed != want || s.PeerURI() != "spiffe://td/server" {
					t.Errorf("connection %d: resumed %v, peer %q", i, s.Resumed, s.PeerURI())
				}
			}
			if s := b.once(t, other, x); s.Resumed {
				t.Error("another host: resumed")
			}
			secret = &config.Secret{Certificate: ca.issue(t, leaf{id: "spiffe://td/client"})}
			if s := b.once(t, to, x); s.Resumed {
				t.Error("after the secret changed: resumed")
			}
		})
	}
}

func TestClientKeepsNoSessionsWithoutKeys(t *testing.T) {
	ca := newAuthority(t, "ca")
	to := echoTLS(t, &tls.Config{Certificates: []tls.Certificate{*ca.issue(t, leaf{dns: "a"})}})
	b := newBench(t, false)
	x := NewClientContext(&config.UpstreamTLS{TLSParams: config.TLSParams{Max: tls.VersionTLS13}}, nil)
	for range 2 {
		if b.once(t, to, x).Resumed {
			t.Error("resumed")
		}
	}
}

func TestSessionsAreBoundedAndTicketsUsedOnce(t *testing.T) {
	s := &sessions{limit: 2}
	x := &tls.ClientSessionState{}
	s.put("a", x, true)
	s.put("b", x, false)
	s.put("c", x, false)
	for _, c := range []struct {
		key  string
		want bool
	}{{"a", false}, {"b", true}, {"b", true}, {"c", true}} {
		if got := s.get(c.key) != nil; got != c.want {
			t.Errorf("%s: %v", c.key, got)
		}
	}
	s.put("d", x, true)
	if s.get("b") != nil || s.get("d") == nil || s.get("d") != nil || len(s.order) != 1 {
		t.Errorf("%v", s.order)
	}
	s.put("c", nil, false)
	if len(s.of)+len(s.order) != 0 {
		t.Errorf("%v", s.order)
	}
}

func TestTicketOptions(t *testing.T) {
	ca := newAuthority(t, "ca")
	keys := config.SecretRef{Inline: &config.Secret{TicketKeys: [][]byte{make([]byte, 80)}}}
	for _, c := range []struct {
		name         string
		change       func(c *config.DownstreamTLS)
		wait         time.Duration
		again, other bool // resumed by the same context, by another one
	}{
		{"a context's own keys", func(*config.DownstreamTLS) {}, 0, true, false},
		{"configured keys", func(c *config.DownstreamTLS) { c.Tickets = keys }, 0, true, true},
		{"no tickets", func(c *config.DownstreamTLS) { c.DisableTickets = true }, 0, false, false},
		{"within the session timeout", func(c *config.DownstreamTLS) { c.SessionTimeout = 60 }, 0, true, false},
		{"after the session timeout", func(c *config.DownstreamTLS) { c.SessionTimeout = 1 }, 1100 * time.Millisecond, false, false},
	} {
		b := newBench(t, false)
		d := &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: inline(ca.issue(t, leaf{dns: "a"}))}}
		c.change(d)
		first, _ := b.echoServer(t, d)
		second, _ := b.echoServer(t, d)
		cache := tls.NewLRUClientSessionCache(4)
		dial := func(to netip.AddrPort) bool {
			x, err := tls.Dial("tcp", to.String(), &tls.Config{InsecureSkipVerify: true, ServerName: "a", ClientSessionCache: cache})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			io.WriteString(x, "hello")
			if _, err := io.ReadFull(x, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			return x.ConnectionState().DidResume
		}
		dial(first)
		time.Sleep(c.wait)
		if again := dial(first); again != c.again {
			t.Errorf("%s: the same context: resumed %v", c.name, again)
		}
		if other := dial(second); other != c.other {
			t.Errorf("%s: another context: resumed %v", c.name, other)
		}
	}
}

func FuzzOnlyTickets(f *testing.F) {
	f.Add([]byte{msgTicket, 0, 0, 1, 9})
	f.Add([]byte{msgTicket, 0, 0, 1, 9, msgKeyUpdate, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		if onlyTickets(p) && p[0] != msgTicket {
			t.Error("not a ticket")
		}
	})
}

func TestServerNameOf300BytesIsNoCrash(t *testing.T) { // CVE-2024-32475
	ca := newAuthority(t, "ca")
	to := echoTLS(t, &tls.Config{Certificates: []tls.Certificate{*ca.issue(t, leaf{dns: "a"})}})
	b := newBench(t, false)
	for _, name := range []string{strings.Repeat("a", 300), strings.Repeat("a", 255), "bad\x00name", ""} {
		x := NewClientContext(&config.UpstreamTLS{SNI: name, MaxSessionKeys: 1, TLSParams: config.TLSParams{Max: tls.VersionTLS13}}, nil)
		for range 2 {
			b.once(t, to, x)
		}
	}
}

func TestWaitEndsHandshakesThatWaitForTheirPeers(t *testing.T) {
	ca := newAuthority(t, "ca")
	b := newBench(t, false)
	addr, _ := b.echoServer(t, &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: inline(ca.issue(t, leaf{dns: "a"}))}})
	for range 3 {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The server's flight is answered with nothing.
		half := tls.Client(oneWay{c}, &tls.Config{InsecureSkipVerify: true})
		go half.Handshake()
		if n, err := c.Read(make([]byte, 1)); n != 1 {
			t.Fatal(err)
		}
	}
	if n := coroutines(); n != 3 {
		t.Fatalf("%d coroutines, not 3", n)
	}
	b.end()
	if n := coroutines(); n != 0 {
		t.Errorf("%d coroutines are left", n)
	}
}

// coroutines counts those of handshakes.
func coroutines() int {
	buf := make([]byte, 1<<20)
	return bytes.Count(buf[:runtime.Stack(buf, true)], []byte("tlsconn.(*coroutine).run"))
}

// oneWay writes and never reads.
type oneWay struct{ net.Conn }

func (o oneWay) Read([]byte) (int, error) { time.Sleep(10 * time.Second); return 0, io.EOF }

func TestHandshakesThatAreGivenUpLeaveNothing(t *testing.T) {
	ca := newAuthority(t, "ca")
	for _, bits := range []int{0, 2048, 3072} { // on the worker; where rsakey says; away
		b := newBench(t, false)
		addr, out := b.echoServer(t, &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: inline(ca.issue(t, leaf{dns: "a", rsa: bits}))}})
		var conns []net.Conn
		for range 20 {
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			go tls.Client(oneWay{c}, &tls.Config{InsecureSkipVerify: true}).Handshake()
			conns = append(conns, c)
		}
		for _, c := range conns {
			if n, err := c.Read(make([]byte, 1)); n != 1 {
				t.Fatal(err)
			}
			c.Close()
		}
		for range conns {
			if o := <-out; o.err == nil {
				t.Error("a handshake succeeded")
			}
		}
		for end := time.Now().Add(5 * time.Second); b.pool.open.Load() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("RSA %d: %d handshakes are open", bits, b.pool.open.Load())
			}
		}
		b.end()
		if n := coroutines(); n != 0 {
			t.Errorf("RSA %d: %d coroutines are left", bits, n)
		}
	}
}

// One that the worker has no time for, and one with a long signature, are done elsewhere.
func TestWhoDoesThePieces(t *testing.T) {
	ca := newAuthority(t, "ca")
	short := ca.issue(t, leaf{dns: "a", rsa: 2048})
	for _, c := range []struct {
		name   string
		cert   *tls.Certificate
		wait   int
		others int64
		worker bool
	}{{"nothing waits", ca.issue(t, leaf{dns: "a"}), 0, 0, true}, {"some wait", ca.issue(t, leaf{dns: "a"}), maxPieces - 1, 0, true},
		{"many wait", ca.issue(t, leaf{dns: "a"}), maxPieces, 0, false}, {"long RSA", ca.issue(t, leaf{dns: "a", rsa: 3072}), 0, 0, false},
		{"RSA", short, 0, 0, isFast(short)}, {"some are under way", ca.issue(t, leaf{dns: "a"}), 0, storm - 1, true},
		{"many are under way", ca.issue(t, leaf{dns: "a"}), 0, storm, false}} {
		b := newBench(t, false)
		x := NewServerContext(&config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: inline(c.cert)}}, nil)
		x.Refresh()
		got := make(chan bool, 1)
		b.on(func() {
			for range c.wait {
				b.w.Spare(&worker.Deferred{Run: func() {}})
			}
			h := &handshake{pool: b.pool, w: b.w, long: x.built.slow(), over: true}
			h.piece.Run = func() {}
			h.setup = func() (*tls.Conn, error) { return nil, errGone }
			before := b.w.Pieces()
			b.pool.open.Add(c.others)
			h.goOn()
			b.pool.open.Add(-c.others)
			got <- b.w.Pieces() > before
		})
		if onWorker := <-got; onWorker != c.worker {
			t.Errorf("%s: on the worker is %v", c.name, onWorker)
		}
		b.end()
	}
}
