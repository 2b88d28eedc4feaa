package tlsconn

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/config"
)

// verifier decides about a peer's certificates as Envoy's default validator
// does: the chain, revocation, pinned hashes, then the subject alternative names.
// It is immutable but for its memory
// of good chains, which lives as long as the trust bundle does.
type verifier struct {
	roots   *x509.CertPool // nil: the chain isn't verified
	crls    []*x509.RevocationList
	sans    []config.SANMatch
	spki    [][32]byte
	hashes  [][32]byte
	leafCRL bool
	accept  bool // ACCEPT_UNTRUSTED
	expired bool
	depth   int

	mu      sync.Mutex
	trusted map[[32]byte]*identity // chains found good, by their bytes and usage
}

// maxTrusted bounds the remembered chains; trustFor how long one isn't verified
// again; maxStrangers how many of a long one's nobody may vouch for before the rest is left.
const (
	maxTrusted = 4096
	trustFor   = time.Minute

	maxStrangers = 16
)

// errNamesAlone refuses a context: who signs his own certificate has any name.
var errNamesAlone = errors.New("SAN-based verification of peer certificates without trusted CA is insecure and not allowed")

// newVerifier joins the configured context with the one its secret gives. nil
// means that the peer isn't verified, an error that there is no safe verifier.
func newVerifier(v *config.Validation, s *config.Secret, missing bool) (*verifier, bool, error) {
	if v == nil {
		return nil, missing, nil
	}
	r := &verifier{}
	r.take(v)
	if v.Ref.Name != "" || v.Ref.Inline != nil {
		if s == nil || s.Validation == nil {
			return r, true, nil
		}
		r.take(s.Validation)
	}
	switch {
	case r.roots == nil && len(r.sans) > 0:
		return nil, true, errNamesAlone
	case r.roots == nil && len(r.spki)+len(r.hashes) == 0:
		return nil, missing, nil
	}
	return r, missing, nil
}

func (r *verifier) take(v *config.Validation) {
	switch {
	case v.Roots != nil:
		r.roots = v.Roots
	case v.SystemRoots && r.roots == nil:
		r.roots = systemRoots()
	}
	r.crls = append(r.crls, v.CRLs...)
	r.sans = append(r.sans, v.SANs...)
	r.spki = append(r.spki, v.SPKI...)
	r.hashes = append(r.hashes, v.CertHashes...)
	r.leafCRL = r.leafCRL || v.CRLLeafOnly
	r.accept = r.accept || v.AcceptUntrust
	r.expired = r.expired || v.AllowExpired
	r.depth = max(r.depth, v.MaxDepth)
}

// systemRoots trusts nobody where the system's can't be read.
func systemRoots() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return x509.NewCertPool()
	}
	return pool
}

// check judges peers and gives who they are. None at all is the caller's affair.
func (r *verifier) check(peers []*x509.Certificate, server bool, sni string, autoSAN bool) (*identity, *Error) {
	if len(peers) == 0 {
		return nil, nil
	}
	if r.accept || r.roots == nil {
		return newIdentity(peers), r.named(peers[0], sni, autoSAN)
	}
	id, e := r.trust(peers, server)
	if e != nil {
		return id, e
	}
	return id, r.named(peers[0], sni, autoSAN)
}

// vouches says whether peers that check lets pass are trusted too: with
// ACCEPT_UNTRUSTED they need not be.
func (r *verifier) vouches(peers []*x509.Certificate, server bool) bool {
	if !r.accept || len(peers) == 0 {
		return true
	}
	if r.roots == nil {
		return false
	}
	_, e := r.trust(peers, server)
	return e == nil
}

// named judges the leaf by what it is pinned to and called.
func (r *verifier) named(leaf *x509.Certificate, sni string, autoSAN bool) *Error {
	if r.accept {
		return nil
	}
	if !r.pinned(leaf) {
		return verifyError(VerifyHash, alertCertUnknown, "cert hash and spki")
	}
	sans := r.sans
	if autoSAN && sni != "" {
		sans = []config.SANMatch{{Type: config.SANDNS, Match: config.StringMatch{Value: sni}}}
	}
	if len(sans) > 0 && !matchSANs(sans, leaf) {
		return verifyError(VerifySAN, alertCertUnknown, "SAN matcher, certificate SANs are ["+strings.Join(allSANs(leaf), ", ")+"]")
	}
	return nil
}

// trust verifies a chain, unless it was found good a moment ago: one signature
// check of the two that a client costs. Connections of one peer share its
// identity, which is most of what an idle TLS connection would hold.
func (r *verifier) trust(peers []*x509.Certificate, server bool) (*identity, *Error) {
	now, key := time.Now(), chainKey(peers, server)
	r.mu.Lock()
	id := r.trusted[key]
	known := id != nil && now.Before(id.until)
	r.mu.Unlock()
	if known {
		return id, nil
	}
	if id == nil {
		id = newIdentity(peers)
	}
	chain, e := r.chain(peers, server)
	if e == nil {
		e = r.revoked(chain)
	}
	if e != nil || r.expired {
		return id, e
	}
	until := r.goodUntil(now, chain)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trusted == nil || len(r.trusted) >= maxTrusted {
		r.trusted = map[[32]byte]*identity{}
	}
	id.until = until
	r.trusted[key] = id
	return id, nil
}

// goodUntil is how long a chain isn't looked at again: no longer than a certificate
// of it, or what a list says about one, is good.
func (r *verifier) goodUntil(now time.Time, chain []*x509.Certificate) time.Time {
	until := now.Add(trustFor)
	for _, c := range chain {
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
		for _, l := range r.crls {
			if bytes.Equal(l.RawIssuer, c.RawSubject) && !l.NextUpdate.IsZero() && l.NextUpdate.Before(until) {
				until = l.NextUpdate
			}
		}
	}
	return until
}

func chainKey(peers []*x509.Certificate, server bool) [32]byte {
	h := sha256.New()
	if server {
		h.Write([]byte{1})
	}
	for _, c := range peers {
		h.Write(c.Raw) // DER tells its own length
	}
	return [32]byte(h.Sum(nil))
}

// chain builds the chain to a trusted root.
func (r *verifier) chain(peers []*x509.Certificate, server bool) ([]*x509.Certificate, *Error) {
	usage := x509.ExtKeyUsageServerAuth
	if server {
		usage = x509.ExtKeyUsageClientAuth
	}
	o := x509.VerifyOptions{Roots: r.roots, Intermediates: r.intermediates(peers), KeyUsages: []x509.ExtKeyUsage{usage}}
	leaf := peers[0]
	if r.expired {
		// The signature is over the raw bytes, so that dates can be moved.
		fresh := *leaf
		fresh.NotBefore, fresh.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		leaf = &fresh
	}
	chains, err := leaf.Verify(o)
	if err != nil {
		return nil, asChainError(err, leaf)
	}
	for _, c := range chains {
		if len(c)-2 <= r.depth {
			return c, nil
		}
	}
	return nil, chainError(alertUnknownCA, r.depth+1, "unable to get local issuer certificate")
}

// intermediates are the certificates between a peer's own and a root. Where they
// are many, only those that a root vouches for, found from there: crypto/x509 goes
// the other way and checks a hundred signatures with keys that the peer made.
func (r *verifier) intermediates(peers []*x509.Certificate) *x509.CertPool {
	pool, rest := x509.NewCertPool(), slices.Clone(peers[1:])
	if len(peers) <= maxQuick {
		for _, c := range rest {
			pool.AddCert(c)
		}
		return pool
	}
	o := x509.VerifyOptions{Roots: r.roots, Intermediates: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	strangers := 0
	vouched := func(c *x509.Certificate) bool {
		if strangers >= maxStrangers {
			return false
		}
		if _, err := c.Verify(o); err != nil {
			strangers++
			return false
		}
		pool.AddCert(c)
		return true
	}
	for pass, before := 0, 0; pass < 2 || before != len(rest); pass++ { // from the root if in order, then the other way
		before, strangers = len(rest), 0
		slices.Reverse(rest)
		rest = slices.DeleteFunc(rest, vouched)
	}
	return pool
}

func asChainError(err error, leaf *x509.Certificate) *Error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) {
		switch invalid.Reason {
		case x509.Expired:
			depth := 0
			if invalid.Cert != nil && !sameCert(invalid.Cert, leaf) {
				depth = 1
			}
			if c := invalid.Cert; c != nil && time.Now().Before(c.NotBefore) {
				return chainError(alertExpired, depth, "certificate is not yet valid")
			}
			return chainError(alertExpired, depth, "certificate has expired")
		case x509.IncompatibleUsage:
			return chainError(alertUnsupported, 0, "unsupported certificate purpose")
		case x509.NotAuthorizedToSign:
			return chainError(alertUnknownCA, 1, "invalid CA certificate")
		case x509.TooManyIntermediates:
			return chainError(alertUnknownCA, 1, "path length constraint exceeded")
		case x509.CANotAuthorizedForThisName, x509.TooManyConstraints, x509.UnconstrainedName:
			return chainError(alertCertUnknown, 0, "permitted subtree violation")
		}
	}
	e := chainError(alertUnknownCA, 0, "unable to get local issuer certificate")
	e.Cause = err
	return e
}

const noCRL = "certificate revocation check against provided CRLs failed: "

// revoked looks the chain up in the revocation lists, if there are any. A
// certificate whose issuer has no list fails, as in BoringSSL.
func (r *verifier) revoked(chain []*x509.Certificate) *Error {
	if len(r.crls) == 0 {
		return nil
	}
	for i := 0; i+1 < len(chain); i++ {
		if i > 0 && r.leafCRL {
			break
		}
		list := r.listOf(chain[i+1])
		if list == nil {
			return chainError(alertUnknownCA, i, noCRL+"unable to get certificate CRL")
		}
		if !list.NextUpdate.IsZero() && time.Now().After(list.NextUpdate) {
			return chainError(alertExpired, i, noCRL+"CRL has expired")
		}
		for j := range list.RevokedCertificateEntries {
			if list.RevokedCertificateEntries[j].SerialNumber.Cmp(chain[i].SerialNumber) == 0 {
				return chainError(alertRevoked, i, noCRL+"certificate revoked")
			}
		}
	}
	return nil
}

func (r *verifier) listOf(issuer *x509.Certificate) *x509.RevocationList {
	for _, l := range r.crls {
		if bytes.Equal(l.RawIssuer, issuer.RawSubject) && l.CheckSignatureFrom(issuer) == nil {
			return l
		}
	}
	return nil
}

// pinned is true without pins, else if one of either kind fits.
func (r *verifier) pinned(leaf *x509.Certificate) bool {
	if len(r.spki)+len(r.hashes) == 0 {
		return true
	}
	return slices.Contains(r.hashes, sha256.Sum256(leaf.Raw)) ||
		slices.Contains(r.spki, sha256.Sum256(leaf.RawSubjectPublicKeyInfo))
}

// matchSANs reports whether a name of the leaf fits one of the matchers, type
// by type: a URI is never taken for a DNS name.
func matchSANs(sans []config.SANMatch, leaf *x509.Certificate) bool {
	for i := range sans {
		m := &sans[i]
		of := func(t config.SANType) bool { return m.Type == t || m.Type == config.SANAny }
		if of(config.SANURI) && slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return m.Match.Match(u.String()) }) {
			return true
		}
		if of(config.SANDNS) && slices.ContainsFunc(leaf.DNSNames, func(n string) bool { return matchDNS(&m.Match, n) }) {
			return true
		}
		if of(config.SANEmail) && slices.ContainsFunc(leaf.EmailAddresses, m.Match.Match) {
			return true
		}
		if of(config.SANIP) && slices.ContainsFunc(leaf.IPAddresses, func(a net.IP) bool { return m.Match.Match(a.String()) }) {
			return true
		}
	}
	return false
}

// matchDNS lets a wildcard name of the certificate, one label deep, fit an exact matcher.
func matchDNS(m *config.StringMatch, name string) bool {
	if m.Match(name) {
		return true
	}
	if m.Kind != config.MatchExact || !strings.HasPrefix(name, "*.") {
		return false
	}
	label, parent, ok := strings.Cut(m.Value, ".")
	return ok && label != "" && strings.EqualFold(parent, name[2:])
}

func allSANs(leaf *x509.Certificate) []string {
	var s []string
	s = append(s, leaf.DNSNames...)
	for _, u := range leaf.URIs {
		s = append(s, u.String())
	}
	s = append(s, leaf.EmailAddresses...)
	for _, a := range leaf.IPAddresses {
		s = append(s, a.String())
	}
	return s
}
