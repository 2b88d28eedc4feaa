//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"sluice/internal/config"
)

func (s scope) secret(m *tlsv3.Secret) *config.Secret {
	out := &config.Secret{}
	switch x := m.GetType().(type) {
	case *tlsv3.Secret_TlsCertificate:
		if c := s.at("tls_certificate").certificate(x.TlsCertificate); c != nil {
			out = c
		}
	case *tlsv3.Secret_ValidationContext:
		out.Validation = s.at("validation_context").validation(x.ValidationContext)
	case *tlsv3.Secret_SessionTicketKeys:
		out.TicketKeys = s.at("session_ticket_keys").ticketKeys(x.SessionTicketKeys)
	case *tlsv3.Secret_GenericSecret:
		out.Generic, _ = s.at("generic_secret.secret").data(x.GenericSecret.GetSecret())
	default:
		s.bad("a secret needs tls_certificate, validation_context, session_ticket_keys or generic_secret")
	}
	out.Name = m.GetName()
	return out
}

func (s scope) ticketKeys(m *tlsv3.TlsSessionTicketKeys) (out [][]byte) {
	for i, k := range m.GetKeys() {
		b, _ := s.index("keys", i).data(k)
		if len(b) != 80 {
			s.index("keys", i).bad("incorrect TLS session ticket key length: %d, want 80", len(b))
		}
		out = append(out, b)
	}
	return out
}

// certificate loads a key pair and checks that the key fits.
func (s scope) certificate(m *tlsv3.TlsCertificate) *config.Secret {
	s.unsupported(m.GetPrivateKeyProvider() != nil, "private_key_provider", "keys that aren't here")
	s.unsupported(m.GetPkcs12() != nil, "pkcs12", "PKCS #12")
	chain, _ := s.at("certificate_chain").data(m.GetCertificateChain())
	key, _ := s.at("private_key").data(m.GetPrivateKey())
	if len(chain) == 0 || len(key) == 0 {
		s.bad("certificate_chain and private_key must both be there")
		return nil
	}
	cert, err := keyPair(chain, key)
	if err != nil {
		s.bad("failed to load certificate chain or private key: %v", err)
		return nil
	}
	if staple, ok := s.at("ocsp_staple").data(m.GetOcspStaple()); ok {
		cert.OCSPStaple = staple
	}
	return &config.Secret{Certificate: cert, ChainPEM: chain, ChainPath: m.GetCertificateChain().GetFilename()}
}

func keyPair(chain, key []byte) (*tls.Certificate, error) {
	if _, err := config.PEMBlocks(chain); err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		if bytes.Contains(key, []byte("ENCRYPTED")) {
			return nil, errors.New("not supported yet: encrypted keys")
		}
		return nil, err
	}
	if cert.Leaf == nil {
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &cert, nil
}

func (s scope) validation(m *tlsv3.CertificateValidationContext) *config.Validation {
	s.unsupported(m.GetCustomValidatorConfig() != nil, "custom_validator_config", "validators of one's own")
	s.unsupported(m.GetCaCertificateProviderInstance() != nil, "ca_certificate_provider_instance", "certificate providers")
	s.unsupported(boolean(m.GetRequireSignedCertificateTimestamp(), false), "require_signed_certificate_timestamp", "Envoy doesn't implement it either")
	out := &config.Validation{
		SystemRoots:   m.GetSystemRootCerts() != nil,
		CRLLeafOnly:   m.GetOnlyVerifyLeafCertCrl(),
		AcceptUntrust: m.GetTrustChainVerification() == tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED,
		AllowExpired:  m.GetAllowExpiredCertificate(),
		MaxDepth:      100,
	}
	if d := m.GetMaxVerifyDepth(); d != nil {
		out.MaxDepth = capped(d.Value)
	}
	s.trustedCA(m.GetTrustedCa(), out)
	for i, x := range m.GetMatchTypedSubjectAltNames() {
		out.SANs = append(out.SANs, s.index("match_typed_subject_alt_names", i).typedSAN(x))
	}
	if len(out.SANs) == 0 { // the typed list wins
		for i, x := range m.GetMatchSubjectAltNames() {
			out.SANs = append(out.SANs, config.SANMatch{Match: *s.index("match_subject_alt_names", i).stringMatch(x)})
		}
	}
	for i, h := range m.GetVerifyCertificateSpki() {
		out.SPKI = append(out.SPKI, s.index("verify_certificate_spki", i).sha256(base64.StdEncoding.DecodeString, h, "SPKI"))
	}
	for i, h := range m.GetVerifyCertificateHash() {
		h = strings.ReplaceAll(h, ":", "")
		out.CertHashes = append(out.CertHashes, s.index("verify_certificate_hash", i).sha256(hex.DecodeString, h, "SHA-256"))
	}
	out.CRLs = s.at("crl").crls(m.GetCrl())
	if len(out.CRLs) > 0 && !out.HasTrustAnchor && m.GetTrustedCa() == nil {
		s.at("crl").bad("failed to load CRL without trusted CA")
	}
	return out
}

func (s scope) trustedCA(d *core.DataSource, out *config.Validation) {
	out.HasTrustAnchor = out.SystemRoots
	if d == nil {
		return
	}
	s = s.at("trusted_ca")
	b, ok := s.data(d)
	if !ok {
		return
	}
	pool, err := roots(b)
	if err != nil {
		s.bad("failed to load trusted CA certificates: %v", err)
		return
	}
	out.Roots, out.RootsPEM, out.RootsPath, out.HasTrustAnchor = pool, b, d.GetFilename(), true
}

// roots parses a bundle, of which every certificate must be one.
func roots(bundle []byte) (*x509.CertPool, error) {
	blocks, err := config.PEMBlocks(bundle)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	n := 0
	for _, block := range blocks {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, errors.New("no certificate in the bundle")
	}
	return pool, nil
}

func (s scope) typedSAN(m *tlsv3.SubjectAltNameMatcher) config.SANMatch {
	out := config.SANMatch{Match: *s.at("matcher").stringMatch(m.GetMatcher())}
	switch m.GetSanType() {
	case tlsv3.SubjectAltNameMatcher_EMAIL:
		out.Type = config.SANEmail
	case tlsv3.SubjectAltNameMatcher_DNS:
		out.Type = config.SANDNS
	case tlsv3.SubjectAltNameMatcher_URI:
		out.Type = config.SANURI
	case tlsv3.SubjectAltNameMatcher_IP_ADDRESS:
		out.Type = config.SANIP
	default:
		s.at("san_type").bad("not supported yet: %s", m.GetSanType())
	}
	return out
}

func (s scope) sha256(decode func(string) ([]byte, error), text, what string) (out [32]byte) {
	b, err := decode(text)
	if err != nil || len(b) != len(out) {
		s.bad("invalid %s hash %s", what, text)
		return out
	}
	copy(out[:], b)
	return out
}

func (s scope) crls(d *core.DataSource) []*x509.RevocationList {
	if d == nil {
		return nil
	}
	b, ok := s.data(d)
	if !ok {
		return nil
	}
	blocks, err := config.PEMBlocks(b)
	if err != nil {
		s.bad("failed to load CRL: %v", err)
	}
	var out []*x509.RevocationList
	for _, block := range blocks {
		l, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			s.bad("failed to load CRL: %v", err)
			return out
		}
		out = append(out, l)
	}
	if len(blocks) == 0 && err == nil {
		s.bad("failed to load CRL: nothing in PEM")
	}
	return out
}
