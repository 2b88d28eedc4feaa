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
	"net/url"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// CA is a root that signs workload certificates as istiod does.
type CA struct {
	RootPEM []byte
	// Lifetime of signed certificates; the asked-for one when 0.
	Lifetime time.Duration
	// Signed counts the certificates given out.
	Signed atomic.Int64

	key  crypto.Signer
	root *x509.Certificate
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

// Server gives a server certificate for DNS names.
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
		SerialNumber: serial, DNSNames: names, NotBefore: time.Now().Add(-2 * time.Minute), NotAfter: time.Now().Add(ttl),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
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

// register adds istio.v1.auth.IstioCertificateService. Its messages are read and
// written as wire bytes, in the unknown fields of an empty message.
func (c *CA) register(s *grpc.Server) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "istio.v1.auth.IstioCertificateService",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "CreateCertificate", Handler: func(_ any, ctx context.Context, dec func(any) error, wrap grpc.UnaryServerInterceptor) (any, error) {
			in := &emptypb.Empty{}
			if err := dec(in); err != nil {
				return nil, err
			}
			handle := func(_ context.Context, req any) (any, error) { return c.create(req.(*emptypb.Empty)) }
			if wrap == nil {
				return handle(ctx, in)
			}
			return wrap(ctx, in, &grpc.UnaryServerInfo{FullMethod: "CreateCertificate"}, handle)
		}}},
	}, c)
}

func (c *CA) create(in *emptypb.Empty) (*emptypb.Empty, error) {
	csr, ttl := readRequest(in.ProtoReflect().GetUnknown())
	if c.Lifetime > 0 {
		ttl = c.Lifetime
	}
	b, _ := pem.Decode(csr)
	if b == nil {
		return nil, status.Error(codes.InvalidArgument, "CSR isn't PEM")
	}
	r, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil || r.CheckSignature() != nil || len(r.URIs) != 1 {
		return nil, status.Error(codes.InvalidArgument, "CSR is broken")
	}
	der, err := c.sign(r.PublicKey, nil, r.URIs[0].String(), ttl)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	var out []byte
	for _, p := range [][]byte{certPEM(der), c.RootPEM} {
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, p)
	}
	reply := &emptypb.Empty{}
	reply.ProtoReflect().SetUnknown(out)
	return reply, nil
}

func readRequest(b []byte) (csr []byte, ttl time.Duration) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return csr, ttl
		}
		b = b[n:]
		switch {
		case num == 1 && typ == protowire.BytesType:
			csr, n = protowire.ConsumeBytes(b)
		case num == 3 && typ == protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(b)
			ttl = time.Duration(v) * time.Second
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return csr, ttl
		}
		b = b[n:]
	}
	return csr, ttl
}
