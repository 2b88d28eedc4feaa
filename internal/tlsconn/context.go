package tlsconn

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/config"
	"sluice/internal/rsakey"
)

// Secrets finds a secret by its SDS name; nil: it isn't there (yet). It is
// called from handshake goroutines.
type Secrets func(name string) *config.Secret

// ServerContext is what a listener's chain needs for its handshakes. It is safe
// for concurrent use.
type ServerContext struct {
	config  *config.DownstreamTLS
	secrets Secrets
	built   built
}

// ClientContext is what a cluster needs for its handshakes. It is safe for
// concurrent use.
type ClientContext struct {
	config  *config.UpstreamTLS
	secrets Secrets
	built   built
}

// built is a context's material and how often secrets by name changed it.
type built struct {
	material atomic.Pointer[material]
	mu       sync.Mutex // one builds at a time
	updates  atomic.Uint64
}

// material is the outcome of resolved secrets: a tls.Config to clone and a
// verifier. It is replaced when a secret is.
type material struct {
	refs     []*config.Secret // what it was built from
	base     *tls.Config
	certs    []*tls.Certificate
	verifier *verifier // nil: the peer isn't verified
	sessions *sessions // of a client; nil: none are kept
	missing  bool
	slow     bool
}

// slow says whether a signature takes so long that it isn't for a worker: P-521's is
// a millisecond and more, and so is RSA's where rsakey can't help. It goes by the
// material in use.
func (b *built) slow() bool {
	m := b.material.Load()
	return m != nil && m.slow
}

// NewServerContext makes the context of a chain.
func NewServerContext(c *config.DownstreamTLS, s Secrets) *ServerContext {
	return &ServerContext{config: c, secrets: s}
}

// NewClientContext makes the context of a cluster.
func NewClientContext(c *config.UpstreamTLS, s Secrets) *ClientContext {
	return &ClientContext{config: c, secrets: s}
}

// Ready reports whether all secrets are there.
func (x *ServerContext) Ready() bool { return !x.current().missing }

// Updates counts the secrets by name that were taken over, as Envoy's
// ssl_context_update_by_sds does.
func (x *ServerContext) Updates() uint64 { return x.built.updates.Load() }

// Updates is explained at ServerContext.Updates.
func (x *ClientContext) Updates() uint64 { return x.built.updates.Load() }

// Refresh takes changed secrets over now instead of at the next handshake.
func (x *ServerContext) Refresh() { x.current() }

// Refresh is explained at ServerContext.Refresh.
func (x *ClientContext) Refresh() { x.current() }

// Ready reports whether all secrets are there.
func (x *ClientContext) Ready() bool { return !x.current().missing }

func (x *ServerContext) current() *material {
	return current(&x.built, &x.config.TLSParams, x.secrets, func(m *material) { serverBase(m, x.config) })
}

func (x *ClientContext) current() *material {
	return current(&x.built, &x.config.TLSParams, x.secrets, func(m *material) { clientBase(m, x.config) })
}

// defaultSuites are Envoy's for TLS 1.2, which has no CBC ones.
func defaultSuites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	}
}

// current gives the material, built anew if a secret changed.
func current(b *built, p *config.TLSParams, s Secrets, finish func(*material)) *material {
	refs := resolve(p, s)
	if m := b.material.Load(); m != nil && slices.Equal(m.refs, refs) {
		return m
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.material.Load()
	if before != nil && slices.Equal(before.refs, refs) {
		return before
	}
	m := &material{refs: refs, base: &tls.Config{
		MinVersion:                  p.Min,
		MaxVersion:                  p.Max,
		CipherSuites:                p.Ciphers,
		CurvePreferences:            p.Curves,
		NextProtos:                  p.ALPN,
		DynamicRecordSizingDisabled: true,
	}}
	if m.base.MinVersion == 0 {
		m.base.MinVersion = tls.VersionTLS12
	}
	if len(p.Ciphers) == 0 {
		m.base.CipherSuites = defaultSuites()
	}
	if len(p.Curves) == 0 {
		m.base.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256}
	}
	for i := range p.Certificates {
		if r := refs[i]; r != nil && r.Certificate != nil {
			c := faster(r.Certificate)
			m.certs = append(m.certs, c)
			m.slow = m.slow || slowToSign(c.PrivateKey)
		} else {
			m.missing = true
		}
	}
	var err error
	if m.verifier, m.missing, err = newVerifier(p.Validation, refs[len(p.Certificates)], m.missing); err != nil {
		m = m.insteadOf(before)
		b.material.Store(m)
		return m
	}
	finish(m)
	b.material.Store(m)
	b.updates.Add(changed(before, m, p))
	return m
}

// insteadOf is the material for secrets that make no safe one: the last good one
// serves on, under their references so that it isn't looked at again. Without one
// no handshake is possible.
func (m *material) insteadOf(before *material) *material {
	if before == nil {
		return m
	}
	keep := *before
	keep.refs = m.refs
	return &keep
}

// faster gives a certificate whose key signs faster, where there is such a one. c
// belongs to its secret and stays as it is.
func faster(c *tls.Certificate) *tls.Certificate {
	key, ok := c.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return c
	}
	f := *c
	f.PrivateKey = rsakey.Fast(key)
	return &f
}

// changed counts the secrets by name that m has and before hadn't.
func changed(before, m *material, p *config.TLSParams) (n uint64) {
	named := func(i int) bool {
		if i < len(p.Certificates) {
			return p.Certificates[i].Name != ""
		}
		if i == len(p.Certificates) {
			return p.Validation != nil && p.Validation.Ref.Name != ""
		}
		return p.Tickets.Name != ""
	}
	for i, r := range m.refs {
		if r != nil && named(i) && (before == nil || before.refs[i] != r) {
			n++
		}
	}
	return n
}

// resolve finds the secrets of p: its certificates, its validation context, its
// ticket keys.
func resolve(p *config.TLSParams, s Secrets) []*config.Secret {
	refs := make([]*config.Secret, 0, len(p.Certificates)+2)
	for i := range p.Certificates {
		refs = append(refs, lookup(&p.Certificates[i], s))
	}
	var validation *config.Secret
	if p.Validation != nil {
		validation = lookup(&p.Validation.Ref, s)
	}
	return append(refs, validation, lookup(&p.Tickets, s))
}

func lookup(r *config.SecretRef, s Secrets) *config.Secret {
	if r.Inline != nil || r.Name == "" || s == nil {
		return r.Inline
	}
	return s(r.Name)
}

func serverBase(m *material, c *config.DownstreamTLS) {
	b := m.base
	b.SessionTicketsDisabled = c.DisableTickets
	b.SetSessionTicketKeys(ticketKeys(m.refs[len(m.refs)-1]))
	if c.SessionTimeout > 0 {
		limitSessions(b, time.Duration(c.SessionTimeout)*time.Second)
	}
	if m.verifier != nil {
		b.ClientAuth = tls.RequestClientCert
		if c.RequireClientCert {
			b.ClientAuth = tls.RequireAnyClientCert
		}
		if m.verifier.roots != nil {
			b.ClientCAs = m.verifier.roots // names for the CertificateRequest only
		}
	}
}

// ticketKeys are the configured ones, else a key of the material's own: a session
// need not outlive the trust it was made under. crypto/tls takes 32 bytes and has
// a format of its own, so that tickets are shared by our replicas, not by others.
func ticketKeys(s *config.Secret) [][32]byte {
	var keys [][32]byte
	if s != nil {
		for _, k := range s.TicketKeys {
			keys = append(keys, sha256.Sum256(k))
		}
	}
	if len(keys) == 0 {
		keys = make([][32]byte, 1)
		rand.Read(keys[0][:])
	}
	return keys
}

// limitSessions refuses tickets older than limit, of which crypto/tls knows only
// its own of a week. The time goes along in the ticket.
func limitSessions(b *tls.Config, limit time.Duration) {
	b.WrapSession = func(cs tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
		s.Extra = append(s.Extra, binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix())))
		return b.EncryptTicket(cs, s)
	}
	b.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		s, err := b.DecryptTicket(ticket, cs)
		if s == nil || err != nil || len(s.Extra) == 0 || len(s.Extra[0]) != 8 {
			return nil, err
		}
		made := time.Unix(int64(binary.BigEndian.Uint64(s.Extra[0])), 0)
		s.Extra = nil // the next ticket has its own
		if time.Since(made) >= limit {
			return nil, nil
		}
		return s, nil
	}
}

// sessionsKept is the number of addresses whose sessions are kept, for each of
// max_session_keys. Envoy keeps that many in all, and tries them on any host.
const sessionsKept = 128

func clientBase(m *material, c *config.UpstreamTLS) {
	m.base.InsecureSkipVerify = true // VerifyConnection does it: SPIFFE ids aren't host names
	m.base.ServerName = c.SNI
	if c.MaxSessionKeys > 0 {
		m.sessions = &sessions{limit: sessionsKept * c.MaxSessionKeys}
	}
	if m.base.MaxVersion == 0 {
		m.base.MaxVersion = tls.VersionTLS12 // Envoy's default for clients
	}
}

// prepare makes the tls.Config of one server handshake.
func (x *ServerContext) prepare(h *handshake) (*tls.Config, error) {
	m := x.current()
	if m.missing || len(m.certs) == 0 {
		return nil, &Error{Kind: NoSecret, Text: "TLS_error:|no certificate:TLS_error_end", Cause: io.EOF}
	}
	if x.config.RequireSNI {
		h.needSNI = true
	}
	c := m.clone(h, true, "", false)
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		h.local = choose(m.certs, hello, x.config.FullScan)
		return h.local, nil
	}
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		h.local = choose(m.certs, hello, x.config.FullScan) // a resumed handshake doesn't ask again
		if !curveFits(h.local, hello) {
			h.verdict = &Error{Text: boring(243, "WRONG_CURVE", ""), alert: alertHandshake}
			return nil, h.verdict
		}
		return adjust(c, m, hello, x.config), nil
	}
	return c, nil
}

// prepare makes the tls.Config of one client handshake.
func (x *ClientContext) prepare(h *handshake, o ClientOptions) (*tls.Config, error) {
	m := x.current()
	if m.missing {
		return nil, &Error{Kind: NoSecret, Text: "TLS_error:|Secret is not supplied by SDS:TLS_error_end"}
	}
	sni := o.SNI
	if sni == "" {
		sni = x.config.SNI
	}
	c := m.clone(h, false, sni, x.config.AutoSAN)
	c.ServerName = sni
	if o.ALPN != nil {
		c.NextProtos = o.ALPN
	}
	if h.keepsSessions = m.sessions != nil; h.keepsSessions {
		c.ClientSessionCache = sessionsOf{m.sessions, h, h.remote + " " + sni + " " + strings.Join(c.NextProtos, ",")}
	}
	if len(m.certs) > 0 {
		h.local = m.certs[0]
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return h.local, nil
		}
	}
	return c, nil
}

// clone is the base with what belongs to one connection.
func (m *material) clone(h *handshake, server bool, sni string, autoSAN bool) *tls.Config {
	c := m.base.Clone()
	c.KeyLogWriter = keyLog{h}
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		h.suite, h.version = cs.CipherSuite, cs.Version
		var e *Error
		switch {
		case h.needSNI && cs.ServerName == "":
			e = &Error{Text: boring(1000+alertHandshake, "MISSING_SNI", ""), alert: alertHandshake}
		case m.verifier != nil:
			var id *identity
			var vouched bool
			if !h.aside(cs.PeerCertificates, func() {
				id, e = m.verifier.check(cs.PeerCertificates, server, sni, autoSAN)
				vouched = m.verifier.vouches(cs.PeerCertificates, server)
			}) {
				return errGone
			}
			h.peer, h.untrusted = id, !vouched
		case len(cs.PeerCertificates) > 0:
			h.peer, h.untrusted = newIdentity(cs.PeerCertificates), true
		}
		if e != nil {
			h.verdict = e
			return e
		}
		return nil
	}
	return c
}

// choose picks the certificate as Envoy does: by server name, exact before
// wildcard, among those the client can use; else the first usable, else the first.
// A full scan prefers one with an elliptic key then.
func choose(certs []*tls.Certificate, hello *tls.ClientHelloInfo, fullScan bool) *tls.Certificate {
	if len(certs) == 1 {
		return certs[0]
	}
	var first *tls.Certificate
	var wild *tls.Certificate
	usable := func(c *tls.Certificate) bool { return usableBy(hello, c) }
	_, parent, _ := strings.Cut(hello.ServerName, ".")
	for _, c := range certs {
		if !usable(c) {
			continue
		}
		if first == nil || fullScan && !isECDSA(first) && isECDSA(c) {
			first = c
		}
		if hello.ServerName == "" || c.Leaf == nil {
			continue
		}
		for _, n := range c.Leaf.DNSNames {
			if n == hello.ServerName {
				return c
			}
			if wild == nil && parent != "" && n == "*."+parent {
				wild = c
			}
		}
	}
	switch {
	case wild != nil:
		return wild
	case first != nil:
		return first
	}
	return certs[0]
}

func isECDSA(c *tls.Certificate) bool {
	_, ok := c.PrivateKey.(*ecdsa.PrivateKey)
	return ok
}

// curveFits is BoringSSL's check for TLS 1.2: the client must support the curve
// of an ECDSA certificate, as it must that of the key exchange.
func curveFits(c *tls.Certificate, hello *tls.ClientHelloInfo) bool {
	if slices.Contains(hello.SupportedVersions, tls.VersionTLS13) || c.Leaf == nil {
		return true
	}
	key, ok := c.Leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return true
	}
	id := tls.CurveP256
	switch key.Curve {
	case elliptic.P384():
		id = tls.CurveP384
	case elliptic.P521():
		id = tls.CurveP521
	}
	return slices.Contains(hello.SupportedCurves, id)
}

// usableBy looks at the key type only: the name is not the client's to refuse.
func usableBy(hello *tls.ClientHelloInfo, c *tls.Certificate) bool {
	nameless := *hello
	nameless.ServerName = ""
	return nameless.SupportsCertificate(c) == nil
}

// adjust makes crypto/tls agree with BoringSSL in two matters: no common ALPN
// protocol is no error, and TLS 1.2 suites go by the server's order.
func adjust(c *tls.Config, m *material, hello *tls.ClientHelloInfo, x *config.DownstreamTLS) *tls.Config {
	noALPN := len(c.NextProtos) > 0 && len(hello.SupportedProtos) > 0 && !overlap(c.NextProtos, hello.SupportedProtos)
	old := len(c.CipherSuites) > 0 && !x.PreferClientOrder && (c.MaxVersion == tls.VersionTLS12 || !slices.Contains(hello.SupportedVersions, tls.VersionTLS13))
	if !noALPN && !old {
		return nil
	}
	n := c.Clone()
	n.GetConfigForClient = nil
	if noALPN {
		n.NextProtos = nil
	}
	if old {
		if s := firstCommon(c.CipherSuites, m, hello, x); s != 0 {
			n.CipherSuites = []uint16{s}
		}
	}
	return n
}

// firstCommon is the first suite in the server's order that both have and the
// certificate allows; within a group of equal preference the client's order counts.
func firstCommon(suites []uint16, m *material, hello *tls.ClientHelloInfo, x *config.DownstreamTLS) uint16 {
	groups := x.EqualCiphers
	if len(x.Ciphers) == 0 {
		groups = defaultGroups()
	}
	common := func(s uint16) bool {
		return slices.Contains(hello.CipherSuites, s) && fits(s, m.certs, hello, x.FullScan)
	}
	for _, s := range suites {
		if !common(s) {
			continue
		}
		for _, g := range groups {
			if !slices.Contains(g, s) {
				continue
			}
			for _, theirs := range hello.CipherSuites {
				if slices.Contains(g, theirs) && common(theirs) {
					return theirs
				}
			}
		}
		return s
	}
	return 0
}

// defaultGroups are the groups of equal preference in defaultSuites.
func defaultGroups() [][]uint16 {
	return [][]uint16{
		{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256},
		{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256},
	}
}

func overlap(a, b []string) bool {
	for _, x := range a {
		if slices.Contains(b, x) {
			return true
		}
	}
	return false
}

// fits reports whether the certificate that would be shown can be used with a
// TLS 1.2 suite.
func fits(suite uint16, certs []*tls.Certificate, hello *tls.ClientHelloInfo, fullScan bool) bool {
	only := *hello
	only.CipherSuites = []uint16{suite}
	return usableBy(&only, choose(certs, &only, fullScan))
}

// sameCert reports whether two certificates are the same bytes.
func sameCert(a, b *x509.Certificate) bool { return bytes.Equal(a.Raw, b.Raw) }
