package tlsconn

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"encoding/pem"

	"sluice/internal/config"
	"sluice/internal/worker"
)

// authority is a CA of the test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{key: newKey(t), pool: x509.NewCertPool()}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.pool.AddCert(a.cert)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

type leaf struct {
	id, dns string
	serial  int64
	ended   bool // expired
	future  bool
	usage   []x509.ExtKeyUsage
	rsa     int // bits; 0: an elliptic key
}

func (l *leaf) key(t testing.TB) crypto.Signer {
	if l.rsa == 0 {
		return newKey(t)
	}
	k, err := rsa.GenerateKey(rand.Reader, l.rsa)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (a *authority) issue(t testing.TB, l leaf) *tls.Certificate {
	t.Helper()
	key := l.key(t)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(max(l.serial, 2)), Subject: pkix.Name{CommonName: "x"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: l.usage}
	if l.ended {
		tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	if l.future {
		tmpl.NotBefore = time.Now().Add(30 * time.Minute)
	}
	if l.id != "" {
		u, _ := url.Parse(l.id)
		tmpl.URIs = []*url.URL{u}
	}
	if l.dns != "" {
		tmpl.DNSNames = []string{l.dns}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	c.Leaf, _ = x509.ParseCertificate(der)
	return c
}

func inline(c *tls.Certificate) []config.SecretRef {
	return []config.SecretRef{{Inline: &config.Secret{Certificate: c}}}
}

// bench is a worker and pool.
type bench struct {
	w    *worker.Worker
	pool *Pool
	end  func()
}

func newBench(t testing.TB, legacy bool) *bench {
	t.Helper()
	w, err := worker.New(worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{w: w, pool: NewPool()}
	b.pool.Legacy = legacy
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // as in the proxy: coroutines are particular about it
		w.Run(ctx)
		close(done)
	}()
	b.end = func() { cancel(); <-done; b.pool.Wait() }
	t.Cleanup(b.end)
	return b
}

func (b *bench) on(f func()) {
	done := make(chan struct{})
	b.w.Post(func() { f(); close(done) })
	<-done
}

// peer is a plaintext handler of the test.
type peer struct {
	data  func(c *worker.Conn, b []byte) int
	eof   func(c *worker.Conn)
	close func(err error)
	up    func(c *worker.Conn, err error)
}

func (p *peer) OnData(c *worker.Conn, b []byte) int {
	if p.data == nil {
		return len(b)
	}
	return p.data(c, b)
}
func (p *peer) OnEOF(c *worker.Conn) {
	if p.eof != nil {
		p.eof(c)
	}
}
func (p *peer) OnDrain(c *worker.Conn) { c.ResumeRead() }
func (p *peer) OnClose(c *worker.Conn, err error) {
	if p.close != nil {
		p.close(err)
	}
}
func (p *peer) OnConnect(c *worker.Conn, err error) { p.up(c, err) }

func echoPeer() *peer {
	return &peer{
		data: func(c *worker.Conn, b []byte) int {
			c.Write(b)
			if c.Pending() >= worker.HighWater {
				c.PauseRead()
			}
			return len(b)
		},
		eof: func(c *worker.Conn) { c.CloseWhenFlushed() },
	}
}

type outcome struct {
	state *State
	err   error
}

// echoServer serves TLS echo and gives its address and handshake outcomes.
func (b *bench) echoServer(t testing.TB, c *config.DownstreamTLS) (netip.AddrPort, chan outcome) {
	t.Helper()
	x := NewServerContext(c, nil)
	fd, err := worker.OpenListener(netip.MustParseAddrPort("127.0.0.1:0"), "", worker.SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan outcome, 100)
	b.on(func() {
		b.w.Listen(fd, func(fd int, _ netip.AddrPort) {
			conn := b.w.Adopt(fd, nobody{})
			b.pool.Server(conn, x, 5*time.Second, func(s *State, err error) {
				if err == nil {
					conn.SetHandler(echoPeer())
				}
				out <- outcome{s, err}
			})
		})
	})
	return worker.SocketName(fd), out
}

func engines(t *testing.T, f func(t *testing.T, legacy bool)) {
	t.Run("own records", func(t *testing.T) { f(t, false) })
	t.Run("tls.Conn", func(t *testing.T) { f(t, true) })
}

func TestServerEchoesWithCryptoTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	server, client := ca.issue(t, leaf{id: "spiffe://td/server", dns: "server.example"}), ca.issue(t, leaf{id: "spiffe://td/client"})
	engines(t, func(t *testing.T, legacy bool) {
		b := newBench(t, legacy)
		addr, out := b.echoServer(t, &config.DownstreamTLS{RequireClientCert: true, TLSParams: config.TLSParams{ALPN: []string{"h2", "http/1.1"}, Certificates: inline(server), Validation: &config.Validation{Roots: ca.pool}}})
		for _, v := range []struct {
			name     string
			min, max uint16
			suites   []uint16
		}{{"1.3", tls.VersionTLS13, tls.VersionTLS13, nil}, {"1.2", tls.VersionTLS12, tls.VersionTLS12, nil},
			{"1.2 AES-256", tls.VersionTLS12, tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}} {
			cache := tls.NewLRUClientSessionCache(4)
			for round := range 3 { // the later ones resume
				c, err := tls.Dial("tcp", addr.String(), &tls.Config{InsecureSkipVerify: true, ServerName: "server.example", Certificates: []tls.Certificate{*client},
					MinVersion: v.min, MaxVersion: v.max, CipherSuites: v.suites, ClientSessionCache: cache, NextProtos: []string{"http/1.1", "h2"}})
				if err != nil {
					t.Fatalf("%s round %d: %v", v.name, round, err)
				}
				c.SetDeadline(time.Now().Add(20 * time.Second))
				if p := c.ConnectionState().NegotiatedProtocol; p != "h2" {
					t.Errorf("%s: ALPN %q isn't the server's first", v.name, p)
				}
				want := bytes.Repeat([]byte("round and round. "), 1<<16)
				go func() { c.Write(want); c.CloseWrite() }()
				got, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s round %d: %d of %d bytes, %v", v.name, round, len(got), len(want), err)
				}
				c.Close()
				o := <-out
				if o.err != nil || o.state.PeerURI() != "spiffe://td/client" || o.state.LocalURI() != "spiffe://td/server" || o.state.Resumed != (round > 0) {
					t.Errorf("%s round %d: %+v", v.name, round, o)
				}
			}
		}
	})
}

func TestRecordsServerResumesWithoutClientCertificate(t *testing.T) {
	// Then the ticket leaves in the first flight, under the last key.
	ca := newAuthority(t, "ca")
	b := newBench(t, false)
	addr, _ := b.echoServer(t, &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: inline(ca.issue(t, leaf{dns: "a"}))}})
	cache := tls.NewLRUClientSessionCache(4)
	for range 3 {
		c, err := tls.Dial("tcp", addr.String(), &tls.Config{InsecureSkipVerify: true, ClientSessionCache: cache})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "hello")
		buf := make([]byte, 5)
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("%q %v", buf, err)
		}
		c.Close()
	}
}

func TestClientTalksToCryptoTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	server, client := ca.issue(t, leaf{id: "spiffe://td/server"}), ca.issue(t, leaf{id: "spiffe://td/client"})
	for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
		engines(t, func(t *testing.T, legacy bool) {
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool, MaxVersion: version, NextProtos: []string{"istio"}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() { io.Copy(c, c); c.Close() }()
				}
			}()
			b := newBench(t, legacy)
			x := NewClientContext(&config.UpstreamTLS{SNI: "outbound_.80_._.svc", TLSParams: config.TLSParams{Max: tls.VersionTLS13, ALPN: []string{"istio"}, Certificates: inline(client),
				Validation: &config.Validation{Roots: ca.pool, SANs: []config.SANMatch{{Type: config.SANURI, Match: config.StringMatch{Value: "spiffe://td/server"}}}}}}, nil)
			want := bytes.Repeat([]byte("to and fro "), 1<<16)
			var got []byte
			end := make(chan error, 1)
			b.on(func() {
				b.w.Dial(netip.MustParseAddrPort(l.Addr().String()), "", worker.DialOptions{}, &peer{up: func(c *worker.Conn, err error) {
					if err != nil {
						end <- err
						return
					}
					b.pool.Client(c, x, ClientOptions{}, 5*time.Second, func(s *State, err error) {
						if err != nil {
							end <- err
							return
						}
						if s.PeerURI() != "spiffe://td/server" || s.ALPN != "istio" {
							t.Errorf("%+v", s)
						}
						c.SetHandler(&peer{
							data:  func(c *worker.Conn, p []byte) int { got = append(got, p...); return len(p) },
							eof:   func(c *worker.Conn) { c.Close() },
							close: func(err error) { end <- err },
						})
						c.Write(want)
						c.ShutdownWrite()
					})
				}})
			})
			select {
			case err := <-end:
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d of %d bytes, %v", len(got), len(want), err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("no end")
			}
		})
	}
}

func TestVerificationSaysWhatEnvoySays(t *testing.T) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	server := ca.issue(t, leaf{dns: "server.example"})
	revokedList, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(77), RevocationTime: time.Now()}}}, ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	crl, _ := x509.ParseRevocationList(revokedList)
	san := []config.SANMatch{{Type: config.SANURI, Match: config.StringMatch{Kind: config.MatchPrefix, Value: "spiffe://td/"}}}
	for _, c := range []struct {
		name       string
		cert       *tls.Certificate
		validation config.Validation
		alert      string // what the client is told; "" means it gets in
		text       string
		kind       Kind
	}{
		{"trusted", ca.issue(t, leaf{id: "spiffe://td/a"}), config.Validation{Roots: ca.pool, SANs: san}, "", "", 0},
		{"another CA", stranger.issue(t, leaf{id: "spiffe://td/a"}), config.Validation{Roots: ca.pool}, "unknown certificate authority",
			"TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: X509_verify_cert: certificate verification error at depth 0: unable to get local issuer certificate:TLS_error_end", VerifyError},
		{"expired", ca.issue(t, leaf{ended: true}), config.Validation{Roots: ca.pool}, "expired certificate",
			"TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: X509_verify_cert: certificate verification error at depth 0: certificate has expired:TLS_error_end", VerifyError},
		{"expired but allowed", ca.issue(t, leaf{ended: true}), config.Validation{Roots: ca.pool, AllowExpired: true}, "", "", 0},
		{"not yet valid", ca.issue(t, leaf{future: true}), config.Validation{Roots: ca.pool}, "expired certificate",
			"TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: X509_verify_cert: certificate verification error at depth 0: certificate is not yet valid:TLS_error_end", VerifyError},
		{"usage", ca.issue(t, leaf{usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), config.Validation{Roots: ca.pool}, "unsupported certificate",
			"TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: X509_verify_cert: certificate verification error at depth 0: unsupported certificate purpose:TLS_error_end", VerifyError},
		{"another name", ca.issue(t, leaf{id: "spiffe://other/a"}), config.Validation{Roots: ca.pool, SANs: san}, "unknown certificate",
			"TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: SAN matcher, certificate SANs are [spiffe://other/a]:TLS_error_end", VerifySAN},
		{"a DNS name that reads like the URI", ca.issue(t, leaf{dns: "spiffe.td"}), config.Validation{Roots: ca.pool, SANs: []config.SANMatch{{Type: config.SANURI, Match: config.StringMatch{Value: "spiffe.td"}}}}, "unknown certificate",
			"TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: SAN matcher, certificate SANs are [spiffe.td]:TLS_error_end", VerifySAN},
		{"wildcard one label deep", ca.issue(t, leaf{dns: "*.wild.example"}), config.Validation{Roots: ca.pool, SANs: []config.SANMatch{{Type: config.SANDNS, Match: config.StringMatch{Value: "a.wild.example"}}}}, "", "", 0},
		{"wildcard two labels deep", ca.issue(t, leaf{dns: "*.wild.example"}), config.Validation{Roots: ca.pool, SANs: []config.SANMatch{{Type: config.SANDNS, Match: config.StringMatch{Value: "b.a.wild.example"}}}}, "unknown certificate",
			"TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: SAN matcher, certificate SANs are [*.wild.example]:TLS_error_end", VerifySAN},
		{"revoked", ca.issue(t, leaf{serial: 77}), config.Validation{Roots: ca.pool, CRLs: []*x509.RevocationList{crl}}, "revoked certificate",
			"TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: X509_verify_cert: certificate verification error at depth 0: certificate revocation check against provided CRLs failed: certificate revoked:TLS_error_end", VerifyError},
		{"accept untrusted", stranger.issue(t, leaf{}), config.Validation{Roots: ca.pool, SANs: san, AcceptUntrust: true}, "", "", 0},
		{"none", nil, config.Validation{Roots: ca.pool}, "certificate required",
			"TLS_error:|268435648:SSL routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE:peer did not provide required client certificate:TLS_error_end", NoCert},
	} {
		for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
			b := newBench(t, false)
			addr, out := b.echoServer(t, &config.DownstreamTLS{RequireClientCert: true, TLSParams: config.TLSParams{Certificates: inline(server), Validation: &c.validation}})
			cfg := &tls.Config{InsecureSkipVerify: true, MaxVersion: version}
			if c.cert != nil {
				cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
			}
			said := ""
			conn, err := tls.Dial("tcp", addr.String(), cfg)
			if err == nil {
				conn.SetDeadline(time.Now().Add(5 * time.Second))
				io.WriteString(conn, "x")
				_, err = io.ReadFull(conn, make([]byte, 1))
				conn.Close()
			}
			if err != nil {
				said = err.Error()
			}
			if !strings.HasSuffix(said, c.alert) && !(c.kind == NoCert && version == tls.VersionTLS12) || (said == "") != (c.alert == "") {
				t.Errorf("%s, %x: client was told %q, want %q", c.name, version, said, c.alert)
			}
			o := <-out
			if got := errString(o.err); got != c.text {
				t.Errorf("%s, %x: got %q, want %q", c.name, version, got, c.text)
			}
			var e *Error
			if errors.As(o.err, &e) && e.Kind != c.kind {
				t.Errorf("%s: kind %d, want %d", c.name, e.Kind, c.kind)
			}
		}
	}
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestProtocolErrorsReadLikeBoringSSL(t *testing.T) {
	ca := newAuthority(t, "ca")
	b := newBench(t, false)
	addr, out := b.echoServer(t, &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: inline(ca.issue(t, leaf{dns: "a"})), Ciphers: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}})
	dial := func(c *tls.Config) func() {
		return func() {
			c.InsecureSkipVerify = true
			if conn, err := tls.Dial("tcp", addr.String(), c); err == nil {
				conn.Close()
			}
		}
	}
	heard := ""
	raw := func(s string) func() {
		return func() {
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, s)
			c.SetDeadline(time.Now().Add(5 * time.Second))
			b, _ := io.ReadAll(c)
			heard = string(b)
			c.Close()
		}
	}
	for _, c := range []struct {
		name  string
		do    func()
		want  string
		hears string
	}{
		{"no common suite", dial(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}), "TLS_error:|268435640:SSL routines:OPENSSL_internal:NO_SHARED_CIPHER:TLS_error_end", ""},
		{"no common group", dial(&tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}), "TLS_error:|268435722:SSL routines:OPENSSL_internal:NO_SHARED_GROUP:TLS_error_end", ""},
		{"TLS 1.2 without the certificate's curve", dial(&tls.Config{MaxVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.X25519}}), "TLS_error:|268435699:SSL routines:OPENSSL_internal:WRONG_CURVE:TLS_error_end", ""},
		{"HTTP", raw("GET / HTTP/1.1\r\n\r\n"), "TLS_error:|268435612:SSL routines:OPENSSL_internal:HTTP_REQUEST:TLS_error_end", ""},
		{"text", raw("hello there"), "TLS_error:|268435703:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER:TLS_error_end", "\x15\x03\x01\x00\x02\x02F"},
		{"an SSLv2 hello", raw("\x80\x2e\x01\x00\x02\x00\x15"), "TLS_error:|268435703:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER:TLS_error_end", "\x15\x03\x01\x00\x02\x02F"},
		{"an alert", raw("\x15\x03\x01\x00\x02\x02\x28"), "TLS_error:|268436496:SSL routines:OPENSSL_internal:SSLV3_ALERT_HANDSHAKE_FAILURE:TLS_error_end", ""},
		{"an empty hello", raw("\x16\x03\x01\x00\x04\x01\x00\x00\x00"), "TLS_error:|268435587:SSL routines:OPENSSL_internal:CLIENTHELLO_PARSE_FAILED:TLS_error_end", "\x15\x03\x01\x00\x02\x022"},
		{"client's alert", dial(&tls.Config{VerifyConnection: func(tls.ConnectionState) error { return errors.New("no") }}), "TLS_error:|268436498:SSL routines:OPENSSL_internal:SSLV3_ALERT_BAD_CERTIFICATE:TLS_error_end", ""},
	} {
		heard = ""
		c.do()
		if heard != c.hears {
			t.Errorf("%s: heard %q, want %q", c.name, heard, c.hears)
		}
		if o := <-out; errString(o.err) != c.want {
			t.Errorf("%s: %q, want %q", c.name, errString(o.err), c.want)
		}
	}
}

func TestClosedDuringHandshake(t *testing.T) {
	ca := newAuthority(t, "ca")
	b := newBench(t, false)
	addr, out := b.echoServer(t, &config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: inline(ca.issue(t, leaf{dns: "a"}))}})
	for _, n := range []int{0, 3, 200} {
		c, _ := net.Dial("tcp", addr.String())
		c.Write(append([]byte{22, 3, 1, 2, 0, 1}, make([]byte, 300)...)[:n])
		c.Close()
		var e *Error
		if o := <-out; !errors.As(o.err, &e) || e.Kind != Gone {
			t.Errorf("after %d bytes: %v", n, o.err)
		}
	}
}

func TestSecretsAreFollowed(t *testing.T) {
	ca := newAuthority(t, "ca")
	first, second := &config.Secret{Certificate: ca.issue(t, leaf{dns: "one"})}, &config.Secret{Certificate: ca.issue(t, leaf{dns: "two"})}
	var now *config.Secret
	x := NewServerContext(&config.DownstreamTLS{TLSParams: config.TLSParams{Certificates: []config.SecretRef{{Name: "default"}}}}, func(string) *config.Secret { return now })
	if x.Ready() {
		t.Error("ready without its secret")
	}
	now = first
	m := x.current()
	if m.missing || m.certs[0] != first.Certificate || x.current() != m {
		t.Error("not the first, or not kept")
	}
	now = second
	if n := x.current(); n.certs[0] != second.Certificate {
		t.Error("not the second")
	}
}

func TestRecordsRefuseWhatMustNotCome(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	pair := func() (*half, *records) {
		a, _ := newHalf(tls.TLS_AES_128_GCM_SHA256, secret)
		b, _ := newHalf(tls.TLS_AES_128_GCM_SHA256, secret)
		c, _ := newHalf(tls.TLS_AES_128_GCM_SHA256, secret)
		return a, &records{rd: b, wr: c}
	}
	for _, c := range []struct {
		name  string
		wire  func(k *half) []byte
		alert byte
	}{
		{"plain alert", func(*half) []byte { return []byte{21, 3, 3, 0, 2, 2, 40} }, alertUnexpected},
		{"too long", func(*half) []byte { return append([]byte{23, 3, 3, 0x41, 0x01}, make([]byte, 0x4101)...) }, alertOverflow},
		{"forged", func(k *half) []byte { b := k.seal(nil, 23, []byte("x")); b[7] ^= 1; return b }, alertBadMAC},
		{"too short", func(*half) []byte { return []byte{23, 3, 3, 0, 3, 1, 2, 3} }, alertBadMAC},
		{"padding only", func(k *half) []byte { return k.seal(nil, 0, []byte{0, 0}) }, alertUnexpected},
		{"client's ticket", func(k *half) []byte { return k.seal(nil, 22, []byte{4, 0, 0, 1, 0}) }, alertUnexpected},
		{"huge message", func(k *half) []byte { return k.seal(nil, 22, []byte{4, 0xff, 0, 1, 0}) }, alertUnexpected},
		{"data inside a message", func(k *half) []byte { return k.seal(k.seal(nil, 22, []byte{24, 0, 0}), 23, []byte("x")) }, alertUnexpected},
		{"message behind KeyUpdate", func(k *half) []byte { return k.seal(nil, 22, []byte{24, 0, 0, 1, 0, 24, 0, 0, 1, 0}) }, alertUnexpected},
		{"KeyUpdate flood", func(k *half) []byte {
			var b []byte
			for range 1000 {
				b = k.seal(b, 22, []byte{24, 0, 0, 1, 1})
				k.next()
			}
			return b
		}, alertUnexpected},
	} {
		k, r := pair()
		_, _, err := r.Open(c.wire(k))
		if err == nil || err == io.EOF || r.alert != c.alert {
			t.Errorf("%s: %v, alert %d, want %d", c.name, err, r.alert, c.alert)
		}
		if b := r.SealClose(nil); len(b) == 0 {
			t.Errorf("%s: no alert sent", c.name)
		}
	}
}

func TestRecordsFollowKeyUpdates(t *testing.T) {
	secret := bytes.Repeat([]byte{9}, 48)
	mk := func() *half { h, _ := newHalf(tls.TLS_AES_256_GCM_SHA384, secret); return h }
	a, b := &records{rd: mk(), wr: mk()}, &records{rd: mk(), wr: mk(), client: true}
	say := func(from, to *records, s string) {
		t.Helper()
		wire := from.Seal(nil, []byte(s))
		p, used, err := to.Open(wire)
		if err != nil || used != len(wire) || string(p) != s {
			t.Fatalf("%q %d of %d, %v", p, used, len(wire), err)
		}
	}
	say(a, b, "one")
	wire := a.wr.seal(nil, recordHandshake, []byte{msgKeyUpdate, 0, 0, 1, 1})
	a.wr.next()
	if _, _, err := b.Open(wire); err != nil {
		t.Fatal(err)
	}
	say(a, b, "two")
	say(b, a, "three") // brings b's own KeyUpdate
	say(b, a, "four")
	a.wr.seq = rekeyAfter // our own limit
	b.rd.seq = rekeyAfter
	say(a, b, "five")
	if a.wr.seq > 2 {
		t.Error("no new key")
	}
	if _, _, err := b.Open(a.SealClose(nil)); err != io.EOF {
		t.Error(err)
	}
}

func TestRecordsDoNotAllocate(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	mk := func() *half { h, _ := newHalf(tls.TLS_AES_128_GCM_SHA256, secret); return h }
	a, b := &records{rd: mk(), wr: mk()}, &records{rd: mk(), wr: mk()}
	plain, wire := make([]byte, 40000), make([]byte, 0, 60000)
	if n := testing.AllocsPerRun(50, func() {
		out := a.Seal(wire, plain)
		if _, _, err := b.Open(out); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzRecordsOpen(f *testing.F) {
	secret := bytes.Repeat([]byte{7}, 32)
	k, _ := newHalf(tls.TLS_AES_128_GCM_SHA256, secret)
	f.Add(k.seal(k.seal(nil, 23, []byte("hello")), 22, []byte{24, 0, 0, 1, 1}), uint8(9))
	f.Add([]byte{23, 3, 3, 0, 3, 1, 2, 3}, uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		rd, _ := newHalf(tls.TLS_AES_128_GCM_SHA256, secret)
		wr, _ := newHalf(tls.TLS_AES_128_GCM_SHA256, secret)
		r := &records{rd: rd, wr: wr}
		part := bytes.Clone(b[:len(b)*int(cut)/256])
		p, used, err := r.Open(part)
		if used > len(part) || len(p) > used {
			t.Fatalf("%d plain, %d used of %d", len(p), used, len(part))
		}
		if err == nil {
			r.Open(bytes.Clone(b[used:]))
		}
		r.Seal(nil, []byte("x"))
		r.SealClose(nil)
	})
}

func writePEM(t testing.TB, dir string, ca *authority, c *tls.Certificate) (cert, key, root string) {
	t.Helper()
	cert, key, root = filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"), filepath.Join(dir, "ca.pem")
	der, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, key: {Type: "EC PRIVATE KEY", Bytes: der}, root: {Type: "CERTIFICATE", Bytes: ca.cert.Raw}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, root
}

func TestInteropWithOpenSSLClient(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, key, _ := writePEM(t, t.TempDir(), ca, ca.issue(t, leaf{id: "spiffe://td/client"}))
	engines(t, func(t *testing.T, legacy bool) {
		b := newBench(t, legacy)
		addr, out := b.echoServer(t, &config.DownstreamTLS{RequireClientCert: true, TLSParams: config.TLSParams{Certificates: inline(ca.issue(t, leaf{dns: "a"})), Validation: &config.Validation{Roots: ca.pool}}})
		for _, args := range [][]string{{"-tls1_3"}, {"-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"}, {"-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"}, {"-tls1_2"}} {
			cmd := exec.Command("openssl", append([]string{"s_client", "-quiet", "-connect", addr.String(), "-cert", cert, "-key", key}, args...)...)
			in, _ := cmd.StdinPipe()
			stdout, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			io.WriteString(in, "first line\n")
			buf := make([]byte, 11)
			if _, err := io.ReadFull(stdout, buf); err != nil || string(buf) != "first line\n" {
				t.Errorf("%v: %q %v", args, buf, err)
			}
			in.Close()
			cmd.Process.Kill()
			cmd.Wait()
			if o := <-out; o.err != nil {
				t.Errorf("%v: %v", args, o.err)
			}
		}
	})
}

func TestInteropWithOpenSSLServer(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, key, root := writePEM(t, t.TempDir(), ca, ca.issue(t, leaf{id: "spiffe://td/server"}))
	client := ca.issue(t, leaf{id: "spiffe://td/client"})
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	addr := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	// -rev answers each line reversed; it sends two tickets first.
	cmd := exec.Command("openssl", "s_server", "-rev", "-accept", addr.String(), "-cert", cert, "-key", key, "-Verify", "1", "-CAfile", root)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for range 100 {
		if c, err := net.Dial("tcp", addr.String()); err == nil {
			c.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	engines(t, func(t *testing.T, legacy bool) {
		b := newBench(t, legacy)
		x := NewClientContext(&config.UpstreamTLS{TLSParams: config.TLSParams{Max: tls.VersionTLS13, Certificates: inline(client), Validation: &config.Validation{Roots: ca.pool}}}, nil)
		got := make(chan string, 1)
		b.on(func() {
			b.w.Dial(addr, "", worker.DialOptions{}, &peer{up: func(c *worker.Conn, err error) {
				b.pool.Client(c, x, ClientOptions{}, 5*time.Second, func(s *State, err error) {
					if err != nil {
						got <- err.Error()
						return
					}
					c.SetHandler(&peer{data: func(c *worker.Conn, p []byte) int {
						if p[len(p)-1] != '\n' {
							return 0
						}
						got <- string(p)
						c.CloseWhenFlushed()
						return len(p)
					}})
					c.Write([]byte("stressed\n"))
				})
			}})
		})
		select {
		case s := <-got:
			if s != "desserts\n" {
				t.Errorf("%q", s)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no answer")
		}
	})
}
