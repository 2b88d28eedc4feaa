package config

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

// TLSParams are the common parameters of both directions. Min and Max are
// crypto/tls version numbers; Ciphers are TLS 1.2 suites in order, nil for
// the default.
type TLSParams struct {
	Min, Max     uint16
	Ciphers      []uint16
	EqualCiphers [][]uint16 // groups of equal preference in Ciphers: there the client's order counts
	Curves       []tls.CurveID
	ALPN         []string
	Certificates []SecretRef // own certificates: SDS names or inline
	Validation   *Validation // nil: the peer isn't verified
	Tickets      SecretRef   // of a server: session_ticket_keys; empty: keys of its own
}

// SecretRef names a secret, or holds it. Name goes through Snapshot.Secrets
// (SDS, or identity for "default" and "ROOTCA").
type SecretRef struct {
	Name    string
	Inline  *Secret
	Source  SecretSource
	Path    string        // of SecretFile
	Cluster string        // of SecretAgent: the SDS server, where no agent is in this process
	Wait    time.Duration // initial_fetch_timeout: 15 s when absent, 0: for ever
}

// SecretSource says who supplies a named secret.
type SecretSource uint8

// The sources.
const (
	SecretStatic SecretSource = iota // the bootstrap's static_resources
	SecretADS                        // the ADS stream
	SecretAgent                      // identity, in place of an SDS server beside us
	SecretFile                       // a file with a discovery response, watched
)

// DownstreamTLS terminates TLS.
type DownstreamTLS struct {
	TLSParams
	RequireClientCert bool
	RequireSNI        bool
	DisableTickets    bool
	SessionTimeout    int // seconds; 0: default
	PreferClientOrder bool
	OCSPStaple        bool
	FullScan          bool // full_scan_certs_on_sni_mismatch
}

// UpstreamTLS originates TLS.
type UpstreamTLS struct {
	TLSParams
	SNI            string
	AutoHostSNI    bool // auto_host_sni: endpoint's hostname
	AutoSAN        bool // auto_sni_san_validation
	MaxSessionKeys int  // 1 when absent
}

// Validation is a CertificateValidationContext. Roots comes from Ref when that
// is named.
type Validation struct {
	Ref            SecretRef // SDS part (combined or alone)
	Roots          *x509.CertPool
	RootsPEM       []byte
	RootsPath      string // the file they came from; "" for none
	SystemRoots    bool
	SANs           []SANMatch // any must match; none: not checked
	SPKI           [][32]byte
	CertHashes     [][32]byte
	CRLs           []*x509.RevocationList
	CRLLeafOnly    bool
	AcceptUntrust  bool // trust_chain_verification: ACCEPT_UNTRUSTED
	AllowExpired   bool
	MaxDepth       int
	HasTrustAnchor bool
}

// SANType is the type of a subject alternative name.
type SANType uint8

// The SAN types; SANAny is the deprecated untyped match.
const (
	SANAny SANType = iota
	SANDNS
	SANURI
	SANEmail
	SANIP
)

// SANMatch is one typed SAN matcher.
type SANMatch struct {
	Type  SANType
	Match StringMatch
}

// Secret is an SDS resource: Certificate or Validation or TicketKeys is set.
type Secret struct {
	Meta
	Certificate *tls.Certificate // Leaf parsed
	ChainPEM    []byte
	ChainPath   string // the file the chain came from; "" for none
	Validation  *Validation
	TicketKeys  [][]byte
	Generic     []byte
}
