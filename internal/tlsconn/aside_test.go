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
	"runtime"
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

// TestLongChainsDontKeepTheWorker has a client without a trusted certificate show
// a chain that takes a third of a second.
func TestLongChainsDontKeepTheWorker(t *testing.T) {
	ca, shown := newAuthority(t, "ca"), costly(t, elliptic.P521(), 100)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		b := watched(t)
		addr, out := b.echoServer(t, &config.DownstreamTLS{RequireClientCert: true, TLSParams: config.TLSParams{
			Certificates: inline(ca.issue(t, leaf{dns: "a"})), Validation: &config.Validation{Roots: ca.pool, MaxDepth: 100}}})
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conn := tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: version, GetClientCertificate: show(shown)})
		go func() { conn.Handshake(); io.Copy(io.Discard, conn) }()
		if o := <-out; o.err == nil {
			t.Error("the chain was taken for good")
		}
		if busy := b.w.Turns().Busiest; busy > 30*time.Millisecond {
			t.Errorf("TLS %x: a turn took %v", version, busy)
		}
	}
}

// TestGivenUpWhileJudged ends handshakes whose chains are still looked at: by their
// time limit, by the peer, with the worker.
func TestGivenUpWhileJudged(t *testing.T) {
	ca, shown := newAuthority(t, "ca"), costly(t, elliptic.P384(), 30)
	x := &config.DownstreamTLS{RequireClientCert: true, TLSParams: config.TLSParams{
		Certificates: inline(ca.issue(t, leaf{dns: "a"})), Validation: &config.Validation{Roots: ca.pool, MaxDepth: 100}}}
	for _, ended := range []bool{false, true} {
		b := watched(t)
		addr, out := b.echoServer(t, x)
		for range 4 {
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			conn := tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS13, GetClientCertificate: show(shown)})
			if err := conn.Handshake(); err != nil {
				t.Fatal(err)
			}
			c.Close()
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
			addr, out := b.echoServer(t, &config.DownstreamTLS{RequireClientCert: true, TLSParams: config.TLSParams{
				Certificates: inline(ca.issue(t, leaf{dns: "a"})), Validation: &config.Validation{Roots: ca.pool, MaxDepth: 100}}})
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			conn := tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: version, GetClientCertificate: show(many)})
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
