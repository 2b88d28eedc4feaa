// Package nameserver answers the DNS queries of a pod whose init redirects them to
// port 15053 (ISTIO_META_DNS_CAPTURE): hosts of istiod's name table by itself, all
// others by the servers of the pod's resolv.conf. It runs on ordinary goroutines,
// as many as queries are open, and touches no worker.
package nameserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"sluice/internal/config"
)

// Limits of what clients may hold open.
const (
	maxOpen     = 1024             // queries under way; more are answered with SERVFAIL
	maxMessage  = 64 << 10         // of TCP
	udpSize     = 4096             // read at once, and asked for upstream
	idleTimeout = 10 * time.Second // of a TCP client
)

// Options of a Server.
type Options struct {
	Listen  []string      // host:port, UDP and TCP each
	Servers []string      // host:port, of resolv.conf
	Search  string        // the first search domain, without dots at its ends; "": none
	Timeout time.Duration // of a server's answer; 0: 5 s
	Log     *slog.Logger
}

// Server answers queries. Set may be called while it runs.
type Server struct {
	opts  Options
	mu    sync.RWMutex
	table *table // nil: none came yet
	open  chan struct{}
	wg    sync.WaitGroup
}

// New prepares a server; nothing is opened before Run.
func New(o Options) *Server {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{opts: o, open: make(chan struct{}, maxOpen)}
}

// Set takes a name table over; namespace and domain are the pod's own, for the
// short names of Kubernetes services.
func (s *Server) Set(t *config.NameTable, namespace, domain string) {
	next := newTable(t, namespace, domain)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = next
}

func (s *Server) current() *table {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table
}

// Run serves until ctx ends, and returns when no query is open any more.
func (s *Server) Run(ctx context.Context) error {
	var closers []io.Closer
	shut := func() {
		for _, c := range closers {
			_ = c.Close()
		}
	}
	for _, at := range s.opts.Listen {
		u, err := net.ListenPacket("udp", at)
		if err != nil {
			shut()
			return fmt.Errorf("opening the DNS port: %w", err)
		}
		closers = append(closers, u)
		l, err := net.Listen("tcp", u.LocalAddr().String())
		if err != nil {
			shut()
			return fmt.Errorf("opening the DNS port: %w", err)
		}
		closers = append(closers, l)
		s.wg.Go(func() { s.serveUDP(ctx, u) })
		s.wg.Go(func() { s.serveTCP(ctx, l) })
	}
	<-ctx.Done()
	shut()
	s.wg.Wait()
	return ctx.Err()
}

func (s *Server) serveUDP(ctx context.Context, u net.PacketConn) {
	buf := make([]byte, udpSize)
	for {
		n, from, err := u.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // such as an ICMP error of an earlier answer
		}
		q := append([]byte(nil), buf[:n]...)
		s.each(func() {
			if a := s.answer(ctx, q, "udp"); a != nil {
				_, _ = u.WriteTo(a, from)
			}
		}, func() {
			_, _ = u.WriteTo(failure(q), from)
		})
	}
}

// each runs f on a goroutine, or full when too many run.
func (s *Server) each(f, full func()) {
	select {
	case s.open <- struct{}{}:
		s.wg.Go(func() {
			defer func() { <-s.open }()
			f()
		})
	default:
		full()
	}
}

func (s *Server) serveTCP(ctx context.Context, l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors
			continue
		}
		s.each(func() { s.serveConn(ctx, c) }, func() { _ = c.Close() })
	}
}

// serveConn answers the queries of a TCP client, one after the other.
func (s *Server) serveConn(ctx context.Context, c net.Conn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	for {
		_ = c.SetDeadline(time.Now().Add(idleTimeout))
		q, err := readTCP(c)
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(s.opts.Timeout + idleTimeout))
		if a := s.answer(ctx, q, "tcp"); a == nil || writeTCP(c, a) != nil {
			return
		}
	}
}

// answer gives the response to a query that came by network; nil: it isn't one.
func (s *Server) answer(ctx context.Context, q []byte, network string) []byte {
	p, ok := parse(q)
	if !ok {
		return nil
	}
	t := s.current()
	if t == nil {
		return failure(q)
	}
	if a := t.answer(p, s.opts.Search, network == "udp"); a != nil {
		return a
	}
	servers := append([]string(nil), s.opts.Servers...)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	for _, at := range servers {
		a, err := s.ask(ctx, at, q, network)
		if err == nil {
			return a
		}
		s.opts.Log.Debug("DNS server", "address", at, "error", err)
	}
	return failure(q)
}

// ask passes a query on, as it is, and gives the answer as it is.
func (s *Server) ask(ctx context.Context, at string, q []byte, network string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	if network == "tcp" {
		if err := writeTCP(c, q); err != nil {
			return nil, err
		}
		return readTCP(c)
	}
	if _, err := c.Write(q); err != nil {
		return nil, err
	}
	buf := make([]byte, maxMessage)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		if n >= 12 && buf[0] == q[0] && buf[1] == q[1] {
			return buf[:n], nil
		}
	}
}

func readTCP(c io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

func writeTCP(c io.Writer, m []byte) error {
	if len(m) >= maxMessage {
		return fmt.Errorf("a message of %d bytes", len(m))
	}
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
	return err
}
