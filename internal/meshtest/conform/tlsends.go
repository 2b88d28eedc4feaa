package conform

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// sessionStore holds one session: the one to offer, later the one received.
type sessionStore struct {
	mu       sync.Mutex
	session  *tls.ClientSessionState
	received bool
}

// Get offers the session, whoever the server.
func (s *sessionStore) Get(string) (*tls.ClientSessionState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session, s.session != nil
}

// Put keeps the newest session.
func (s *sessionStore) Put(_ string, session *tls.ClientSessionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session != nil {
		s.session, s.received = session, true
	}
}

func (s *sessionStore) got() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received
}

// clientTLS does the handshake on w. Without it the word says why not.
func clientTLS(w *wire, d dialing, deadline time.Time) (*wire, string) {
	if d.resume == nil && speaks12(d.tls) || d.resume != nil && d.resume.session12 != nil {
		return client12(w, d, deadline)
	}
	config, err := clientConfig(d)
	if err != nil {
		w.closeBy("fin")
		return nil, "error:" + err.Error()
	}
	w.config, w.session = config, config.ClientSessionCache.(*sessionStore)
	var conn *tls.Conn
	if d.tls.Hello != nil {
		conn = tls.Client(&cutConn{Conn: w.tcp, how: *d.tls.Hello}, config)
	} else {
		conn = tls.Client(w.tcp, config)
	}
	if word := handshake(w, conn, deadline); word != "" {
		w.closeBy("fin")
		return nil, word
	}
	state := conn.ConnectionState()
	if d.resume != nil {
		w.tls["resumed"] = state.DidResume
	}
	if state.Version == tls.VersionTLS13 {
		awaitVerdict(w)
		if end := w.end(); strings.HasPrefix(end, "tls:") {
			w.closeBy("fin")
			return nil, end
		}
	}
	return w, ""
}

// awaitVerdict waits for the ticket or the alert of a TLS 1.3 server: it judges
// the client certificate after our handshake is done.
func awaitVerdict(w *wire) {
	for soon := after(300 * time.Millisecond); left(soon) > 0 && w.end() == "" && len(w.buf) == 0 && !w.session.got(); {
		w.fill(after(3 * time.Millisecond))
	}
}

func clientConfig(d dialing) (*tls.Config, error) {
	store := &sessionStore{}
	if d.resume != nil {
		config := d.resume.config.Clone()
		config.ServerName = d.tls.SNI
		store.session, _ = d.resume.session.Get("")
		config.ClientSessionCache = store
		return config, nil
	}
	config := &tls.Config{
		ServerName:         d.tls.SNI,
		InsecureSkipVerify: true, // cases look at what the proxy does; `verify` judges below
		ClientSessionCache: store,
		NextProtos:         slices.Clone(d.tls.ALPN),
	}
	for i := range d.tls.Pad / 250 {
		config.NextProtos = append(config.NextProtos, fmt.Sprintf("%0250d", i))
	}
	if d.tls.Cert != "" {
		cert, err := loadCert(d.folder, d.tls.Cert)
		if err != nil {
			return nil, err
		}
		// Shown whoever the server says it trusts.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	if d.tls.Verify {
		roots, err := loadRoots(d.folder)
		if err != nil {
			return nil, err
		}
		config.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s.PeerCertificates, roots) }
	}
	return config, versionsAndSuites(config, d.tls)
}

func verifyChain(chain []*x509.Certificate, roots *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	return err
}

// serverTLS does the handshake of an upstream.
func serverTLS(w *wire, spec tlsSpec, folder string, deadline time.Time) string {
	if spec.Cert == "" {
		spec.Cert = "server"
	}
	cert, err := loadCert(folder, spec.Cert)
	if err != nil {
		return "error:" + err.Error()
	}
	roots, err := loadRoots(folder)
	if err != nil {
		return "error:" + err.Error()
	}
	var sni any
	config := &tls.Config{Certificates: []tls.Certificate{*cert}, ClientCAs: roots}
	switch {
	case spec.RequireClient:
		config.ClientAuth = tls.RequireAndVerifyClientCert
	case spec.AskClient:
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if err := versionsAndSuites(config, &spec); err != nil {
		return "error:" + err.Error()
	}
	outer := config.Clone()
	strong := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}
	outer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName != "" {
			sni = hello.ServerName
		}
		inner := config.Clone()
		// Records hold the TLS 1.2 suite of servers which prefer 256 bits.
		inner.CipherSuites = slices.DeleteFunc(slices.Clone(strong), func(id uint16) bool { return !slices.Contains(hello.CipherSuites, id) })
		if len(inner.CipherSuites) == 0 {
			inner.CipherSuites = nil
		}
		for _, ours := range spec.ALPN { // no name in common is no error
			if slices.Contains(hello.SupportedProtos, ours) {
				inner.NextProtos = []string{ours}
				break
			}
		}
		return inner, nil
	}
	conn := tls.Server(w.tcp, outer)
	if word := handshake(w, conn, deadline); word != "" {
		endGently(w)
		return word
	}
	w.tls["sni"] = sni
	return ""
}

// handshake does it and notes what was agreed; else the word says why not.
func handshake(w *wire, conn *tls.Conn, deadline time.Time) string {
	_ = w.tcp.SetDeadline(deadline)
	err := conn.Handshake()
	_ = w.tcp.SetDeadline(time.Time{})
	if err != nil {
		return failedHandshake(err)
	}
	w.conn = conn
	s := conn.ConnectionState()
	w.tls = object{"version": strings.ReplaceAll(tls.VersionName(s.Version), "TLS ", "TLSv"), "alpn": nil, "peer": nil}
	if s.NegotiatedProtocol != "" {
		w.tls["alpn"] = s.NegotiatedProtocol
	}
	if len(s.PeerCertificates) > 0 {
		w.tls["peer"] = peerName(s.PeerCertificates[0])
	}
	return ""
}

// endGently ends with FIN, and without a RST before the peer has read our
// alert: unread bytes would send one.
func endGently(w *wire) {
	_ = w.tcp.CloseWrite()
	_ = w.tcp.SetReadDeadline(after(300 * time.Millisecond))
	var rest [4096]byte
	for {
		if _, err := w.tcp.Read(rest[:]); err != nil {
			break
		}
	}
	_ = w.tcp.Close()
}

// peerName is the URI SAN of a certificate, else its first DNS SAN, else its subject.
func peerName(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return c.Subject.String()
}

func loadCert(folder, name string) (*tls.Certificate, error) {
	path := filepath.Join(folder, name)
	cert, err := tls.LoadX509KeyPair(path+".pem", path+".key")
	return &cert, err
}

func loadRoots(folder string) (*x509.CertPool, error) {
	data, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	return roots, nil
}

func versionsAndSuites(config *tls.Config, spec *tlsSpec) error {
	versions := map[string]uint16{"": 0, "1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	config.MinVersion, config.MaxVersion = versions[spec.Min], versions[spec.Max]
	curves := map[string]tls.CurveID{"prime256v1": tls.CurveP256, "secp384r1": tls.CurveP384, "X25519": tls.X25519}
	// Without the large post-quantum share a ClientHello has the size that cases count on.
	config.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
	if spec.Curve != "" {
		config.CurvePreferences = []tls.CurveID{curves[spec.Curve]}
	}
	if spec.Ciphers == "" {
		return nil
	}
	if !strings.Contains(spec.Ciphers, "ECDHE") {
		// A client without elliptic curves names none. An unknown one alone has this
		// effect; no curve would mean the defaults.
		config.CurvePreferences = []tls.CurveID{0xffff}
	}
	for name := range strings.SplitSeq(spec.Ciphers, ":") {
		id, ok := suiteIDs[name]
		if !ok {
			return fmt.Errorf("unknown cipher %s", name)
		}
		config.CipherSuites = append(config.CipherSuites, id)
	}
	return nil
}
