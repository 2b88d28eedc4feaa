package identity

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"sluice/internal/meshtest"
)

// An idle sidecar looks at its files each second: unless they changed, that parses nothing.
func TestFilesThatDidNotChangeAreNotParsedAgain(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &Files{Chain: filepath.Join(dir, "cert-chain.pem"), Key: filepath.Join(dir, "key.pem"), Root: filepath.Join(dir, "root-cert.pem")}
	s := NewSource(Options{Mounted: f})
	look := func() *state {
		t.Helper()
		if err := s.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.current.Load()
	}
	put(t, f.Root, ca.RootPEM)
	mount(t, ca, f)
	first, same := look(), look()
	if first.own != same.own || first.root != same.root {
		t.Error("the same files were parsed again")
	}
	put(t, f.Root, append(ca.RootPEM, '\n'))
	if root := look(); root.root == first.root || root.own != first.own {
		t.Error("a new root must be parsed, and it alone")
	}
	mount(t, ca, f)
	if look().own == first.own {
		t.Error("a new certificate wasn't parsed")
	}
	if n := len(s.out); n != 4 {
		t.Errorf("%d secrets were sent, want both, the root and the certificate", n)
	}
}

func mount(t *testing.T, ca *meshtest.CA, f *Files) {
	t.Helper()
	c, err := ca.Workload("spiffe://cluster.local/ns/demo/sa/a")
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	put(t, f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	put(t, f.Chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
}

func put(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
