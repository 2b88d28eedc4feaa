// Package downstream is what a listener knows of an accepted connection when it
// hands it to the terminal of its filter chain: httpproxy, tcpproxy, or one of
// the small ones. It is data and one interface, so that terminals and the
// listener needn't import each other's code: listener imports the terminals,
// they import this.
package downstream

import (
	"net/netip"
	"time"

	"sluice/internal/config"
	"sluice/internal/tlsconn"
	"sluice/internal/worker"
)

// Terminal takes connections of one filter chain over. Serve is called once a
// connection, on its worker, after the chain's other network filters let it
// through. It must call Conn.SetHandler, whose handler is then given the bytes
// read so far, and call Connection.Gone from that handler's OnClose.
type Terminal interface {
	Serve(c *Connection)
}

// Connection is an accepted connection. It belongs to its worker's goroutine.
type Connection struct {
	Conn     *worker.Conn
	Listener *config.Listener
	Chain    *config.FilterChain // chosen when the connection came; never changes

	// Src is the client: of the PROXY header if there was one, else DirectSrc.
	Src netip.AddrPort
	// DirectSrc is the socket's peer. Both are zero on a Unix socket.
	DirectSrc netip.AddrPort
	// Dst is where the client meant to go: the restored original destination or
	// the PROXY header's, else Local.
	Dst      netip.AddrPort
	Local    netip.AddrPort // the socket's own address
	Restored bool           // Dst is not Local

	// What the inspectors saw; empty when they didn't run or found nothing.
	Transport string   // "tls", "raw_buffer" or ""
	SNI       string   // lower-case
	Protocols []string // offered by ALPN, or the HTTP version http_inspector saw

	TLS *TLS // nil: not TLS

	// ID numbers the process's connections (%CONNECTION_ID%).
	ID    uint64
	Start int64     // Worker.Now at accept
	Began time.Time // wall clock at accept

	// Dynamic is dynamic metadata that listener and network filters set, by name
	// space; nil when there is none.
	Dynamic config.Metadata
	// FilterState is what filters remember of the connection, by key; nil: nothing.
	FilterState map[string]any
	// PeerMetadata is the protobuf Any that istio.metadata_exchange received; nil: nothing.
	PeerMetadata []byte
	// TLVs of a PROXY header that upstream ones may have, as they came.
	TLVs []byte
	// Cluster overrides the terminal's (sni_cluster); "" doesn't.
	Cluster string

	// Guard is what filters that judge by the first bytes have left to say; nil:
	// nothing. A terminal asks Guarded.
	Guard func(c *Connection) bool

	// Termination is %CONNECTION_TERMINATION_DETAILS%, TransportFailure
	// %DOWNSTREAM_TRANSPORT_FAILURE_REASON%; "" when there is none.
	Termination      string
	TransportFailure string
	// Flag and Details are Envoy's response flag and details of a connection that
	// ended before its terminal: "NR", "filter_chain_not_found".
	Flag, Details string
	// Served is set when the terminal took the connection over.
	Served bool

	// OnDrain, set by the terminal in Serve, is called when the chain or the
	// listener begins to drain: let the client go soon (GOAWAY, connection:
	// close). A connection still there at the end of the drain time is closed
	// with Conn.CloseWhenFlushed, or by OnDrainEnd if that is set. nil: only that.
	OnDrain    func()
	OnDrainEnd func()
	// Draining is set before OnDrain is called, and at Serve if it began earlier.
	Draining bool
	// DrainFrom and DrainOver spread the notices over a gradual drain: an HTTP
	// connection is told to close with a chance that grows from 0 at DrainFrom
	// (Worker.Now) to 1 a DrainOver later. DrainOver 0: at once.
	DrainFrom int64
	DrainOver time.Duration

	// Released is the listener's; terminals call Gone.
	Released func(c *Connection)
	gone     bool
}

// Guarded asks the filters that decide at the client's first bytes, or its FIN,
// and forgets them. A terminal that connects upstream before it reads (tcpproxy)
// calls it then; for others the listener has done so. false: close.
func (c *Connection) Guarded() bool {
	g := c.Guard
	c.Guard = nil
	return g == nil || g(c)
}

// AddGuard puts g behind the guards that are there.
func (c *Connection) AddGuard(g func(c *Connection) bool) {
	before := c.Guard
	if before == nil {
		c.Guard = g
		return
	}
	c.Guard = func(c *Connection) bool { return before(c) && g(c) }
}

// Gone tells the listener that the connection is over. It is safe to call twice.
func (c *Connection) Gone() {
	if c.gone {
		return
	}
	c.gone = true
	if c.Released != nil {
		c.Released(c)
	}
}

// TLS is the outcome of a downstream handshake. It is immutable once the
// terminal sees it.
type TLS = tlsconn.State
