// Package telemetry is what the data plane reports: the record of a connection
// or request, the access log written from it, and the counters. Both halves of
// the data plane fill one Record as facts come up and emit it once, at the end.
// It opens no connection and knows no protocol; the admin server and the
// exporters read it.
package telemetry

import (
	"crypto/x509"
	"net/netip"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// Conn is what is known about a downstream connection. It is filled by the
// listener, shared by the requests of the connection and used on its worker
// only.
type Conn struct {
	ID            uint64
	Start         int64 // monotonic ns
	Local         netip.AddrPort
	Remote        netip.AddrPort // after listener filters (PROXY protocol, original source)
	Direct        netip.AddrPort // of the socket's peer
	LocalPipe     string
	Listener      string
	StatPrefix    string
	Chain         string // filter chain name
	Direction     config.Direction
	SNI           string
	ALPN          string
	TLS           *TLS   // nil: plaintext
	Failure       string // downstream transport failure reason
	Termination   string // connection termination details
	HandshakeDone int64  // monotonic ns, 0: none
	Peer          *Peer  // from TCP metadata exchange
	LocalReason   string // why the proxy closed it
}

// TLS is what a handshake told, of either side.
type TLS struct {
	Version, Cipher, SessionID                     string
	PeerURI, PeerDNS, LocalURI, LocalDNS           []string
	PeerSubject, PeerIssuer, LocalSubject, PeerSum string
	PeerSerial                                     string
	Presented, Validated                           bool
	Peer                                           *x509.Certificate
}

// Protocol is the HTTP version of a request, or none.
type Protocol uint8

// The protocols.
const (
	NoProtocol Protocol = iota
	HTTP10
	HTTP11
	HTTP2
)

// String gives Envoy's name.
func (p Protocol) String() string {
	return [...]string{"", "HTTP/1.0", "HTTP/1.1", "HTTP/2"}[p]
}

// Record is one finished HTTP request or TCP connection. Times are monotonic
// nanoseconds, 0 when the moment never came. It belongs to one worker and is
// reused: Reset keeps the heads' memory with their owner.
type Record struct {
	Conn     *Conn
	LogType  string // ACCESS_LOG_TYPE
	StreamID [16]byte
	Wall     time.Time // when the request began
	Start    int64
	End      int64 // when it was logged

	Request, Response, Trailers *httpmsg.Head // nil: none
	LocalBody                   []byte        // of a local reply
	Protocol                    Protocol
	Remote                      netip.AddrPort // the client, by x-forwarded-for when trusted
	Code                        int
	Details                     string
	Flags                       Flags
	TCP                         bool

	BytesIn, BytesOut                        uint64 // bodies
	DownHeadIn, DownHeadOut                  uint64
	DownWireIn, DownWireOut                  uint64
	UpHeadOut, UpHeadIn, UpWireOut, UpWireIn uint64

	Route, VirtualHost, VirtualCluster string
	RouteMetadata, ClusterMetadata     config.Metadata
	HostMetadata, Dynamic              config.Metadata
	VirtualHostMetadata                config.Metadata
	HostLB                             config.Struct // metadata envoy.lb of the endpoint
	FilterState                        map[string]string
	MessageState                       bool // the message counts are filter state too (grpc_stats)

	Cluster, ClusterRaw string // alt_stat_name or name, and name
	UpstreamHost        string // address
	UpstreamRemote      string // the same, once connected
	UpstreamHostname    string
	UpstreamLocal       netip.AddrPort
	UpstreamProtocol    Protocol
	UpstreamTLS         *TLS
	UpstreamFailure     string
	UpstreamConn        uint64
	CloseDown, CloseUp  string // how the ends closed: Normal, RemoteReset, LocalReset
	Attempts            int

	RequestEnd, UpstreamSend, UpstreamSent, ResponseHead, ResponseEnd, SendHead, SendEnd int64

	GRPC               bool // content-type application/grpc
	MessagesIn         uint64
	MessagesOut        uint64
	Workload           string // endpoint metadata istio.workload
	Peer, UpstreamPeer *Peer
	TraceID, SpanID    string
	Sampled            bool
	HealthCheck        bool
	UpstreamMXExchange bool
	ClusterService     *Service
}

// Service is the istio.services entry of a cluster's metadata.
type Service struct{ Host, Name, Namespace string }

// Reset forgets everything.
func (r *Record) Reset() { *r = Record{} }

// Peer is the metadata of the workload at the other end.
type Peer struct {
	Workload, Namespace, Cluster         string
	App, Version, Canonical, Revision    string
	Labels                               map[string]string
	Owner, WorkloadType, Name, Principal string
}
