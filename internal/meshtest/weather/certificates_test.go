package weather

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"sluice/internal/meshtest"
)

// writeCertificates makes what both sides of the handshakes show, and the root.
func writeCertificates(dir string) error {
	ca, err := meshtest.NewCA()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca.RootPEM, 0o600); err != nil {
		return err
	}
	for name, issue := range map[string]func() (*tls.Certificate, error){
		"server": func() (*tls.Certificate, error) { return ca.Server("a") },
		"client": func() (*tls.Certificate, error) { return ca.Workload("spiffe://cluster.local/ns/a/sa/b") },
	} {
		c, err := issue()
		if err != nil {
			return err
		}
		key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			return err
		}
		for end, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, ".key": {Type: "PRIVATE KEY", Bytes: key}} {
			if err := os.WriteFile(filepath.Join(dir, name+end), pem.EncodeToMemory(block), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// clientTLS is what a client of the mTLS listener needs.
func clientTLS() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(folder("client.pem"), folder("client.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	root, err := os.ReadFile(folder("ca.pem"))
	if err != nil {
		return nil, err
	}
	if !roots.AppendCertsFromPEM(root) {
		return nil, fmt.Errorf("no root in ca.pem")
	}
	return &tls.Config{RootCAs: roots, ServerName: "a", Certificates: []tls.Certificate{cert}}, nil
}
