package worker

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	acceptsPerTurn = 64
	acceptPause    = 100 * time.Millisecond // after EMFILE and its kin
)

// AcceptCounters count what happened to a worker's listening sockets.
type AcceptCounters struct {
	Accepted  uint64
	Exhausted uint64 // EMFILE, ENFILE, ENOBUFS, ENOMEM: accepting paused
}

// Accepts gives the worker's counters.
func (w *Worker) Accepts() AcceptCounters { return w.accepts }

// Listening is a listening socket that a worker accepts from.
type Listening struct {
	w      *Worker
	fd     int
	accept func(fd int, peer netip.AddrPort)
	addr   sockaddr
	timer  Timer
	closed bool
}

// Listen accepts from fd, which is listening and non-blocking; accept owns each
// new descriptor. peer is zero for a Unix socket. Out of descriptors, accepting
// pauses a moment instead of spinning.
func (w *Worker) Listen(fd int, accept func(fd int, peer netip.AddrPort)) (*Listening, error) {
	l := &Listening{w: w, fd: fd, accept: accept}
	l.timer.Fire = func() { epollCtl(w.ep, unix.EPOLL_CTL_MOD, fd, unix.EPOLLIN, w.fds[fd].gen) }
	if err := w.register(fd, entry{accepts: true}, unix.EPOLLIN); err != nil {
		return nil, err
	}
	w.listening[fd] = l
	return l, nil
}

func (l *Listening) acceptMany() {
	for range acceptsPerTurn {
		if l.closed || l.w.Late() {
			return
		}
		l.w.calls.Others++
		fd, e := sysAccept(l.fd, &l.addr)
		switch e {
		case 0:
			l.w.accepts.Accepted++
			l.accept(fd, l.addr.addrPort())
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			l.w.accepts.Exhausted++
			epollCtl(l.w.ep, unix.EPOLL_CTL_MOD, l.fd, 0, l.w.fds[l.fd].gen)
			l.w.Start(&l.timer, acceptPause)
			return
		default:
			return
		}
	}
}

// Close stops accepting and closes the socket.
func (l *Listening) Close() {
	if l.closed {
		return
	}
	l.closed = true
	l.w.Stop(&l.timer)
	l.w.fds[l.fd] = entry{}
	delete(l.w.listening, l.fd)
	sysClose(l.fd)
}

// SocketOptions are for OpenListener.
type SocketOptions struct {
	ReusePort, Transparent, Freebind bool
	V6Only                           bool
	Backlog                          int // 0: the kernel's limit
}

// OpenListener makes a listening socket for Listen. With pipe set it listens on
// that Unix path ('@' begins an abstract name), replacing a stale file.
func OpenListener(addr netip.AddrPort, pipe string, o SocketOptions) (int, error) {
	var s sockaddr
	if pipe == "" {
		s.setIP(addr)
	} else if !s.setPipe(pipe) {
		return -1, fmt.Errorf("listening on %q: not a usable path", pipe)
	}
	fd, e := sysSocket(s.family())
	if e != 0 {
		return -1, fmt.Errorf("making socket: %w", e)
	}
	if err := prepareListener(fd, &s, pipe, o); err != nil {
		sysClose(fd)
		return -1, err
	}
	return fd, nil
}

func prepareListener(fd int, s *sockaddr, pipe string, o SocketOptions) error {
	if pipe != "" {
		if pipe[0] != '@' {
			os.Remove(pipe)
		}
	} else if err := listenerOptions(fd, s.family() == unix.AF_INET6, o); err != nil {
		return err
	}
	if e := sysBind(fd, s); e != 0 {
		return fmt.Errorf("binding: %w", e)
	}
	backlog := o.Backlog
	if backlog == 0 {
		backlog = 1 << 16 // the kernel cuts it to net.core.somaxconn
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	return nil
}

func listenerOptions(fd int, v6 bool, o SocketOptions) error {
	transparent, freebind, level := unix.IP_TRANSPARENT, unix.IP_FREEBIND, unix.IPPROTO_IP
	if v6 {
		transparent, freebind, level = unix.IPV6_TRANSPARENT, unix.IPV6_FREEBIND, unix.IPPROTO_IPV6
	}
	v6only := 0
	if o.V6Only {
		v6only = 1
	}
	for _, x := range []struct {
		on                 bool
		level, name, value int
		what               string
	}{
		{true, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"},
		{true, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1, "TCP_NODELAY"}, // accepted sockets inherit it
		{o.ReusePort, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT"},
		{v6, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, v6only, "IPV6_V6ONLY"},
		{o.Transparent, level, transparent, 1, "IP_TRANSPARENT"},
		{o.Freebind, level, freebind, 1, "IP_FREEBIND"},
	} {
		if !x.on {
			continue
		}
		if e := setInt(fd, x.level, x.name, x.value); e != 0 {
			return fmt.Errorf("setting %s: %w", x.what, e)
		}
	}
	return nil
}

// SocketName is the address a socket is bound to, zero for a Unix socket.
func SocketName(fd int) netip.AddrPort {
	var s sockaddr
	if sysName(unix.SYS_GETSOCKNAME, fd, &s) != 0 {
		return netip.AddrPort{}
	}
	return s.addrPort()
}
