package tlsconn

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"time"
)

// State is the outcome of a handshake. It is immutable. After a failure it
// holds what was known of the peer by then.
type State struct {
	Version uint16 // crypto/tls numbers
	Cipher  uint16
	Curve   tls.CurveID
	SNI     string
	ALPN    string // agreed protocol, "" if none
	Resumed bool
	Session string // hex id, %DOWNSTREAM_TLS_SESSION_ID%
	Peer    []*x509.Certificate
	// Verified: Peer was checked and is trusted.
	Verified bool

	// Of the peer's leaf; empty without one.
	PeerURIs, PeerDNS []string
	PeerSubject       string // RFC 2253, as Envoy prints it
	PeerIssuer        string
	PeerSerial        string // hex
	PeerHash          string // hex SHA-256 of the DER

	// Of our certificate.
	LocalURIs, LocalDNS []string
	LocalSubject        string
}

// PeerURI is the peer's first URI SAN (its SPIFFE id in a mesh), or "".
func (t *State) PeerURI() string {
	if t == nil || len(t.PeerURIs) == 0 {
		return ""
	}
	return t.PeerURIs[0]
}

// LocalURI is our first URI SAN, or "".
func (t *State) LocalURI() string {
	if t == nil || len(t.LocalURIs) == 0 {
		return ""
	}
	return t.LocalURIs[0]
}

// describe gathers the state on the handshake's goroutine: hashing and printing
// are not the worker's work.
func describe(cs tls.ConnectionState, h *handshake) *State {
	s := &State{Version: cs.Version, Cipher: cs.CipherSuite, Curve: cs.CurveID, SNI: cs.ServerName, ALPN: cs.NegotiatedProtocol, Resumed: cs.DidResume}
	if id := h.peer; id != nil {
		s.Peer, s.PeerURIs, s.PeerDNS, s.PeerSubject = id.certs, id.uris, id.dns, id.subject
		s.PeerIssuer, s.PeerSerial, s.PeerHash = id.issuer, id.serial, id.hash
	}
	s.Verified = cs.HandshakeComplete && len(s.Peer) > 0 && h.verdict == nil && !h.untrusted
	if h.local != nil && h.local.Leaf != nil {
		leaf := h.local.Leaf
		s.LocalURIs, s.LocalDNS, s.LocalSubject = uris(leaf), leaf.DNSNames, leaf.Subject.String()
	}
	return s
}

func uris(c *x509.Certificate) []string {
	var s []string
	for _, u := range c.URIs {
		s = append(s, u.String())
	}
	return s
}

// identity is who a peer is, by its certificates.
type identity struct {
	certs     []*x509.Certificate
	uris, dns []string
	subject   string
	issuer    string
	serial    string
	hash      string
	until     time.Time // trusted without a new look; guarded by verifier.mu
}

func newIdentity(certs []*x509.Certificate) *identity {
	leaf := certs[0]
	sum := sha256.Sum256(leaf.Raw)
	return &identity{certs: certs, uris: uris(leaf), dns: leaf.DNSNames, subject: leaf.Subject.String(), issuer: leaf.Issuer.String(),
		serial: fmt.Sprintf("%x", leaf.SerialNumber), hash: hex.EncodeToString(sum[:])}
}
