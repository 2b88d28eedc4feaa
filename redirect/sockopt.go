package redirect

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetTransparent lets a socket of either family accept (listener) or use as its
// own (connection) addresses that aren't the machine's: TPROXY needs it. It has
// to be set before bind and needs CAP_NET_ADMIN; without it the error wraps
// EPERM.
func SetTransparent(fd int) error {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("reading SO_DOMAIN: %w", err)
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1); err != nil {
			return fmt.Errorf("setting IPV6_TRANSPARENT: %w", err)
		}
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1); err != nil {
		return fmt.Errorf("setting IP_TRANSPARENT: %w", err)
	}
	return nil
}

// SetMark sets the packet mark of everything the socket sends. It needs
// CAP_NET_ADMIN; without it the error wraps EPERM.
func SetMark(fd int, mark uint32) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return fmt.Errorf("setting SO_MARK to %d: %w", mark, err)
	}
	return nil
}
