package controlplane

import (
	"context"
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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	security "istio.io/api/security/v1alpha1"
)

// CA signs workload certificates for the bearers of tokens that it gave out. It
// is istiod's certificate service: the SPIFFE id is the token's, whatever the
// request asks for.
type CA struct {
	security.UnimplementedIstioCertificateServiceServer
	// Life is how long certificates are valid; it may be changed before use.
	Life   time.Duration
	hosts  []string
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	serial atomic.Int64
	mu     sync.Mutex
	tokens map[string]string // token → SPIFFE id
}

// NewCA makes an authority whose own server certificate is valid for hosts,
// names and IP addresses.
func NewCA(hosts ...string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the authority's key: %w", err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "embedded root"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the root: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	c := &CA{Life: 24 * time.Hour, hosts: hosts, key: key, cert: cert, tokens: map[string]string{}}
	c.serial.Store(1)
	return c, nil
}

// RootPEM is the trust anchor, which pods find as root-cert.pem.
func (c *CA) RootPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

// Token makes a token for a service account.
func (c *CA) Token(namespace, account string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := "embedded-" + namespace + "-" + account + "-" + rand.Text()
	c.tokens[token] = "spiffe://cluster.local/ns/" + namespace + "/sa/" + account
	return token
}

// identify finds whose token a call carries.
func (c *CA) identify(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	var bearer string
	if v := md.Get("authorization"); len(v) > 0 {
		bearer = strings.TrimPrefix(v[0], "Bearer ")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.tokens[strings.TrimSpace(bearer)]; ok {
		return id, nil
	}
	return "", status.Error(codes.Unauthenticated, "authentication failure: the token is not one of ours")
}

// CreateCertificate signs a CSR: leaf first, root last.
func (c *CA) CreateCertificate(ctx context.Context, in *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	id, err := c.identify(ctx)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(in.GetCsr()))
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "csr: no PEM block")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "csr: %v", err)
	}
	uri, err := url.Parse(id)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "identity %q: %v", id, err)
	}
	leaf, err := c.sign(&x509.Certificate{URIs: []*url.URL{uri}}, csr.PublicKey)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "signing: %v", err)
	}
	return &security.IstioCertificateResponse{CertChain: []string{
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf})), string(c.RootPEM()),
	}}, nil
}

func (c *CA) sign(t *x509.Certificate, key any) ([]byte, error) {
	t.SerialNumber = big.NewInt(c.serial.Add(1))
	t.NotBefore, t.NotAfter = time.Now().Add(-2*time.Minute), time.Now().Add(c.Life)
	t.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return x509.CreateCertificate(rand.Reader, t, c.cert, key, c.key)
}

// Server is the control plane's own certificate.
func (c *CA) Server() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{}
	for _, h := range c.hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := c.sign(t, key.Public())
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
