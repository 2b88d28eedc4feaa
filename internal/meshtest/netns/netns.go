//go:build linux

// Package netns makes pods out of network namespaces: a bridge in a namespace of
// its own, and namespaces on it, each with an address, in which code runs,
// sockets are opened and programs are started. Tests and the demo use it; it
// needs root (or a user namespace that looks like it) and iproute2.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Topology is a bridge and its namespaces. Close takes all of it down.
type Topology struct {
	prefix string
	hub    *Namespace
	all    []*Namespace
}

// Namespace is one pod's network.
type Namespace struct {
	Name string // as `ip netns` knows it
	Addr netip.Addr
	path string
}

// New makes the hub namespace PREFIX-cp with a bridge that has the address hub,
// in a network of bits. Names are the caller's: two topologies need two prefixes.
func New(prefix string, hub netip.Addr, bits int) (*Topology, error) {
	t := &Topology{prefix: prefix}
	name := prefix + "-cp"
	t.hub = &Namespace{Name: name, Addr: hub, path: "/run/netns/" + name}
	if err := t.claim(t.hub); err != nil {
		return nil, err
	}
	err := sequence(
		[]string{"ip", "-n", name, "link", "set", "lo", "up"},
		[]string{"ip", "-n", name, "link", "add", "br0", "type", "bridge"},
		// A fixed address: a bridge otherwise takes the lowest of its ports, and
		// neighbours lose it each time a pod comes.
		[]string{"ip", "-n", name, "link", "set", "br0", "address", "02:00:00:00:00:01"},
		[]string{"ip", "-n", name, "addr", "add", netip.PrefixFrom(hub, bits).String(), "dev", "br0"},
		[]string{"ip", "-n", name, "link", "set", "br0", "up"},
	)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Hub is the namespace of the bridge, where the control plane lives.
func (t *Topology) Hub() *Namespace { return t.hub }

// Add makes a pod's namespace with the address addr.
func (t *Topology) Add(pod string, addr netip.Addr, bits int) (*Namespace, error) {
	name := t.prefix + "-" + pod
	n := &Namespace{Name: name, Addr: addr, path: "/run/netns/" + name}
	if err := t.claim(n); err != nil {
		return nil, err
	}
	port := "v" + pod
	err := sequence(
		[]string{"ip", "link", "add", port, "netns", t.hub.Name, "type", "veth", "peer", "name", "eth0", "netns", name},
		[]string{"ip", "-n", t.hub.Name, "link", "set", port, "master", "br0"},
		[]string{"ip", "-n", t.hub.Name, "link", "set", port, "up"},
		[]string{"ip", "-n", name, "link", "set", "lo", "up"},
		[]string{"ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"},
		[]string{"ip", "-n", name, "addr", "add", netip.PrefixFrom(addr, bits).String(), "dev", "eth0"},
		[]string{"ip", "-n", name, "link", "set", "eth0", "up"},
		[]string{"ip", "-n", name, "route", "add", "default", "via", t.hub.Addr.String()},
	)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// claim makes n, which Close then deletes; one that is there is somebody else's.
func (t *Topology) claim(n *Namespace) error {
	if _, err := os.Stat(n.path); err == nil {
		return fmt.Errorf("network namespace %[1]s is there already: another run has it, or left it behind (`ip netns del %[1]s`)", n.Name)
	}
	if err := sequence([]string{"ip", "netns", "add", n.Name}); err != nil {
		return err
	}
	t.all = append(t.all, n)
	return nil
}

// Close deletes every namespace. Programs started in them are the caller's to end.
func (t *Topology) Close() error {
	var errs []error
	for _, n := range t.all {
		if _, err := os.Stat(n.path); err == nil {
			errs = append(errs, sequence([]string{"ip", "netns", "del", n.Name}))
		}
	}
	return errors.Join(errs...)
}

func sequence(commands ...[]string) error {
	for _, c := range commands {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// Do runs f on a thread in the namespace, and brings the thread back: a thread
// that ended instead would take the programs it started with it, where those
// have a parent-death signal.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("opening the thread's namespace: %w", err)
			return
		}
		defer unix.Close(home)
		err = n.enter(f)
		if back := unix.Setns(home, unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
		done <- err
	}()
	return <-done
}

func (n *Namespace) enter(f func() error) error {
	fd, err := unix.Open(n.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening namespace %s: %w", n.Name, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering namespace %s: %w", n.Name, err)
	}
	return f()
}

// Listen opens a listening TCP socket in the namespace.
func (n *Namespace) Listen(address string) (l net.Listener, err error) {
	err = n.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// Dial connects from the namespace, as an application in the pod would.
func (n *Namespace) Dial(ctx context.Context, address string) (c net.Conn, err error) {
	err = n.Do(func() (err error) {
		// One address and no name: the dialer then needs no goroutine of its own,
		// which would run outside the namespace.
		c, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

// Command is a program in the namespace that runs as uid and gid.
func (n *Namespace) Command(ctx context.Context, uid int, argv ...string) *exec.Cmd {
	args := []string{"netns", "exec", n.Name}
	if uid != 0 {
		id := strconv.Itoa(uid)
		args = append(args, "setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--")
	}
	return exec.CommandContext(ctx, "ip", append(args, argv...)...)
}
