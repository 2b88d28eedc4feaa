package worker

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below cannot block (the descriptors are non-blocking), so the Go
// scheduler is not told of them: entering and leaving it is what makes a
// goroutine lose its P. Each converts its pointers in the call itself.

const epollET = 1 << 31

func epollCtl(ep, op, fd int, events uint32, gen int32) unix.Errno {
	ev := unix.EpollEvent{Events: events, Fd: int32(fd), Pad: gen}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(ep), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

func epollWaitRaw(ep int, events []unix.EpollEvent, ms int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(ms), 0, 0)
	return int(n), e
}

func sysRead(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), e
}

// sysWrite sends with MSG_NOSIGNAL: a write on a reset socket must not raise SIGPIPE.
func sysWrite(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

func sysSplice(from, to, n int) (int, unix.Errno) {
	r, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	return int(r), e
}

func sysClose(fd int) {
	unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

func sysShutdown(fd int) {
	unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
}

func setInt(fd, level, name, value int) unix.Errno {
	v := int32(value)
	_, _, e := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&v)), 4, 0)
	return e
}

// socketError takes the socket's pending error.
func socketError(fd int) unix.Errno {
	var v, n int32 = 0, 4
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR, uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return unix.Errno(v)
}

func resetOnClose(fd int) {
	l := unix.Linger{Onoff: 1}
	unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&l)), unsafe.Sizeof(l), 0)
}

// sockaddr is room for any address the kernel gives or takes.
type sockaddr struct {
	raw unix.RawSockaddrAny
	len uint32
}

func (s *sockaddr) setIP(a netip.AddrPort) {
	port := a.Port()<<8 | a.Port()>>8
	if ip := a.Addr().Unmap(); ip.Is4() {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		*sa = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port, Addr: ip.As4()}
		s.len = unix.SizeofSockaddrInet4
		return
	}
	sa := (*unix.RawSockaddrInet6)(unsafe.Pointer(&s.raw))
	*sa = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: port, Addr: a.Addr().As16()}
	s.len = unix.SizeofSockaddrInet6
}

// setPipe takes a file system path, or an abstract name after '@'.
func (s *sockaddr) setPipe(path string) bool {
	sa := (*unix.RawSockaddrUnix)(unsafe.Pointer(&s.raw))
	*sa = unix.RawSockaddrUnix{Family: unix.AF_UNIX}
	if len(path) == 0 || len(path) >= len(sa.Path) {
		return false
	}
	for i := range len(path) {
		sa.Path[i] = int8(path[i])
	}
	s.len = uint32(2 + len(path) + 1)
	if path[0] == '@' {
		sa.Path[0] = 0
		s.len--
	}
	return true
}

// addrPort is the zero AddrPort for a Unix socket. IPv4 in IPv6 is unmapped.
func (s *sockaddr) addrPort() netip.AddrPort {
	switch s.raw.Addr.Family {
	case unix.AF_INET:
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), sa.Port<<8|sa.Port>>8)
	case unix.AF_INET6:
		sa := (*unix.RawSockaddrInet6)(unsafe.Pointer(&s.raw))
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), sa.Port<<8|sa.Port>>8)
	}
	return netip.AddrPort{}
}

func (s *sockaddr) family() int { return int(s.raw.Addr.Family) }

func sysAccept(fd int, s *sockaddr) (int, unix.Errno) {
	s.len = unix.SizeofSockaddrAny
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&s.raw)), uintptr(unsafe.Pointer(&s.len)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	return int(n), e
}

func sysName(call uintptr, fd int, s *sockaddr) unix.Errno {
	s.len = unix.SizeofSockaddrAny
	_, _, e := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&s.raw)), uintptr(unsafe.Pointer(&s.len)))
	return e
}

func sysSocket(family int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return int(n), e
}

func sysBind(fd int, s *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&s.raw)), uintptr(s.len))
	return e
}

func sysConnect(fd int, s *sockaddr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&s.raw)), uintptr(s.len))
	return e
}
