package listener

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/tlsconn"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/tcpproxy"
)

// A connection's life, in traffic order:
//
//	accept               limits, addresses
//	restoreDestination   what the application dialed
//	inspect              PROXY header, then TLS or HTTP by the first bytes; parks for bytes
//	handOff              the virtual listener gives way to the destination's own, whose filters run then
//	matchChain           fixed from here on
//	handshake            parks; goes on as TLS records, or straight through
//	admit                network filters decide before any upstream socket; may park
//	terminal             tcpproxy or httpproxy takes the connection over
//
// A listener without inspectors goes from accept to terminal in one call and
// reads nothing.

// conn is a connection before its terminal has it, and its place in the chain's
// list afterwards. It is the Conn's Handler while it waits for bytes.
type conn struct {
	downstream.Connection
	lis        *active
	chain      *chain
	prev, next *conn
	owner      *active       // accepted it: limits count there
	timer      *worker.Timer // listener filters' time; nil: unbounded
	filterAt   uint16
	proxy      bool   // a PROXY header is still to be read
	tls        bool   // tls_inspector is still to run
	http       bool   // http_inspector is still to run
	moved      bool   // handed off once: not again
	pre        bool   // listener filters are looking
	isTLS      bool   // tls_inspector found a hello
	unread     bool   // bytes came that nobody took
	noHello    notTLS // why it didn't
}

// accept takes a new socket, or gives it to the worker whose turn it is.
func (a *active) accept(s *acceptor, fd int, peer netip.AddrPort) {
	if !a.admitted() {
		unix.Close(fd)
		return
	}
	var dst netip.AddrPort // zero: the socket knows
	if s.fixed {
		dst = s.addr
	}
	if a.config.ExactBalance {
		if to := a.shared.balance.pick(a.w.Index()); to != a.w.Index() {
			a.give(to, dst, fd, peer)
			return
		}
	}
	a.begin(a, dst, fd, peer)
}

// begin is where a connection's worker has it. owner counted it.
func (a *active) begin(owner *active, dst netip.AddrPort, fd int, peer netip.AddrPort) {
	c := &conn{lis: a, owner: owner}
	c.Listener = a.config
	c.Src = peer
	c.Start, c.Began = a.w.Now(), a.w.Wall().UnixNano()
	c.ID = a.all.nextID.Add(1)
	c.Released = c.released
	a.home.live++
	c.Conn = a.w.Adopt(fd, c)
	if c.Dst = dst; !dst.IsValid() {
		c.Dst = c.Conn.LocalAddr()
	}
	c.Port = c.Dst.Port()
	c.run()
}

// run starts the listener filters.
func (c *conn) run() {
	f := &c.lis.config.Filters
	c.isTLS = false
	// Envoy adds the original_dst filter by itself where use_original_dst is set.
	if (f.OriginalDst || c.lis.config.UseOriginalDst) && !c.Restored {
		c.restoreDestination()
	}
	c.proxy = f.ProxyProtocol != nil && !c.moved
	c.tls = f.TLSInspector != nil && !f.TLSInspector.Disabled(c.Dst.Port())
	c.http = f.HTTPInspector != nil && !f.HTTPInspector.Disabled(c.Dst.Port())
	if c.proxy || c.tls || c.http {
		c.pre = true
		c.lis.count.PreActive++
		if d := c.lis.config.FiltersTimeout; d > 0 {
			if c.timer == nil {
				c.timer = &worker.Timer{Fire: c.inspectTimeout}
			}
			c.lis.w.Start(c.timer, d)
		}
		return
	}
	c.inspected()
}

func (c *conn) restoreDestination() {
	ask := c.lis.all.opts.OriginalDst
	if ask == nil {
		return
	}
	dst, err := ask(c.Conn.FD())
	if err != nil {
		return // not redirected: Dst stays the socket's own
	}
	if dst != c.Dst {
		c.Dst, c.Restored = dst, true
	}
}

// inspected hands off to the destination's own listener, or goes on here.
func (c *conn) inspected() {
	c.stopInspecting()
	if c.lis.config.UseOriginalDst && c.Restored && !c.moved {
		if to := c.lis.home.destination(c.Dst); to != nil && to != c.lis {
			c.moveTo(to)
			c.run()
			return
		}
	}
	c.matchChain()
}

func (c *conn) moveTo(to *active) {
	c.moved = true
	c.lis, c.Listener = to, to.config
}

func (c *conn) matchChain() {
	m := criteria{dst: c.Dst, sni: c.SNI, transport: "raw_buffer", protocols: c.Protocols, direct: c.Direct().Addr(), src: c.Src}
	if c.isTLS {
		m.transport = "tls"
	}
	ch := c.lis.find(&m)
	if ch == nil {
		c.lis.count.NoMatch++
		c.refuse("NR", "filter_chain_not_found")
		return
	}
	if ch.terminal == nil {
		ch.build(c.lis)
	}
	c.chain, c.Chain = ch, ch.config
	c.lis.count.Total++
	c.lis.count.Active++
	ch.link(c)
	if ch.drainFor > 0 {
		ch.startDrainTimer(c.lis.w)
	}
	c.Drain = ch.draining
	if ch.ended {
		c.end()
		return
	}
	if ch.tls != nil {
		c.handshake()
		return
	}
	c.admit()
}

// handshakeLimit bounds a handshake that the chain doesn't bound itself.
const handshakeLimit = 15 * time.Second

func (c *conn) handshake() {
	limit := c.chain.config.TransportTimeout
	if limit == 0 {
		limit = handshakeLimit
	}
	c.lis.all.opts.Handshakes.Server(c.Conn, c.chain.tls, limit, c.shaken)
}

// shaken is the outcome of the handshake; on failure the Conn is closed already.
func (c *conn) shaken(s *tlsconn.State, err error) {
	n := c.lis.count
	if err != nil {
		c.TLS = s
		c.Note().TransportFailure = err.Error()
		n.failed(err)
		c.Gone()
		return
	}
	n.shaken(s)
	c.TLS, c.unread = s, false
	c.Conn.SetHandler(c)
	c.admit()
}

// admit asks the network filters, then hands over.
func (c *conn) admit() {
	for int(c.filterAt) < len(c.chain.filters) {
		f := c.chain.filters[c.filterAt]
		c.filterAt++
		switch f.Admit(&c.Connection, c.admit) {
		case downstream.Parked:
			return
		case downstream.Refuse:
			c.refuse("", c.Notes().Termination)
			return
		}
	}
	if _, late := c.chain.terminal.(*tcpproxy.Proxy); !late && !c.Guarded() {
		c.unread = false // the filter judged by them
		c.refuse("", c.Notes().Termination)
		return
	}
	c.Served = true
	c.chain.terminal.Serve(&c.Connection)
}

// refuse ends a connection that no terminal will see. Envoy only peeks at the
// first bytes, so that the kernel answers them with a reset when it closes.
func (c *conn) refuse(flag, details string) {
	n := c.Note()
	n.Flag, n.Details = flag, details
	if n.TransportFailure == "" && flag != "" {
		n.TransportFailure = c.noHello.String()
	}
	if c.unread {
		c.stopInspecting()
		c.Conn.Abort()
		return
	}
	c.end()
}

func (c *conn) end() {
	c.stopInspecting()
	c.proxy, c.tls, c.http = false, false, false
	c.Conn.Close()
}

// OnEOF before a chain was chosen: nothing more can come to tell by.
func (c *conn) OnEOF(*worker.Conn) {
	if c.pre {
		c.lis.count.FilterLeft++
	}
	c.end()
}

// OnDrain can't happen: nothing is written before the terminal.
func (c *conn) OnDrain(*worker.Conn) {}

// OnConnect can't happen: the connection was accepted.
func (c *conn) OnConnect(*worker.Conn, error) {}

// OnClose before the terminal.
func (c *conn) OnClose(*worker.Conn, error) {
	c.stopInspecting()
	c.Gone()
}

// admitted counts a connection against the limits, and says whether it may come.
func (a *active) admitted() bool {
	if a.limit > 0 && a.shared.open.Add(1) > a.limit {
		a.shared.open.Add(-1)
		a.count.Overflow++
		return false
	}
	o := &a.all.opts
	if o.MaxConnections > 0 && !a.config.IgnoreGlobalCxLimit && a.all.global.Add(1) > o.MaxConnections {
		a.all.global.Add(-1)
		if a.limit > 0 {
			a.shared.open.Add(-1)
		}
		a.count.GlobalOverflow++
		return false
	}
	return true
}

// released is the end of a connection, told by whoever had it last.
func (c *conn) released(*downstream.Connection) {
	c.stopInspecting()
	c.looked()
	if c.chain != nil {
		c.chain.unlink(c)
		c.lis.count.Active--
		c.lis.count.Destroyed++
	}
	c.lis.home.live--
	c.owner.release(c.lis.w.Index())
	if f := c.lis.all.opts.Closed; f != nil {
		f(&c.Connection)
	}
}

// release undoes what accept counted for a connection of a worker.
func (a *active) release(at int) {
	if a.config.ExactBalance {
		a.shared.balance.release(at)
	}
	if a.limit > 0 {
		a.shared.open.Add(-1)
	}
	if a.all.opts.MaxConnections > 0 && !a.config.IgnoreGlobalCxLimit {
		a.all.global.Add(-1)
	}
}
