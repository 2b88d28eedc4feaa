package listener

import (
	"errors"
	"slices"

	"sluice/internal/tlsconn"
)

// Counters are one listener's on one worker. Only that worker changes them;
// Visit hands out copies.
type Counters struct {
	// Connections that a filter chain has or had.
	Total, Active, Destroyed uint64
	Overflow, GlobalOverflow uint64
	NoMatch                  uint64
	PreActive, PreTimeout    uint64 // while listener filters look
	FilterError, FilterLeft  uint64 // closed by them; by the peer meanwhile

	TLSFound, TLSNotFound, HelloTooLarge     uint64
	SNIFound, SNINotFound                    uint64
	ALPNFound, ALPNNotFound                  uint64
	HTTP10, HTTP11, HTTP2, HTTPNotFound      uint64
	ProxyFound, ProxyDisallowed, ProxyErrors [2]uint64 // by version
	ProxyAllowed, ProxyNotFound              uint64    // without a header

	Handshakes, HandshakeErrors, HandshakeTimeouts uint64
	FailNoCert, FailError, FailSAN, FailHash       uint64
	NoCert, Resumed                                uint64
	Versions, Ciphers, Curves                      []Tally
	NotReady                                       uint64  // refused: no certificate yet
	ContextUpdates                                 uint64  // by SDS; set by Visit
	HasTLS                                         bool    // some chain terminates TLS; set by Visit
	ProxyPrefix                                    *string // of the proxy_protocol filter's statistics; nil: no such filter
}

// Tally counts by a crypto/tls number: few are ever seen.
type Tally struct {
	ID uint16
	N  uint64
}

func tally(list []Tally, id uint16) []Tally {
	for i := range list {
		if list[i].ID == id {
			list[i].N++
			return list
		}
	}
	return append(list, Tally{id, 1})
}

// shaken counts a finished handshake.
func (n *Counters) shaken(s *tlsconn.State) {
	n.Handshakes++
	if s.Resumed {
		n.Resumed++
	}
	if len(s.Peer) == 0 {
		n.NoCert++
	}
	n.Versions = tally(n.Versions, s.Version)
	n.Ciphers = tally(n.Ciphers, s.Cipher)
	if s.Curve != 0 {
		n.Curves = tally(n.Curves, uint16(s.Curve))
	}
}

// failed sorts a failed handshake as Envoy does.
func (n *Counters) failed(err error) {
	var e *tlsconn.Error
	if !errors.As(err, &e) {
		return
	}
	switch e.Kind {
	case tlsconn.NoCert:
		n.FailNoCert++
	case tlsconn.VerifyError:
		n.FailError++
	case tlsconn.VerifySAN:
		n.FailSAN++
	case tlsconn.VerifyHash:
		n.FailHash++
	case tlsconn.Timeout:
		n.HandshakeTimeouts++
	case tlsconn.NoSecret:
		n.NotReady++
	case tlsconn.Protocol:
		n.HandshakeErrors++
	}
}

// copyOf is what Visit gives away; it runs on the worker.
func (a *active) copyOf(worker int) Counters {
	n := *a.count
	n.Versions, n.Ciphers, n.Curves = slices.Clone(n.Versions), slices.Clone(n.Ciphers), slices.Clone(n.Curves)
	if p := a.config.Filters.ProxyProtocol; p != nil {
		n.ProxyPrefix = &p.StatPrefix
	}
	for _, c := range a.chains {
		if c.tls == nil {
			continue
		}
		n.HasTLS = true
		if worker == 0 { // the workers share the contexts
			n.ContextUpdates += c.tls.Updates()
		}
	}
	return n
}
