package conform

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

const spiffe = "spiffe://cluster.local/ns/bench/sa/"

// identity is a certificate and its key.
type certKey struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// leafSpec is what a leaf certificate says. Days are from now.
type leafSpec struct {
	file, account string
	dns           []string
	commonName    string
	from, until   int
	usages        []x509.ExtKeyUsage
	rsa           bool
}

// pki makes the test certificates as files by name: NAME.pem and NAME.key.
type pki struct {
	files map[string][]byte
	err   error
}

// newPKI makes all certificates a case may name.
func newPKI() (map[string][]byte, error) {
	p := &pki{files: map[string][]byte{}}
	ca, stranger := p.authority("conform-ca", nil), p.authority("stranger-ca", nil)
	if p.err != nil {
		return nil, p.err
	}
	example := []string{"server.example"}
	p.write("ca", ca)
	p.write("stranger-ca", stranger)
	p.write("bundle", ca, stranger)
	p.write("stranger", p.leaf(leafSpec{account: "stranger", dns: example}, stranger))
	for _, l := range []leafSpec{
		{file: "server", account: "server", dns: example},
		{file: "client", account: "client"},
		{file: "other", account: "other"},
		{file: "expired", account: "client", dns: example, from: -10, until: -5},
		{file: "future", account: "client", dns: example, from: 5, until: 10},
		{file: "second", dns: []string{"second.example", "*.wild.example"}},
		{file: "rsa", account: "rsa", dns: example, rsa: true},
		{file: "nosan", commonName: "server.example"},
		{file: "client-only", account: "server", dns: example, usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		{file: "server-only", account: "client", usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
	} {
		p.write(l.file, p.leaf(l, ca))
	}
	middle := p.authority("conform-intermediate", ca)
	p.write("chained", p.leaf(leafSpec{account: "client", dns: example}, middle), middle)
	p.write("chainless", p.leaf(leafSpec{account: "client", dns: example}, middle))
	parent := p.leaf(leafSpec{account: "client"}, ca)
	p.write("under-leaf", p.leaf(leafSpec{account: "client", dns: example}, parent), parent)
	revoked := p.leaf(leafSpec{account: "client", dns: example}, ca)
	p.write("revoked", revoked)
	p.revocations("crl", ca, revoked)
	return p.files, p.err
}

// authority is self-signed, or an intermediate of parent.
func (p *pki) authority(name string, parent *certKey) *certKey {
	key := p.ecKey()
	return p.sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             days(-1),
		NotAfter:              days(30),
		BasicConstraintsValid: true,
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, key, parent)
}

func (p *pki) leaf(l leafSpec, ca *certKey) *certKey {
	name := l.commonName
	if name == "" {
		name = l.account
	}
	if name == "" {
		name = l.dns[0]
	}
	if l.from == 0 {
		l.from, l.until = -1, 30
	}
	if l.usages == nil {
		l.usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	cert := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"conform"}, CommonName: name},
		NotBefore:             days(l.from),
		NotAfter:              days(l.until),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           l.usages,
		ExtraExtensions:       p.names(l),
	}
	key := p.ecKey()
	if l.rsa {
		cert.KeyUsage |= x509.KeyUsageKeyEncipherment
		if key, p.err = rsa.GenerateKey(rand.Reader, 2048); p.err != nil {
			return nil
		}
	}
	return p.sign(cert, key, ca)
}

// names is the SAN extension by hand, the URI first: what lists certificates
// shows their names in the order they stand in.
func (p *pki) names(l leafSpec) []pkix.Extension {
	var names []asn1.RawValue
	if l.account != "" {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(spiffe + l.account)})
	}
	for _, n := range l.dns {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte(n)})
	}
	if names == nil {
		return nil
	}
	der, err := asn1.Marshal(names)
	p.note(err)
	return []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: der}}
}

func (p *pki) sign(cert *x509.Certificate, key crypto.Signer, ca *certKey) *certKey {
	if p.err != nil {
		return nil
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 159))
	p.note(err)
	cert.SerialNumber = serial
	parent, signer := cert, key
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), signer)
	if p.note(err); err != nil {
		return nil
	}
	made, err := x509.ParseCertificate(der)
	p.note(err)
	return &certKey{made, key}
}

func (p *pki) ecKey() crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.note(err)
	return key
}

// write keeps the certificate with those above it, and its key.
func (p *pki) write(name string, c *certKey, above ...*certKey) {
	if p.err != nil {
		return
	}
	var chain bytes.Buffer
	for _, one := range append([]*certKey{c}, above...) {
		p.note(pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: one.cert.Raw}))
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	p.note(err)
	p.files[name+".pem"] = chain.Bytes()
	p.files[name+".key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
}

func (p *pki) revocations(name string, ca, revoked *certKey) {
	if p.err != nil {
		return
	}
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number:     big.NewInt(1),
		ThisUpdate: days(-1),
		NextUpdate: days(30),
		RevokedCertificateEntries: []x509.RevocationListEntry{
			{SerialNumber: revoked.cert.SerialNumber, RevocationTime: time.Now().Add(-time.Hour)},
		},
	}, ca.cert, ca.key)
	p.note(err)
	p.files[name+".pem"] = pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

func (p *pki) note(err error) {
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("making the test certificates: %w", err)
	}
}

func days(n int) time.Time { return time.Now().Add(time.Duration(n) * 24 * time.Hour) }

// writeFiles puts every file into the folder.
func writeFiles(folder string, files map[string][]byte) error {
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
