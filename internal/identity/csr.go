package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"strings"

	"sluice/internal/config"
)

// Names of the workload's own secrets.
const (
	DefaultSecret = "default"
	RootSecret    = "ROOTCA"
)

// SPIFFE gives the id of a service account.
func SPIFFE(trustDomain, namespace, account string) string {
	return "spiffe://" + trustDomain + "/ns/" + namespace + "/sa/" + account
}

// newKey makes a P-256 key, or an RSA key of rsaBits when that isn't 0.
func newKey(rsaBits int) (crypto.Signer, error) {
	if rsaBits > 0 {
		return rsa.GenerateKey(rand.Reader, rsaBits)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// newCSR gives a certificate request in PEM for an id.
func newCSR(key crypto.Signer, id string) ([]byte, error) {
	u, err := url.Parse(id)
	if err != nil {
		return nil, fmt.Errorf("identity %q: %w", id, err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{u}}, key)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// fromChain joins a signed chain (leaf first, root last) and its key into the
// two secrets of a workload.
func fromChain(chain []string, key crypto.Signer) (own, root *config.Secret, err error) {
	last := len(chain) - 1
	certPEM := []byte(joinPEM(chain[:last]))
	cert := &tls.Certificate{PrivateKey: key}
	blocks, err := config.PEMBlocks(certPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the CA's chain: %w", err)
	}
	for _, b := range blocks {
		cert.Certificate = append(cert.Certificate, b.Bytes)
	}
	if len(cert.Certificate) == 0 {
		return nil, nil, errors.New("no certificate in the CA's chain")
	}
	if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
		return nil, nil, fmt.Errorf("parsing the signed certificate: %w", err)
	}
	if !sameKey(cert.Leaf.PublicKey, key.Public()) {
		return nil, nil, errors.New("the signed certificate is for another key")
	}
	root, err = rootSecret([]byte(joinPEM(chain[last:])), nil)
	if err != nil {
		return nil, nil, err
	}
	return ownSecret(cert, certPEM), root, nil
}

func sameKey(a, b crypto.PublicKey) bool {
	e, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && e.Equal(b)
}

func joinPEM(parts []string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strings.TrimSpace(p))
		b.WriteByte('\n')
	}
	return b.String()
}

func ownSecret(c *tls.Certificate, chain []byte) *config.Secret {
	h := hash(chain)
	return &config.Secret{Meta: config.Meta{Name: DefaultSecret, Hash: h, Version: fmt.Sprintf("%x", h)}, Certificate: c, ChainPEM: chain}
}

// rootSecret makes the validation context of a bundle and, when there is one,
// a list of revoked certificates.
func rootSecret(bundle, crl []byte) (*config.Secret, error) {
	if _, err := config.PEMBlocks(bundle); err != nil {
		return nil, fmt.Errorf("reading the root bundle: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, errors.New("no certificate in the root bundle")
	}
	v := &config.Validation{Roots: pool, RootsPEM: bundle, HasTrustAnchor: true, MaxDepth: 100}
	lists, err := config.PEMBlocks(crl)
	if err != nil {
		return nil, fmt.Errorf("reading the revocation list: %w", err)
	}
	for _, b := range lists {
		l, err := x509.ParseRevocationList(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing the revocation list: %w", err)
		}
		v.CRLs = append(v.CRLs, l)
	}
	h := hash(bundle, crl)
	return &config.Secret{Meta: config.Meta{Name: RootSecret, Hash: h, Version: fmt.Sprintf("%x", h)}, Validation: v}, nil
}

func hash(parts ...[]byte) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum64()
}
