package redirect

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// space is a network namespace and the one OS thread that lives in it.
type space struct {
	todo chan func()
	fd   int
}

// newSpace makes a namespace with lo up. Making one needs root: without it the
// test fails, because nothing here can be shown without a kernel.
func newSpace(t *testing.T) *space {
	t.Helper()
	if testing.Short() {
		t.Skip("makes a network namespace")
	}
	s := &space{todo: make(chan func())}
	made := make(chan error)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread dies with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			s.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- err
		for f := range s.todo {
			f()
		}
	}()
	if err := <-made; err != nil {
		t.Fatalf("making a network namespace (these tests need root): %v", err)
	}
	t.Cleanup(func() { close(s.todo); <-done; unix.Close(s.fd) })
	s.must(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return s
}

// do runs f in the namespace. Sockets and processes made by f are born there.
func (s *space) do(f func() error) error {
	result := make(chan error)
	s.todo <- func() { result <- f() }
	return <-result
}

func (s *space) must(t *testing.T, f func() error) {
	t.Helper()
	if err := s.do(f); err != nil {
		t.Fatal(err)
	}
}

func (s *space) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out string
	s.must(t, func() (err error) {
		out, err = Exec(context.Background(), Command{Name: name, Args: args})
		return err
	})
	return out
}

// connect joins two namespaces by a link called eth0 on both sides.
func connect(t *testing.T, a, b *space) {
	t.Helper()
	a.must(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(b.fd)})
	})
}

func (s *space) address(t *testing.T, prefixes ...string) {
	t.Helper()
	s.must(t, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		for _, p := range prefixes {
			a, err := netlink.ParseAddr(p)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD // or the address can't be used for a second
			if err := netlink.AddrAdd(link, a); err != nil {
				return fmt.Errorf("adding %s: %w", p, err)
			}
		}
		return nil
	})
}

func (s *space) gateway(t *testing.T, via ...string) {
	t.Helper()
	for _, v := range via {
		s.must(t, func() error {
			all := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
			if strings.Contains(v, ":") {
				all = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
			}
			return netlink.RouteAdd(&netlink.Route{Dst: all, Gw: net.ParseIP(v)})
		})
	}
}

// serve answers every connection with its name, what OriginalDst says and the
// local address.
func (s *space) serve(t *testing.T, name, addr string, transparent bool) {
	t.Helper()
	var l net.Listener
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var fault error
		err := c.Control(func(fd uintptr) {
			if transparent {
				fault = SetTransparent(int(fd))
			}
		})
		if err != nil {
			return err
		}
		return fault
	}}
	network := "tcp" // a wildcard takes both families
	switch addr[0] {
	case '0':
		network = "tcp4"
	case '[':
		network = "tcp6"
	}
	s.must(t, func() (err error) { l, err = lc.Listen(context.Background(), network, addr); return err })
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s %s\n", name, original(c), c.LocalAddr())
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
}

func original(c net.Conn) string {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err.Error()
	}
	text := ""
	err = raw.Control(func(fd uintptr) {
		dst, err := OriginalDst(int(fd))
		if text = dst.String(); err != nil {
			text = err.Error()
		}
	})
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(text, " ", "-")
}

// as runs f with another user for what it creates, on the namespace's thread.
func (s *space) as(id int, f func() error) error {
	return s.do(func() error {
		for _, step := range []struct {
			set func(int) (int, error)
			id  int
		}{{unix.SetfsgidRetGid, id}, {unix.SetfsuidRetUid, id}} {
			if _, err := step.set(step.id); err != nil {
				return err
			}
		}
		defer func() {
			_, _ = unix.SetfsuidRetUid(0)
			_, _ = unix.SetfsgidRetGid(0)
		}()
		return f()
	})
}

// ask dials as a user and returns the words of the answer.
func (s *space) ask(t *testing.T, id int, from, addr string) []string {
	t.Helper()
	var line string
	err := s.as(id, func() error {
		d := net.Dialer{Timeout: 700 * time.Millisecond}
		if from != "" {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
		}
		c, err := d.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		line, err = bufio.NewReader(c).ReadString('\n')
		if err == io.EOF {
			err = nil
		}
		return err
	})
	if err != nil {
		return []string{"error", err.Error()}
	}
	return strings.Fields(line)
}

func quiet(t *testing.T) *slog.Logger {
	t.Helper()
	w := io.Writer(io.Discard)
	if testing.Verbose() {
		w = os.Stderr
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// flavour is one way to get the same rules into the kernel.
type flavour string

func flavours() []flavour { return []flavour{"iptables-nft", "iptables-legacy", "nft"} }

func (f flavour) backend(t *testing.T) Backend {
	t.Helper()
	if f == "nft" {
		return NewNFTables(Exec, quiet(t))
	}
	b, err := NewIPTables(Exec, strings.TrimPrefix(string(f), "iptables-"), quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *space) apply(t *testing.T, b Backend, c Config, choice Choice) {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	r := Build(c)
	s.must(t, func() error {
		if err := ApplyLinks(r); err != nil {
			return err
		}
		return b.Apply(context.Background(), r, choice)
	})
}
