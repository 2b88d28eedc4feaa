package tlsconn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/worker"
)

// costly is a client certificate whose issuer may be any of n others, each of
// which takes a signature to rule out.
func costly(t *testing.T, curve elliptic.Curve, n int) *tls.Certificate {
	signer, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	out := &tls.Certificate{}
	for i := range n + 1 {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		tmpl := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: "issuer"}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), IsCA: i > 0, BasicConstraintsValid: true}
		parent := *tmpl
		if i == 0 {
			tmpl.Subject.CommonName, out.PrivateKey = "leaf", key
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, &parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		out.Certificate = append(out.Certificate, der)
	}
	return out
}

// show gives it to servers that ask for others' as well.
func show(c *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
}

// asking wants a certificate of the client's, in a chain of any length.
func asking(t *testing.T, ca *authority) *config.DownstreamTLS {
	return &config.DownstreamTLS{RequireClientCert: true, TLSParams: config.TLSParams{
		Certificates: inline(ca.issue(t, leaf{dns: "a"})), Validation: &config.Validation{Roots: ca.pool, MaxDepth: 100}}}
}

// showing is a client that has c, until the test ends. It doesn't begin by itself.
func showing(t *testing.T, addr netip.AddrPort, version uint16, c *tls.Certificate) *tls.Conn {
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MaxVersion: version, GetClientCertificate: show(c)})
}

// watched is a bench whose worker tells how long its turns take.
func watched(t *testing.T) *bench {
	w, err := worker.New(worker.Options{StallLimit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{w: w, pool: NewPool()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		w.Run(ctx)
		close(done)
	}()
	b.end = func() { cancel(); <-done; b.pool.Wait() }
	t.Cleanup(b.end)
	return b
}

// verifying is how long a server takes to look at a client's certificates.
func verifying(t *testing.T, ca *authority, c *tls.Certificate) time.Duration {
	var peers []*x509.Certificate
	for _, der := range c.Certificate {
		x, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, x)
	}
	v, began := &verifier{roots: ca.pool, depth: 100}, time.Now()
	if _, e := v.check(peers, true, "", false); e == nil {
		t.Error("the chain is taken for good")
	}
	return time.Since(began)
}

// TestStrangersAreNotAsked: a chain of nobody's costs a look at some certificates,
// not a hundred signatures of P-521, which take a third of a second.
func TestStrangersAreNotAsked(t *testing.T) {
	ca := newAuthority(t, "ca")
	few, many := verifying(t, ca, costly(t, elliptic.P521(), 3)), verifying(t, ca, costly(t, elliptic.P521(), 100))
	if many > 5*few {
		t.Errorf("a hundred issuers take %v, three %v", many, few)
	}
}

// TestLongChainsAreFollowed whatever their order, and strangers among them.
func TestLongChainsAreFollowed(t *testing.T) {
	ca := newAuthority(t, "ca")
	var chain []*x509.Certificate
	at := ca
	for i := range 24 {
		next := &authority{key: newKey(t)}
		tmpl := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: "i", SerialNumber: string(rune('a' + i))},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, at.cert, &next.key.PublicKey, at.key)
		if err != nil {
			t.Fatal(err)
		}
		next.cert, _ = x509.ParseCertificate(der)
		chain, at = append(chain, next.cert), next
	}
	chain = append(chain, newAuthority(t, "stranger").cert)
	own := at.issue(t, leaf{id: "spiffe://a/b"}).Leaf
	v := &verifier{roots: ca.pool, depth: 100}
	for range 2 {
		if _, e := v.chain(append([]*x509.Certificate{own}, chain...), true); e != nil {
			t.Error(e)
		}
		slices.Reverse(chain)
	}
	if _, e := v.chain(append([]*x509.Certificate{own}, chain[2:]...), true); e == nil {
		t.Error("a chain with a gap is taken for good")
	}
}

// TestCostlyChainsDontKeepTheWorker has a client without a trusted certificate show
// few issuers with slow keys.
func TestCostlyChainsDontKeepTheWorker(t *testing.T) {
	ca, shown := newAuthority(t, "ca"), costly(t, elliptic.P521(), 3)
	limit := verifying(t, ca, shown) / 2
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		b := watched(t)
		addr, out := b.echoServer(t, asking(t, ca))
		conn := showing(t, addr, version, shown)
		go func() { conn.Handshake(); io.Copy(io.Discard, conn) }()
		if o := <-out; o.err == nil {
			t.Error("the chain was taken for good")
		}
		if busy := b.w.Turns().Busiest; busy > limit {
			t.Errorf("TLS %x: a turn took %v, more than %v", version, busy, limit)
		}
	}
}

// TestGivenUpWhileJudged ends handshakes whose chains are still looked at: by their
// time limit, by the peer, with the worker.
func TestGivenUpWhileJudged(t *testing.T) {
	ca, shown := newAuthority(t, "ca"), costly(t, elliptic.P521(), 3)
	x := asking(t, ca)
	for _, ended := range []bool{false, true} {
		b := watched(t)
		addr, out := b.echoServer(t, x)
		for range 4 {
			conn := showing(t, addr, tls.VersionTLS13, shown)
			if err := conn.Handshake(); err != nil {
				t.Fatal(err)
			}
			conn.NetConn().Close()
		}
		if !ended {
			for range 4 {
				if o := <-out; o.err == nil {
					t.Error("a handshake succeeded")
				}
			}
			for end := time.Now().Add(30 * time.Second); b.pool.open.Load() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d handshakes are open", b.pool.open.Load())
				}
			}
		}
		b.end()
		if n := coroutines(); n != 0 {
			t.Errorf("%d coroutines are left", n)
		}
	}
}

// TestHandshakesAreBounded: as in BoringSSL, certificates of more than 100 KB are
// refused, before anybody parses them.
func TestHandshakesAreBounded(t *testing.T) {
	ca := newAuthority(t, "ca")
	one := ca.issue(t, leaf{id: "spiffe://a/b"})
	for _, x := range []struct {
		size int
		want string
	}{{90 << 10, ""}, {125 << 10, boring(150, "EXCESSIVE_MESSAGE_SIZE", "")}, {250 << 10, boring(150, "EXCESSIVE_MESSAGE_SIZE", "")}} {
		many := &tls.Certificate{PrivateKey: one.PrivateKey}
		for n := 0; n < x.size; n += len(one.Certificate[0]) {
			many.Certificate = append(many.Certificate, one.Certificate[0])
		}
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			b := newBench(t, false)
			addr, out := b.echoServer(t, asking(t, ca))
			conn := showing(t, addr, version, many)
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			told := make(chan error, 1)
			go func() {
				err := conn.Handshake()
				if err == nil {
					_, err = conn.Read(make([]byte, 1))
				}
				told <- err
			}()
			if o := <-out; errString(o.err) != x.want {
				t.Errorf("TLS %x, %d bytes: %v", version, x.size, o.err)
			}
			if x.want != "" {
				t.Logf("TLS %x, %d bytes: the client is told %v", version, x.size, <-told)
			}
		}
	}
}
