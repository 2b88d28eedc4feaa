package identity_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crypto/x509"

	"sluice/internal/config"
	"sluice/internal/identity"
	"sluice/internal/meshtest"
)

const id = "spiffe://cluster.local/ns/demo/sa/a"

// mesh starts a CA that takes "good" tokens, and gives a peer that has one.
func mesh(t *testing.T, lifetime time.Duration) (*meshtest.Plane, *identity.Peer) {
	t.Helper()
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	ca.Lifetime = lifetime
	plane, err := meshtest.Start(meshtest.Options{CA: ca, Token: "good"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Close)
	dir := t.TempDir()
	write(t, dir+"/root.pem", ca.RootPEM)
	write(t, dir+"/token", []byte("good\n"))
	return plane, &identity.Peer{Address: plane.Address, RootFile: dir + "/root.pem", TokenFile: dir + "/token", Metadata: map[string]string{"ClusterID": "Kubernetes"}}
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	aside := name + ".new"
	if err := os.WriteFile(aside, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, name); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, o identity.Options) *identity.Source {
	t.Helper()
	o.Logf = t.Logf
	s := identity.NewSource(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Error("Run doesn't end")
		}
	})
	return s
}

func next(t *testing.T, s *identity.Source, name string) *config.Secret {
	t.Helper()
	deadline := time.After(15 * time.Second)
	for {
		select {
		case x := <-s.Secrets():
			if x.Name == name {
				return x
			}
		case <-deadline:
			t.Fatalf("no secret %q: %s", name, s.Problem())
		}
	}
}

func TestCertificateIsSignedForTheAskedIdentity(t *testing.T) {
	_, peer := mesh(t, 0)
	s := run(t, identity.Options{ID: id, CA: peer})
	root, own := next(t, s, identity.RootSecret), next(t, s, identity.DefaultSecret)
	leaf := own.Certificate.Leaf
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != id {
		t.Errorf("URIs %v", leaf.URIs)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: root.Validation.Roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("the certificate doesn't verify with ROOTCA: %v", err)
	}
	if d := time.Until(leaf.NotAfter); d < 23*time.Hour || d > 25*time.Hour {
		t.Errorf("lifetime %v, asked for 24h", d)
	}
	if s.Certificate() != own.Certificate || s.Problem() != "" || s.Expiry() != leaf.NotAfter {
		t.Errorf("certificate, problem %q or expiry don't agree", s.Problem())
	}
}

func TestCertificateIsRenewedBeforeItExpires(t *testing.T) {
	_, peer := mesh(t, 3*time.Second)
	s := run(t, identity.Options{ID: id, CA: peer})
	first := next(t, s, identity.DefaultSecret)
	began := time.Now()
	second := next(t, s, identity.DefaultSecret)
	if first.Hash == second.Hash || first.Certificate.Leaf.Equal(second.Certificate.Leaf) {
		t.Error("the same certificate again")
	}
	if took := time.Since(began); took > 2900*time.Millisecond {
		t.Errorf("renewed after %v, past the half of 3s", took)
	}
}

func TestFailuresAreToldInWordsAndOvercome(t *testing.T) {
	tests := map[string]struct {
		spoil, repair func(*testing.T, *meshtest.Plane, *identity.Peer)
		want          string
	}{
		"a rejected token, then a good one in the same file": {
			func(t *testing.T, _ *meshtest.Plane, p *identity.Peer) { write(t, p.TokenFile, []byte("stale")) },
			func(t *testing.T, _ *meshtest.Plane, p *identity.Peer) { write(t, p.TokenFile, []byte("good")) },
			"token rejected: authentication failure",
		},
		"an untrusted server, then its root": {
			func(t *testing.T, _ *meshtest.Plane, p *identity.Peer) {
				other, err := meshtest.NewCA()
				if err != nil {
					t.Fatal(err)
				}
				write(t, p.RootFile, other.RootPEM)
			},
			func(t *testing.T, m *meshtest.Plane, p *identity.Peer) { write(t, p.RootFile, m.CA.RootPEM) },
			"not trusted",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plane, peer := mesh(t, 0)
			tt.spoil(t, plane, peer)
			s := run(t, identity.Options{ID: id, CA: peer})
			problem(t, s, tt.want)
			tt.repair(t, plane, peer)
			next(t, s, identity.DefaultSecret)
		})
	}
}

// problem waits until the source says want.
func problem(t *testing.T, s *identity.Source, want string) {
	t.Helper()
	for deadline := time.Now().Add(8 * time.Second); !strings.Contains(s.Problem(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("problem %q, want %q", s.Problem(), want)
		}
	}
}

func TestConnectionRefusedIsSaid(t *testing.T) {
	plane, peer := mesh(t, 0)
	plane.Close()
	s := run(t, identity.Options{ID: id, CA: peer})
	problem(t, s, "connection refused: "+peer.Address)
}

func TestEveryRotationOfMountedFilesIsSeen(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &identity.Files{Chain: filepath.Join(dir, "cert-chain.pem"), Key: filepath.Join(dir, "key.pem"), Root: filepath.Join(dir, "root-cert.pem")}
	write(t, f.Root, ca.RootPEM)
	mount := func() *tls.Certificate {
		c, err := ca.Workload(id)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		// The two files never change at once: in between the pair is broken.
		write(t, f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		write(t, f.Chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
		return c
	}
	want := mount()
	s := run(t, identity.Options{ID: id, Mounted: f})
	for range 3 {
		got := next(t, s, identity.DefaultSecret)
		if !got.Certificate.Leaf.Equal(want.Leaf) {
			t.Fatal("not the mounted certificate")
		}
		want = mount()
	}
}

// TestACutFileIsNoRotation: a file that is being written is not a shorter one.
func TestACutFileIsNoRotation(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ca.Workload(id)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &identity.Files{Chain: filepath.Join(dir, "cert-chain.pem"), Key: filepath.Join(dir, "key.pem"), Root: filepath.Join(dir, "root-cert.pem")}
	leaf := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
	cut := string(ca.RootPEM[:len(ca.RootPEM)/2])
	write(t, f.Root, ca.RootPEM)
	write(t, f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	write(t, f.Chain, []byte(string(leaf)+cut))
	s := run(t, identity.Options{ID: id, Mounted: f})
	problem(t, s, "loading the certificate: a PEM block is cut short")
	write(t, f.Chain, leaf)
	next(t, s, identity.DefaultSecret)
	write(t, f.Root, []byte(string(ca.RootPEM)+cut))
	problem(t, s, "reading the root bundle: a PEM block is cut short")
}
