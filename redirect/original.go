package redirect

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST alike.
const soOriginalDst = 80

// OriginalDst returns where the peer of a redirected TCP connection dialed to:
// the destination before NAT, as conntrack knows it. For a connection that
// wasn't redirected it is the local address.
//
// The error is a bare unix.Errno: ENOENT when conntrack doesn't know the
// connection (TPROXY's local address is the original one then), ENOPROTOOPT
// when the kernel has no connection tracking. It allocates nothing, and is safe
// to call from any goroutine as long as fd stays open.
func OriginalDst(fd int) (netip.AddrPort, error) {
	var local unix.RawSockaddrInet6
	size := uint32(unix.SizeofSockaddrInet6)
	_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&local)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	// An IPv6 socket carries IPv4 connections as mapped addresses, but
	// conntrack files them under IPv4.
	if local.Family == unix.AF_INET6 && !netip.AddrFrom16(local.Addr).Is4In6() {
		return originalDst6(fd)
	}
	return originalDst4(fd)
}

func originalDst4(fd int) (netip.AddrPort, error) {
	var sa unix.RawSockaddrInet4
	size := uint32(unix.SizeofSockaddrInet4)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_IP, soOriginalDst,
		uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), hostPort(sa.Port)), nil
}

func originalDst6(fd int) (netip.AddrPort, error) {
	var sa unix.RawSockaddrInet6
	size := uint32(unix.SizeofSockaddrInet6)
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_IPV6, soOriginalDst,
		uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), hostPort(sa.Port)), nil
}

// hostPort turns the network byte order of a raw address around.
func hostPort(raw uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], raw)
	return binary.BigEndian.Uint16(b[:])
}
