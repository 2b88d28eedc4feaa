package listener

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/internal/config"
)

// Faults that sidecars had, and what is right instead. The names begin with
// what went wrong.

// certified makes a secret with a certificate for a name.
func certified(t *testing.T, name string) *config.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &config.Secret{Certificate: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}
}

// upstream serves each connection with f and gives the address.
func upstream(t *testing.T, f func(c *net.TCPConn)) string {
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
			go f(c.(*net.TCPConn))
		}
	}()
	return l.Addr().String()
}

// secure gives a listener's chain TLS with the secret of a name.
func secure(c *config.FilterChain, secret string) *config.FilterChain {
	c.TLS = &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: []config.SecretRef{{Name: secret}}}}
	return c
}

// shake makes a handshake and gives the connection and the name it was shown.
func shake(r *rig, name string) (*tls.Conn, string, error) {
	c := tls.Client(r.dial(name), &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"})
	if err := c.Handshake(); err != nil {
		return nil, "", err
	}
	return c, c.ConnectionState().PeerCertificates[0].DNSNames[0], nil
}

// repeats has a byte echoed.
func repeats(t *testing.T, c net.Conn) {
	t.Helper()
	io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

func TestRotatedCertificateServesNewHandshakesAndCutsNothing(t *testing.T) { // B065
	var now atomic.Pointer[config.Secret]
	now.Store(certified(t, "one.example"))
	r := newRig(t, func(o *Options) { o.Secrets = func(string) *config.Secret { return now.Load() } })
	r.apply(listenerOf("l", 1, secure(chainOf("c", &config.EchoFilter{}), "default")))
	old, name, err := shake(r, "l")
	if err != nil || name != "one.example" {
		t.Fatal(name, err)
	}
	repeats(t, old)
	now.Store(certified(t, "two.example"))
	if _, name, err = shake(r, "l"); err != nil || name != "two.example" {
		t.Error("after the rotation: ", name, err)
	}
	repeats(t, old)
}

func TestUnusableSecretStopsNobodyElse(t *testing.T) { // B066
	var good atomic.Pointer[config.Secret]
	good.Store(certified(t, "a.example"))
	missing := &config.Secret{}
	r := newRig(t, func(o *Options) {
		o.Secrets = func(name string) *config.Secret {
			if name == "good" {
				return good.Load()
			}
			return missing
		}
	})
	r.apply(listenerOf("good", 1, secure(chainOf("c", &config.EchoFilter{}), "good")), listenerOf("bad", 2, secure(chainOf("c", &config.EchoFilter{}), "bad")))
	if _, _, err := shake(r, "bad"); err == nil {
		t.Error("a handshake without certificate succeeded")
	}
	good.Store(certified(t, "new.example"))
	r.apply(listenerOf("good", 1, secure(chainOf("c", &config.EchoFilter{}), "good")), listenerOf("bad", 2, secure(chainOf("c", &config.EchoFilter{}), "bad")))
	if _, name, err := shake(r, "good"); err != nil || name != "new.example" {
		t.Error(name, err)
	}
}

func TestListenerWithoutCertificateRefusesUntilItComes(t *testing.T) { // B067
	var now atomic.Pointer[config.Secret]
	r := newRig(t, func(o *Options) { o.Secrets = func(string) *config.Secret { return now.Load() } })
	r.apply(listenerOf("l", 1, secure(chainOf("c", &config.EchoFilter{}), "default")))
	if _, _, err := shake(r, "l"); err == nil {
		t.Error("a handshake without certificate succeeded")
	}
	now.Store(certified(t, "a.example"))
	if _, _, err := shake(r, "l"); err != nil {
		t.Error("with it: ", err)
	}
}

func TestHelloInTwoSegmentsChoosesTheTLSChain(t *testing.T) { // B061, B063
	secret := certified(t, "a.example")
	r := newRig(t, func(o *Options) { o.Secrets = func(string) *config.Secret { return secret } })
	c := secure(chainOf("tls", &config.EchoFilter{}), "default")
	c.Match = config.FilterChainMatch{TransportProtocol: "tls", ServerNames: []string{"a.example"}, ApplicationProtos: []string{"h2"}}
	l := listenerOf("l", 1, c, chainOf("plain", says("plain")))
	l.Filters.TLSInspector = &config.Inspector{}
	r.apply(l)
	for _, at := range []int{1, 5, 6, 100, 200} {
		conn := tls.Client(slowly{r.dial("l"), at}, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
		if err := conn.Handshake(); err != nil {
			t.Errorf("cut at %d: %v", at, err)
			continue
		}
		repeats(t, conn)
	}
}

// slowly sends what is longer than at in two segments, 100 ms apart.
type slowly struct {
	*net.TCPConn
	at int
}

func (s slowly) Write(p []byte) (int, error) {
	if len(p) <= s.at {
		return s.TCPConn.Write(p)
	}
	s.TCPConn.Write(p[:s.at])
	time.Sleep(100 * time.Millisecond)
	n, err := s.TCPConn.Write(p[s.at:])
	return s.at + n, err
}

func TestApplicationsTLSPassesUntouched(t *testing.T) { // B059
	secret := certified(t, "app.example")
	up := upstream(t, func(c *net.TCPConn) {
		x := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*secret.Certificate}})
		io.Copy(x, x)
		x.Close()
	})
	r := newRig(t, nil)
	r.up = up
	l := listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"}))
	l.Filters.TLSInspector = &config.Inspector{}
	r.apply(l)
	c, name, err := shake(r, "l")
	if err != nil || name != "app.example" {
		t.Fatal(name, err)
	}
	repeats(t, c)
}

func TestTLSBodyIsWholeBeforeItsEnd(t *testing.T) { // B068
	body := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	secret := certified(t, "a.example")
	r := newRig(t, func(o *Options) { o.Secrets = func(string) *config.Secret { return secret } })
	r.up = upstream(t, func(c *net.TCPConn) { c.Write(body); c.Close() })
	r.apply(listenerOf("l", 1, secure(chainOf("c", &config.TCPProxy{Cluster: "a"}), "default")))
	for i := range 200 {
		c, _, err := shake(r, "l")
		if err != nil {
			t.Fatal(err)
		}
		// ReadAll's nil is close_notify: FIN alone would be io.ErrUnexpectedEOF.
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("connection %d: %d of %d bytes, %v", i, len(got), len(body), err)
		}
		c.Close()
	}
}

func TestResetStaysAResetOnBothSides(t *testing.T) { // B072
	seen := make(chan error, 1)
	for _, x := range []struct {
		name string
		up   func(c *net.TCPConn)
		act  func(c *net.TCPConn)
	}{
		{"by the client, idle", func(c *net.TCPConn) { _, err := io.Copy(io.Discard, c); seen <- err }, func(c *net.TCPConn) { c.SetLinger(0); c.Close() }},
		{"by the server, idle", func(c *net.TCPConn) { time.Sleep(100 * time.Millisecond); c.SetLinger(0); c.Close() }, func(c *net.TCPConn) {
			_, err := io.Copy(io.Discard, c)
			seen <- err
		}},
		{"by the client after its half-close", func(c *net.TCPConn) {
			io.Copy(io.Discard, c)
			for err := error(nil); err == nil; time.Sleep(10 * time.Millisecond) {
				if _, err = c.Write([]byte("x")); err != nil {
					seen <- err
				}
			}
		}, func(c *net.TCPConn) {
			c.CloseWrite()
			time.Sleep(50 * time.Millisecond)
			c.SetLinger(0)
			c.Close()
		}},
	} {
		r := newRig(t, nil)
		r.up = upstream(t, x.up)
		r.apply(listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"})))
		c := r.dial("l")
		time.Sleep(50 * time.Millisecond)
		x.act(c)
		select {
		case err := <-seen:
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("%s: the other side saw %v", x.name, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: the other side saw nothing", x.name)
		}
	}
}

func TestHalfCloseLeavesTheReply(t *testing.T) { // B073
	reply := bytes.Repeat([]byte("r"), 10<<20)
	r := newRig(t, nil)
	r.up = upstream(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		c.Write(append(b, reply...))
		c.Close()
	})
	r.apply(listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"})))
	c := r.dial("l")
	io.WriteString(c, "question")
	c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || len(got) != 8+len(reply) || !strings.HasPrefix(string(got[:8]), "question") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestResetRightAfterTheConnectIsCountedAndNothingElse(t *testing.T) { // B075
	r := newRig(t, nil)
	r.apply(listenerOf("l", 1, chainOf("c", &config.TCPProxy{Cluster: "a"})))
	const n = 500
	for range n {
		c := r.dial("l")
		c.SetLinger(0)
		c.Close()
	}
	waitFor(t, "no open connection", func() bool { open, err := r.l.Open(r.ctx); return err == nil && open == 0 })
	total := make([]uint64, 2)
	r.l.Visit(r.ctx, func(w int, _ *config.Listener, c Counters) { total[w] = c.Destroyed })
	if total[0]+total[1] != n {
		t.Errorf("%d of %d counted", total[0]+total[1], n)
	}
	c := r.dial("l")
	repeats(t, c)
}

func TestServerThatSpeaksFirstIsHeardAtOnce(t *testing.T) { // B076
	secret := certified(t, "a.example")
	for _, inspected := range []bool{false, true} {
		r := newRig(t, func(o *Options) { o.Secrets = func(string) *config.Secret { return secret } })
		r.up = upstream(t, func(c *net.TCPConn) { io.WriteString(c, "220 hi\r\n"); io.Copy(io.Discard, c) })
		l := listenerOf("l", 1, secure(chainOf("c", &config.TCPProxy{Cluster: "a"}), "default"))
		if inspected {
			l.Filters.TLSInspector = &config.Inspector{}
		}
		r.apply(l, listenerOf("plain", 2, chainOf("p", &config.TCPProxy{Cluster: "a"})))
		c, _, err := shake(r, "l")
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []net.Conn{c, r.dial("plain")} {
			got := make([]byte, 8)
			from.SetReadDeadline(time.Now().Add(2 * time.Second))
			if _, err := io.ReadFull(from, got); err != nil || string(got) != "220 hi\r\n" {
				t.Errorf("inspected %v: %q %v", inspected, got, err)
			}
		}
	}
	// Where the protocol must be told by the first bytes, nobody can speak first.
	r := newRig(t, nil)
	l := listenerOf("auto", 1, chainOf("c", says("too early")))
	l.Filters.HTTPInspector = &config.Inspector{}
	r.apply(l)
	c := r.dial("auto")
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("the detection gave way to silence")
	}
}
