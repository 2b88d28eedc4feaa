package rsakey

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"
)

// certificate is one that a signer made of itself.
func certificate(t *testing.T, s crypto.Signer) tls.Certificate {
	t.Helper()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}, DNSNames: []string{"a"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, s.Public(), s)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: s, Leaf: leaf}
}

// shake has both sides of a handshake show their certificate and verify the other's.
func shake(t *testing.T, server, client tls.Certificate, version, suite uint16) {
	t.Helper()
	config := func(own, peer tls.Certificate) *tls.Config {
		roots := x509.NewCertPool()
		roots.AddCert(peer.Leaf)
		return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
			ServerName: "a", MinVersion: version, MaxVersion: version, CipherSuites: []uint16{suite}}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	told := make(chan error, 1)
	go func() {
		c := tls.Server(a, config(server, client))
		_, err := c.Write([]byte("x"))
		told <- err
	}()
	c := tls.Client(b, config(client, server))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("client: %v", err)
		b.Close()
	}
	if err := <-told; err != nil {
		t.Errorf("server: %v", err)
	}
}

// TestHandshakes are crypto/tls's with such keys on one side and on both. TLS 1.1
// signs what only crypto/rsa pads, and RSA key exchange decrypts.
func TestHandshakes(t *testing.T) {
	one, two := fixed(t, "key1"), fixed(t, "key2")
	for _, c := range []struct{ version, suite uint16 }{
		{tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256},
		{tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
		{tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256},
		{tls.VersionTLS11, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA},
	} {
		for _, server := range []crypto.Signer{one, Fast(one)} {
			for _, client := range []crypto.Signer{two, Fast(two)} {
				t.Run(fmt.Sprintf("%s %s/%T to %T", tls.VersionName(c.version), tls.CipherSuiteName(c.suite), client, server), func(t *testing.T) {
					shake(t, certificate(t, server), certificate(t, client), c.version, c.suite)
				})
			}
		}
	}
}
