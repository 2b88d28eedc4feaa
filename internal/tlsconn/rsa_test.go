package tlsconn

import (
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"io"
	"testing"

	"sluice/internal/config"
	"sluice/internal/rsakey"
)

// isFast says whether this processor has something better than crypto/rsa for a key.
func isFast(c *tls.Certificate) bool {
	key := c.PrivateKey.(*rsa.PrivateKey)
	return rsakey.Fast(key) != crypto.Signer(key)
}

// TestRSAKeysAreFast in the material of a context, and stay as they are in secrets.
func TestRSAKeysAreFast(t *testing.T) {
	ca := newAuthority(t, "ca")
	for _, bits := range []int{0, 2048, 3072} {
		c := ca.issue(t, leaf{dns: "a", rsa: bits})
		key := c.PrivateKey
		params := config.TLSParams{Certificates: inline(c)}
		server, client := NewServerContext(&config.DownstreamTLS{TLSParams: params}, nil), NewClientContext(&config.UpstreamTLS{TLSParams: params}, nil)
		fast := bits > 0 && isFast(c)
		for _, m := range []*material{server.current(), client.current()} {
			if (m.certs[0].PrivateKey != key) != fast || m.slow != (bits > 0 && !fast) || m.certs[0].Leaf != c.Leaf {
				t.Errorf("%d bits: %T, slow is %v", bits, m.certs[0].PrivateKey, m.slow)
			}
		}
		if c.PrivateKey != key {
			t.Errorf("%d bits: the secret has %T", bits, c.PrivateKey)
		}
	}
}

// TestRSAHandshakes are mutual, with crypto/tls on the other side and its own keys.
func TestRSAHandshakes(t *testing.T) {
	ca := newAuthority(t, "ca")
	ours, theirs := ca.issue(t, leaf{dns: "a", rsa: 2048}), ca.issue(t, leaf{dns: "a", rsa: 2048})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		b := newBench(t, false)
		params := config.TLSParams{Max: version, Certificates: inline(ours), Validation: &config.Validation{Roots: ca.pool, HasTrustAnchor: true}}
		addr, out := b.echoServer(t, &config.DownstreamTLS{RequireClientCert: true, TLSParams: params})
		conn, err := tls.Dial("tcp", addr.String(), &tls.Config{RootCAs: ca.pool, ServerName: "a", MinVersion: version, Certificates: []tls.Certificate{*theirs}})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		io.WriteString(conn, "ping")
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
			t.Errorf("TLS %x: %q, %v", version, got, err)
		}
		conn.Close()
		if o := <-out; o.err != nil {
			t.Errorf("TLS %x, server: %v", version, o.err)
		}
		to := echoTLS(t, &tls.Config{Certificates: []tls.Certificate{*theirs}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: version, MaxVersion: version})
		b.once(t, to, NewClientContext(&config.UpstreamTLS{SNI: "a", TLSParams: params}, nil))
	}
}
