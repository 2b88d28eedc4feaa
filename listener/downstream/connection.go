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

	// Src is the client: of the PROXY header if there was one, else the socket's
	// peer. It is zero on a Unix socket.
	Src netip.AddrPort
	// Dst is where the client meant to go: the restored original destination or
	// the PROXY header's, else the socket's own address.
	Dst netip.AddrPort

	// What the inspectors saw; empty when they didn't run or found nothing.
	SNI       string   // lower-case
	Protocols []string // offered by ALPN, or the HTTP version http_inspector saw

	TLS *TLS // nil: not TLS

	// ID numbers the process's connections (%CONNECTION_ID%).
	ID    uint64
	Start int64 // Worker.Now at accept
	Began int64 // wall clock at accept, in nanoseconds since 1970

	// Guard is what filters that judge by the first bytes have left to say; nil:
	// nothing. A terminal asks Guarded.
	Guard func(c *Connection) bool

	// Drainer is set by a terminal that has something to do for a drain; nil: a
	// connection still there at its end is closed with Conn.CloseWhenFlushed.
	Drainer Drainer
	// Drain is set before Drainer is told, and at Serve if it began earlier; nil: no drain.
	Drain *Drain

	// Released is the listener's; terminals call Gone.
	Released func(c *Connection)
	notes    *Notes

	Port     uint16 // of the socket's own address; 0 on a Unix socket
	Restored bool   // Dst is not the socket's own address
	Served   bool   // the terminal took the connection over
	gone     bool
}

// Drain spreads the notices over a gradual drain: an HTTP connection is told to
// close with a chance that grows from 0 at From (Worker.Now) to 1 an Over later.
// Over 0: at once.
type Drain struct {
	From int64
	Over time.Duration
}

// Drainer is the terminal's part in a drain of the chain or the listener.
type Drainer interface {
	// BeginDrain lets the client go soon (GOAWAY, connection: close).
	BeginDrain()
	// EndDrain closes what is still there at the end of the drain time.
	EndDrain()
}

// Notes are what few connections have. They are apart because an idle
// connection costs its size.
type Notes struct {
	// DirectSrc is the socket's peer where a PROXY header named another client
	// (Proxied).
	DirectSrc netip.AddrPort
	Proxied   bool
	// Dynamic is dynamic metadata that listener and network filters set, by name space.
	Dynamic config.Metadata
	// FilterState is what filters remember of the connection, by key; nil: nothing.
	FilterState map[string]any
	// PeerMetadata is the protobuf Any that istio.metadata_exchange received; nil: nothing.
	PeerMetadata []byte
	// TLVs of a PROXY header that upstream ones may have, as they came.
	TLVs []byte
	// Cluster overrides the terminal's (sni_cluster); "" doesn't.
	Cluster string
	// Termination is %CONNECTION_TERMINATION_DETAILS%, TransportFailure
	// %DOWNSTREAM_TRANSPORT_FAILURE_REASON%; "" when there is none.
	Termination      string
	TransportFailure string
	// Flag and Details are Envoy's response flag and details of a connection that
	// ended before its terminal: "NR", "filter_chain_not_found".
	Flag, Details string
}

// Notes gives what was noted, for reading.
func (c *Connection) Notes() Notes {
	if c.notes == nil {
		return Notes{}
	}
	return *c.notes
}

// Note gives the place to write to.
func (c *Connection) Note() *Notes {
	if c.notes == nil {
		c.notes = &Notes{}
	}
	return c.notes
}

// Direct is the socket's peer, zero on a Unix socket.
func (c *Connection) Direct() netip.AddrPort {
	if c.notes != nil && c.notes.Proxied {
		return c.notes.DirectSrc
	}
	return c.Src
}

// BeganAt is the wall clock at accept.
func (c *Connection) BeganAt() time.Time { return time.Unix(0, c.Began) }

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
