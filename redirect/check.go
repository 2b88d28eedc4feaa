package redirect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotRedirected says that the rules, applied by somebody else, don't work in
// this pod.
var ErrNotRedirected = errors.New("connections are not redirected to the proxy; if a CNI plugin should have set the rules, " +
	"it lost a race with this pod, which has to be deleted (cni.repair.deletePods=true does it)")

// Probe is what Check looks for.
type Probe struct {
	ProxyPort, InboundPort uint16
	Port                   uint16 // dialed; nothing listens there
	Timeout                time.Duration
	IPv6                   bool
}

// Check proves by a connection that redirection works: it takes the proxy's
// ports, dials where nothing listens, and expects to be answered by itself with
// the port that was dialed. It must run as the proxy's user. Failure wraps
// ErrNotRedirected.
func Check(ctx context.Context, p Probe, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	ends := [][2]string{{"127.0.0.1", "127.0.0.6"}}
	if p.IPv6 {
		ends = append(ends, [2]string{"::1", "::6"})
	}
	for _, e := range ends {
		if err := p.check(ctx, netip.MustParseAddr(e[0]), netip.MustParseAddr(e[1])); err != nil {
			return fmt.Errorf("%w (dialed %s: %w)", ErrNotRedirected, e[1], err)
		}
		log.Info("connections are redirected", "dialed", e[1])
	}
	return nil
}

func (p Probe) check(ctx context.Context, local, remote netip.Addr) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	lc := net.ListenConfig{Control: shareAddress}
	for _, port := range []uint16{p.ProxyPort, p.InboundPort} {
		l, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(local, port).String())
		if err != nil {
			return fmt.Errorf("taking the proxy's port: %w", err)
		}
		defer l.Close()
		serving.Go(func() { answer(l) })
	}
	d := net.Dialer{Timeout: time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))}
	for {
		err := p.dial(ctx, d, netip.AddrPortFrom(remote, p.Port))
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func (p Probe) dial(ctx context.Context, d net.Dialer, remote netip.AddrPort) error {
	c, err := d.DialContext(ctx, "tcp", remote.String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(d.Timeout)); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(c, 64))
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(text)); got != strconv.Itoa(int(p.Port)) {
		return fmt.Errorf("original port is %q, want %d", got, p.Port)
	}
	return nil
}

// shareAddress lets the check run beside whatever is about to take the ports.
func shareAddress(_, _ string, c syscall.RawConn) error {
	var fault error
	err := c.Control(func(fd uintptr) {
		fault = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	})
	return errors.Join(err, fault)
}

// answer tells every peer the port it dialed, until the listener is closed.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if raw, err := c.(*net.TCPConn).SyscallConn(); err == nil {
			var dst netip.AddrPort
			_ = raw.Control(func(fd uintptr) { dst, _ = OriginalDst(int(fd)) }) // no port is an answer too
			_, _ = io.WriteString(c, strconv.Itoa(int(dst.Port())))
		}
		c.Close()
	}
}
