package machine

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Topology is the network of the benchmark: a client, one or two proxies and an
// origin, joined by veth pairs without a bridge between. Without the rights for
// namespaces everything is on loopback.
type Topology struct {
	Client, Proxy, Second, Origin string // namespaces, "" on loopback
	Group                         string // control group of the proxy, "" for none
	Notes                         []string
	Addr                          Addresses
}

// Addresses are where each one listens, seen from its caller.
type Addresses struct {
	Proxy  netip.Addr // the client's way to the proxy
	Second netip.Addr // the proxy's way to the second proxy
	Origin netip.Addr // the proxy's way to the origin
	Behind netip.Addr // the second proxy's way to the origin
	Direct netip.Addr // the client's way to the origin
}

// link is a veth pair between two namespaces, on a network of its own.
type link struct{ a, b, net string }

// New makes the network, as good as this user may: Notes says what is missing.
func New() *Topology {
	prefix := "slb" + strconv.Itoa(os.Getpid())
	t := &Topology{Client: prefix + "c", Proxy: prefix + "p", Second: prefix + "q", Origin: prefix + "o"}
	ip := netip.MustParseAddr
	t.Addr = Addresses{Proxy: ip("10.77.1.2"), Second: ip("10.77.3.2"), Origin: ip("10.77.2.2"), Behind: ip("10.77.4.2"), Direct: ip("10.77.5.2")}
	if err := t.namespaces(); err != nil {
		t.Close()
		local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		*t = Topology{Addr: Addresses{local, local, local, local, local}, Notes: []string{"no namespaces, everything on loopback: " + err.Error()}}
	}
	t.group()
	return t
}

func (t *Topology) namespaces() error {
	for _, n := range []string{t.Client, t.Proxy, t.Second, t.Origin} {
		err := sequence(
			"ip netns add "+n, "ip -n "+n+" link set lo up",
			"ip netns exec "+n+" sysctl -qw net.ipv4.ip_local_port_range=16000\t64000 net.ipv4.tcp_tw_reuse=1 net.core.somaxconn=8192 net.ipv4.tcp_max_syn_backlog=8192",
		)
		if err != nil {
			return err
		}
		if sequence("ip netns exec "+n+" sysctl -qw net.ipv4.tcp_congestion_control=cubic") != nil && n == t.Client {
			text, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
			t.Notes = append(t.Notes, "congestion control is "+strings.TrimSpace(string(text))+": cubic can't be set here")
		}
	}
	links := []link{
		{t.Client, t.Proxy, "10.77.1"}, {t.Proxy, t.Origin, "10.77.2"}, {t.Proxy, t.Second, "10.77.3"},
		{t.Second, t.Origin, "10.77.4"}, {t.Client, t.Origin, "10.77.5"},
	}
	for i, l := range links {
		a, b := fmt.Sprintf("v%da", i), fmt.Sprintf("v%db", i)
		err := sequence(
			"ip link add "+a+" netns "+l.a+" type veth peer name "+b+" netns "+l.b,
			"ip -n "+l.a+" addr add "+l.net+".1/24 dev "+a, "ip -n "+l.b+" addr add "+l.net+".2/24 dev "+b,
			"ip -n "+l.a+" link set "+a+" up", "ip -n "+l.b+" link set "+b+" up",
		)
		if err != nil {
			return err
		}
	}
	// What the client sends to the origin's address behind the proxy goes there
	// by the proxy, whose rule takes it.
	return sequence("ip -n " + t.Client + " route add 10.77.2.0/24 via 10.77.1.2")
}

// Redirect has the proxy's namespace take connections to the origin's port to
// the proxy's, as a sidecar's rules do, until undo is called: connection
// tracking costs every packet, and no other row is to pay for it.
func (t *Topology) Redirect(from, to int) (undo func(), err error) {
	if t.Proxy == "" {
		return nil, fmt.Errorf("redirection needs namespaces")
	}
	rule := fmt.Sprintf("table ip bench { chain in { type nat hook prerouting priority -100; ip daddr %s tcp dport %d redirect to :%d; }; }", t.Addr.Origin, from, to)
	nft := "ip netns exec " + t.Proxy + " nft "
	if err := sequence(nft + strings.ReplaceAll(rule, " ", "\t")); err != nil {
		return nil, err
	}
	return func() { _ = sequence(nft + "delete table ip bench") }, nil
}

func (t *Topology) group() {
	name := "sluice-bench-" + strconv.Itoa(os.Getpid())
	for _, root := range []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, name)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		if _, err := cgroupCPU(dir); err == nil {
			t.Group = dir
			return
		}
		_ = os.Remove(dir)
	}
	t.Notes = append(t.Notes, "no control group can be made: CPU is that of the proxy's threads")
}

// Close takes everything down that New made.
func (t *Topology) Close() {
	for _, n := range []string{t.Client, t.Proxy, t.Second, t.Origin} {
		if _, err := os.Stat("/run/netns/" + n); n != "" && err == nil {
			_ = sequence("ip netns del " + n)
		}
	}
	if t.Group != "" {
		_ = os.Remove(t.Group)
	}
}

// sequence runs commands, whose words are apart by single spaces; a tab stands
// for a space within a word.
func sequence(commands ...string) error {
	for _, c := range commands {
		words := strings.Split(c, " ")
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "\t", " ")
		}
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
