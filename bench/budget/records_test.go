package budget

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/gcm"
	"sluice/internal/tlsconn"
	"sluice/internal/worker"
)

// records seals and opens one record with the keys of a real handshake.
func records(t *testing.T) []*work {
	p := newPath(t)
	client, server := handshake(t, p)
	kind := ""
	if wide() {
		kind = "/wide"
	}
	return []*work{pure(recordRows+"1KB"+kind, pass(t, client, server, 1<<10)), pure(recordRows+"16KB"+kind, pass(t, client, server, 16<<10))}
}

const recordRows = "tlsconn/"

// wide says whether AES-GCM is ours here, and not crypto/cipher's. One has half
// the ceilings of the other, and neither price of the machine says which it is.
func wide() bool {
	a, err := gcm.New(make([]byte, 16))
	return err == nil && fmt.Sprintf("%T", a) == "*gcm.wide"
}

// elsewhere says whether a row is for processors with the other AES-GCM.
func elsewhere(name string) bool {
	return strings.HasPrefix(name, recordRows) && strings.HasSuffix(name, "/wide") != wide()
}

func pass(t *testing.T, from, to worker.Layer, size int) func() {
	plain, wire := make([]byte, size), make([]byte, 0, size+1024)
	return func() {
		sealed := from.Seal(wire, plain)
		if p, used, err := to.Open(sealed); len(p) != size || used != len(sealed) || err != nil {
			t.Fatal(len(p), used, err)
		}
	}
}

func handshake(t *testing.T, p *path) (client, server worker.Layer) {
	t.Helper()
	a, b, err := p.w.Pair(nobody{}, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	pool, left := tlsconn.NewPool(), 2
	done := func(c *worker.Conn, layer *worker.Layer) func(*tlsconn.State, error) {
		return func(_ *tlsconn.State, err error) {
			if err != nil {
				t.Error(err)
			}
			left--
			*layer = c.Layer()
			c.SetHandler(&swallow{})
		}
	}
	secret := []config.SecretRef{{Inline: &config.Secret{Certificate: certificate(t)}}}
	params := config.TLSParams{Min: tls.VersionTLS13, Max: tls.VersionTLS13, Certificates: secret}
	pool.Server(b, tlsconn.NewServerContext(&config.DownstreamTLS{TLSParams: params}, nil), time.Minute, done(b, &server))
	pool.Client(a, tlsconn.NewClientContext(&config.UpstreamTLS{TLSParams: config.TLSParams{Min: tls.VersionTLS13, Max: tls.VersionTLS13}}, nil), tlsconn.ClientOptions{}, time.Minute, done(a, &client))
	for left > 0 {
		p.step()
	}
	for range 3 { // tickets go their way, which both ends then have counted
		p.w.Post(func() {})
		p.step()
	}
	pool.Wait()
	if client == nil || server == nil {
		t.Fatal("no layers")
	}
	return client, server
}

// swallow takes what comes.
type swallow struct{ nobody }

func (*swallow) OnData(_ *worker.Conn, b []byte) int { return len(b) }

func certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"a"}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
