package main

import (
	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/tlsconn"
	"sluice/listener/downstream"
	"sluice/listener/tcpproxy"
)

type telemetryWiring struct{}

func newTelemetryWiring(*plane, *config.Node) *telemetryWiring { return &telemetryWiring{} }

func peerOf(s *tlsconn.State) *telemetry.TLS {
	return &telemetry.TLS{PeerURI: s.PeerURIs, PeerDNS: s.PeerDNS, LocalURI: s.LocalURIs, LocalDNS: s.LocalDNS, SessionID: s.Session,
		PeerSubject: s.PeerSubject, PeerIssuer: s.PeerIssuer, LocalSubject: s.LocalSubject, PeerSum: s.PeerHash, PeerSerial: s.PeerSerial,
		Presented: len(s.Peer) > 0, Validated: s.Verified}
}

func (p *plane) connect(d *downstream.Connection, r *tcpproxy.Request, done func(tcpproxy.Upstream, error)) func() {
	panic("tcp")
}
