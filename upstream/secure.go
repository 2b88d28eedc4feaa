package upstream

import (
	"errors"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/tlsconn"
	"sluice/internal/worker"
	"sluice/upstream/pool"
)

// contextOf gives the client context of a transport socket, made once.
func (c *Clusters) contextOf(t *config.UpstreamTLS) *tlsconn.ClientContext {
	if x, ok := c.contexts.Load(t); ok {
		return x.(*tlsconn.ClientContext)
	}
	x, _ := c.contexts.LoadOrStore(t, tlsconn.NewClientContext(t, c.opts.Secrets))
	return x.(*tlsconn.ClientContext)
}

// refresh has the contexts in use take changed secrets over now, so that each
// change is counted; one that no connection asked for yet is made by the first.
func (c *Clusters) refresh() {
	c.contexts.Range(func(_, x any) bool {
		x.(*tlsconn.ClientContext).Refresh()
		return true
	})
}

// contextUpdates counts the secrets that a transport socket took over.
func (c *Clusters) contextUpdates(t *config.UpstreamTLS) uint64 {
	if x, ok := c.contexts.Load(t); ok {
		return x.(*tlsconn.ClientContext).Updates()
	}
	return 0
}

// secure makes the handshake of an upstream connection; stats are those of the
// connection's cluster.
func (l *Local) secure(stats []uint64) pool.SecureFunc {
	all := l.all
	return func(c *worker.Conn, t *config.UpstreamTLS, o pool.SecureOptions, done func(*pool.Session, error)) {
		if all.opts.Handshakes == nil {
			done(nil, errors.New("TLS is not available"))
			return
		}
		opts := tlsconn.ClientOptions{SNI: o.SNI, ALPN: o.ALPN}
		all.opts.Handshakes.Client(c, all.contextOf(t), opts, o.Timeout, func(s *tlsconn.State, err error) {
			if err != nil {
				countFailure(stats, err)
				done(nil, err)
				return
			}
			stats[pool.Handshake]++
			if s.Resumed {
				stats[pool.SessionReused]++
			}
			if len(s.Peer) == 0 {
				stats[pool.NoCertificate]++
			}
			done(&pool.Session{ALPN: s.ALPN, TLS: sessionFacts(s)}, nil)
		})
	}
}

func countFailure(stats []uint64, err error) {
	var e *tlsconn.Error
	if !errors.As(err, &e) {
		return
	}
	switch e.Kind {
	case tlsconn.NoCert:
		stats[pool.FailVerifyNoCert]++
	case tlsconn.VerifyError:
		stats[pool.FailVerifyError]++
	case tlsconn.VerifySAN:
		stats[pool.FailVerifySAN]++
	case tlsconn.VerifyHash:
		stats[pool.FailVerifyHash]++
	case tlsconn.Protocol:
		stats[pool.ConnectionError]++
	}
}

func sessionFacts(s *tlsconn.State) *telemetry.TLS {
	t := &telemetry.TLS{Version: telemetry.VersionName(s.Version), Cipher: telemetry.CipherName(s.Cipher), SessionID: s.Session,
		PeerURI: s.PeerURIs, PeerDNS: s.PeerDNS, LocalURI: s.LocalURIs, LocalDNS: s.LocalDNS, PeerSubject: s.PeerSubject,
		PeerIssuer: s.PeerIssuer, LocalSubject: s.LocalSubject, PeerSum: s.PeerHash, PeerSerial: s.PeerSerial,
		Presented: len(s.Peer) > 0, Validated: s.Verified}
	if len(s.Peer) > 0 {
		t.Peer = s.Peer[0]
	}
	return t
}

// connectTimeout bounds a connect with its handshake.
func connectTimeout(c *config.Cluster) time.Duration {
	if c.ConnectTimeout > 0 {
		return c.ConnectTimeout
	}
	return 5 * time.Second
}
