package worker

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// DialOptions of Dial; zero members leave the kernel's defaults.
type DialOptions struct {
	Bind        netip.AddrPort // source address; port 0: the kernel chooses at connect
	Freebind    bool
	Transparent bool
	Mark        uint32
	Keepalive   bool
	KeepIdle    time.Duration
	KeepEvery   time.Duration
	KeepProbes  int
	Timeout     time.Duration // 0: the kernel's
}

// Dial connects to addr, or to the Unix socket pipe when that is set. It never
// blocks, and every failure comes by OnConnect later in the turn or after.
// Output may be written at once; it goes out when the connection is up.
func (w *Worker) Dial(addr netip.AddrPort, pipe string, o DialOptions, h Handler) *Conn {
	c := &Conn{w: w, h: h, fd: -1, flags: connecting, linger: defaultLinger}
	var s sockaddr
	if pipe == "" {
		s.setIP(addr)
	} else if !s.setPipe(pipe) {
		return c.failDial(fmt.Errorf("connecting to %q: not a usable path", pipe))
	}
	w.calls.Others += 2 // and the connect
	fd, e := sysSocket(s.family())
	if e != 0 {
		return c.failDial(e)
	}
	c.fd = int32(fd)
	err := o.apply(fd, s.family())
	if err == nil {
		if e := sysConnect(fd, &s); e != 0 && e != unix.EINPROGRESS {
			err = e
		}
	}
	if err == nil {
		err = w.register(fd, entry{conn: c}, connEvents)
	}
	if err != nil {
		sysClose(fd)
		return c.failDial(err)
	}
	w.conns.Add(1)
	if o.Timeout > 0 {
		c.deadline(o.Timeout, func() { c.fail(ErrConnectTimeout) })
	}
	return c
}

// failDial ends a dial that has no registered socket.
func (c *Conn) failDial(err error) *Conn {
	c.ends().err = err
	c.flags |= dead
	c.touch()
	return c
}

// connected is the kernel's word on a connect, failed or not.
func (c *Conn) connected(failed bool) {
	if c.flags&closing == 0 { // else it is the limit of the close by now
		c.stopDeadline()
	}
	if failed {
		c.w.calls.Others++
		if e := socketError(int(c.fd)); e != 0 {
			c.fail(e)
			return
		}
	}
	c.flags &^= connecting
	c.h.OnConnect(c, nil)
	if c.flags&dead == 0 {
		c.touch()
	}
}

// apply sets the socket's options and binds it.
func (o *DialOptions) apply(fd, family int) error {
	if family == unix.AF_UNIX {
		return nil
	}
	setInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if o.Mark != 0 {
		if e := setInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(o.Mark)); e != 0 {
			return fmt.Errorf("setting SO_MARK: %w", e)
		}
	}
	if o.Keepalive {
		o.applyKeepalive(fd)
	}
	if o.Bind.IsValid() {
		return o.bind(fd, family)
	}
	return nil
}

func (o *DialOptions) applyKeepalive(fd int) {
	setInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	for _, x := range [...]struct{ name, value int }{
		{unix.TCP_KEEPIDLE, int(o.KeepIdle / time.Second)},
		{unix.TCP_KEEPINTVL, int(o.KeepEvery / time.Second)},
		{unix.TCP_KEEPCNT, o.KeepProbes},
	} {
		if x.value > 0 {
			setInt(fd, unix.IPPROTO_TCP, x.name, x.value)
		}
	}
}

func (o *DialOptions) bind(fd, family int) error {
	if v4 := o.Bind.Addr().Unmap().Is4(); v4 != (family == unix.AF_INET) {
		return nil // a source of the other family can't be used; the kernel chooses
	}
	level, freebind, transparent := unix.IPPROTO_IP, unix.IP_FREEBIND, unix.IP_TRANSPARENT
	if family == unix.AF_INET6 {
		level, freebind, transparent = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, unix.IPV6_TRANSPARENT
	}
	if o.Freebind {
		setInt(fd, level, freebind, 1)
	}
	if o.Transparent {
		if e := setInt(fd, level, transparent, 1); e != 0 {
			return fmt.Errorf("setting IP_TRANSPARENT: %w", e)
		}
	}
	if o.Bind.Port() == 0 {
		// Choose the port at connect time, when the whole tuple is known: more
		// than 28,000 connections from one address stay possible.
		setInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}
	var s sockaddr
	s.setIP(o.Bind)
	if e := sysBind(fd, &s); e != 0 {
		return fmt.Errorf("binding to %s: %w", o.Bind, e)
	}
	return nil
}
