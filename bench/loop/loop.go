// Package loop is a small epoll loop for one thread. The load generator, the
// back ends and the bare forwarder run on it, so that what they cost is nearly
// what the kernel costs, and nothing of theirs is collected while they measure.
package loop

import (
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Handler is the protocol on one connection.
type Handler interface {
	// Feed takes bytes from the front of in and says how many; the rest comes
	// again with more behind it.
	Feed(c *Conn, in []byte) (used int, err error)
	// Drained is called when a full output has become empty, and once when a
	// connect has ended.
	Drained(c *Conn)
	// Closed is called once, with nil for an orderly end.
	Closed(c *Conn, err error)
}

// Conn is one connection. What is appended to Out is sent by the next Flush.
type Conn struct {
	FD      int
	Out     []byte
	handler Handler
	loop    *Loop
	in      []byte
	waits   bool // for room to write
	closed  bool
}

// Loop is a set of connections and perhaps a listening socket.
type Loop struct {
	ep     int
	listen int
	accept func() Handler
	conns  map[int32]*Conn
	events [512]unix.EpollEvent
	buf    []byte
}

// New makes an empty loop.
func New() (*Loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making an epoll set: %w", err)
	}
	return &Loop{ep: ep, listen: -1, conns: map[int32]*Conn{}, buf: make([]byte, 256<<10)}, nil
}

func sockaddr(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// Listen serves a with a new handler for each connection.
func (l *Loop) Listen(a netip.AddrPort, accept func() Handler) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making a socket: %w", err)
	}
	l.listen, l.accept = fd, accept
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(fd, sockaddr(a)); err != nil {
		return fmt.Errorf("binding %s: %w", a, err)
	}
	if err := unix.Listen(fd, 8192); err != nil {
		return fmt.Errorf("listening on %s: %w", a, err)
	}
	return l.watch(fd, unix.EPOLL_CTL_ADD, unix.EPOLLIN)
}

func (l *Loop) watch(fd, op int, events uint32) error {
	return unix.EpollCtl(l.ep, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Dial starts to connect to a; Drained tells when that has ended.
func (l *Loop) Dial(a netip.AddrPort, h Handler) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	if err := unix.Connect(fd, sockaddr(a)); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return nil, fmt.Errorf("connecting to %s: %w", a, err)
	}
	return l.adopt(fd, h, true)
}

func (l *Loop) adopt(fd int, h Handler, connecting bool) (*Conn, error) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c := &Conn{FD: fd, handler: h, loop: l, waits: connecting}
	events := uint32(unix.EPOLLIN)
	if connecting {
		events |= unix.EPOLLOUT
	}
	if err := l.watch(fd, unix.EPOLL_CTL_ADD, events); err != nil {
		unix.Close(fd)
		return nil, err
	}
	l.conns[int32(fd)] = c
	return c, nil
}

// Poll handles what is ready, waiting at most wait. The wait is a raw system
// call: the Go scheduler never sees it, as there is nothing else for it to do.
func (l *Loop) Poll(wait time.Duration) error {
	ts := unix.NsecToTimespec(int64(max(wait, 0)))
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.ep), uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno == unix.EINTR {
		return nil
	} else if errno != 0 {
		return os.NewSyscallError("epoll_pwait2", errno)
	}
	for i := range int(n) {
		e := l.events[i]
		if int(e.Fd) == l.listen {
			l.takeIn()
			continue
		}
		c := l.conns[e.Fd]
		if c == nil {
			continue
		}
		if e.Events&unix.EPOLLOUT != 0 && c.waits {
			c.room()
		}
		if e.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 && !c.closed {
			c.read()
		}
	}
	return nil
}

func (l *Loop) takeIn() {
	for {
		fd, _, err := unix.Accept4(l.listen, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		if c, err := l.adopt(fd, l.accept(), false); err == nil {
			c.handler.Drained(c)
			c.Flush()
		}
	}
}

func (c *Conn) read() {
	n, err := unix.Read(c.FD, c.loop.buf)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err != nil:
		c.Close(os.NewSyscallError("read", err))
		return
	case n == 0:
		c.Close(nil)
		return
	}
	in := c.loop.buf[:n]
	if len(c.in) > 0 {
		c.in = append(c.in, in...)
		in = c.in
	}
	used, err := c.handler.Feed(c, in)
	if err != nil {
		c.Close(err)
		return
	}
	if !c.closed {
		c.in = append(c.in[:0], in[used:]...)
		c.Flush()
	}
}

func (c *Conn) room() {
	c.waits = false
	if !c.Flush() || c.closed {
		return
	}
	_ = c.loop.watch(c.FD, unix.EPOLL_CTL_MOD, unix.EPOLLIN)
	c.handler.Drained(c)
	if !c.closed {
		c.Flush()
	}
}

// Flush sends Out and says whether all of it went; the rest goes later. A
// connection that takes everything is asked for more by Drained.
func (c *Conn) Flush() bool {
	for !c.waits && !c.closed && len(c.Out) > 0 {
		n, err := unix.Write(c.FD, c.Out)
		if err == unix.EAGAIN {
			c.waits = true
			_ = c.loop.watch(c.FD, unix.EPOLL_CTL_MOD, unix.EPOLLIN|unix.EPOLLOUT)
			return false
		} else if err != nil && err != unix.EINTR {
			c.Close(os.NewSyscallError("write", err))
			return false
		}
		c.Out = c.Out[:copy(c.Out, c.Out[max(n, 0):])]
	}
	return !c.waits
}

// WaitRoom has Drained called when the socket takes bytes again, at once if it does.
func (c *Conn) WaitRoom() {
	c.waits = true
	_ = c.loop.watch(c.FD, unix.EPOLL_CTL_MOD, unix.EPOLLIN|unix.EPOLLOUT)
}

// Pause stops reading, so that the peer is held back; Resume goes on.
func (c *Conn) Pause() { _ = c.loop.watch(c.FD, unix.EPOLL_CTL_MOD, 0) }

// Resume reads again.
func (c *Conn) Resume() { _ = c.loop.watch(c.FD, unix.EPOLL_CTL_MOD, unix.EPOLLIN) }

// Close ends the connection and tells its handler.
func (c *Conn) Close(err error) {
	if c.closed {
		return
	}
	c.closed = true
	delete(c.loop.conns, int32(c.FD))
	unix.Close(c.FD)
	c.handler.Closed(c, err)
}
