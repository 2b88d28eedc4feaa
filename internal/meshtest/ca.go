package meshtest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	security "istio.io/api/security/v1alpha1"
)

// CA is a root that signs workload certificates as istiod does.
type CA struct {
	RootPEM []byte
	// Lifetime of signed certificates; the asked-for one when 0.
	Lifetime time.Duration
	// Signed counts the certificates given out.
	Signed atomic.Int64

	key    crypto.Signer
	root   *x509.Certificate
	mu     sync.Mutex
	tokens map[string]string // → SPIFFE id
}

// NewCA makes a root.
func NewCA() (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"cluster.local"}},
		NotBefore: time.Now().Add(-2 * time.Minute), NotAfter: time.Now().Add(240 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the root: %w", err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing the root: %w", err)
	}
	return &CA{RootPEM: certPEM(der), key: key, root: root}, nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Server gives a server certificate for DNS names and IP addresses.
func (c *CA) Server(names ...string) (*tls.Certificate, error) {
	return c.issue(names, "")
}

// Workload gives a certificate and key for a SPIFFE id.
func (c *CA) Workload(id string) (*tls.Certificate, error) { return c.issue(nil, id) }

func (c *CA) issue(names []string, id string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := c.sign(key.Public(), names, id, time.Hour)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func (c *CA) sign(key crypto.PublicKey, names []string, id string, ttl time.Duration) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-2 * time.Minute), NotAfter: time.Now().Add(ttl),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		ip := net.ParseIP(n)
		if ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		}
		return ip != nil
	})
	t.DNSNames = names
	if id != "" {
		u, err := url.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("identity %q: %w", id, err)
		}
		t.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, c.root, key, c.key)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	c.Signed.Add(1)
	return der, nil
}

// Token makes a token for a service account: certificates for its bearer carry
// that identity, whatever is asked for.
func (c *CA) Token(namespace, account string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := "embedded-" + namespace + "-" + account + "-" + rand.Text()
	if c.tokens == nil {
		c.tokens = map[string]string{}
	}
	c.tokens[token] = "spiffe://cluster.local/ns/" + namespace + "/sa/" + account
	return token
}

// holder gives the identity of a token, "" for none; some says that there are
// tokens. c may be nil.
func (c *CA) holder(token string) (id string, some bool) {
	if c == nil {
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tokens[token], len(c.tokens) > 0
}

// signer is istiod's certificate service.
type signer struct {
	security.UnimplementedIstioCertificateServiceServer
	ca    *CA
	plane *Plane
}

// CreateCertificate signs a CSR: leaf first, root last.
func (s signer) CreateCertificate(ctx context.Context, in *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	id, err := s.plane.identify(ctx)
	if err != nil {
		return nil, err
	}
	b, _ := pem.Decode([]byte(in.GetCsr()))
	if b == nil {
		return nil, status.Error(codes.InvalidArgument, "csr: no PEM block")
	}
	r, err := x509.ParseCertificateRequest(b.Bytes)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "csr: %v", err)
	}
	if id == "" {
		if len(r.URIs) != 1 {
			return nil, status.Error(codes.InvalidArgument, "csr: wants one URI")
		}
		id = r.URIs[0].String()
	}
	ttl := time.Duration(in.GetValidityDuration()) * time.Second
	if s.ca.Lifetime > 0 {
		ttl = s.ca.Lifetime
	}
	der, err := s.ca.sign(r.PublicKey, nil, id, ttl)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &security.IstioCertificateResponse{CertChain: []string{string(certPEM(der)), string(s.ca.RootPEM)}}, nil
}
