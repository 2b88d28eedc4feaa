package redirect

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// injected is what the arguments of an injected pod mean.
func injected(mode Mode) Config {
	c := Defaults()
	c.Mode = mode
	c.InboundPorts = Ports{All: true}
	c.InboundSkip = []uint16{15090, 15021, 15020}
	c.OutboundRanges = Ranges{All: true}
	return c
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestKernelHoldsWhatIstioInitLeaves(t *testing.T) {
	dns := injected(Redirect)
	dns.DNS, dns.DNSServers = true, []string{"10.96.0.9"}
	excludes := Defaults()
	excludes.InboundPorts = Ports{List: []uint16{8080, 9000}}
	excludes.OutboundRanges = Ranges{List: prefixes("10.0.0.0/8", "192.0.2.0/24")}
	excludes.OutboundSkip = prefixes("10.9.0.0/16")
	excludes.OutboundSkipPorts = []uint16{3306, 25}
	excludes.OutboundPorts = []uint16{9999}
	for name, c := range map[string]Config{
		"default": injected(Redirect), "tproxy": injected(TProxy), "dns": dns, "excludes": excludes,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			s.apply(t, flavour("iptables-nft").backend(t), c, Choice{})
			compareFile(t, name+".v4", withoutComments(s.run(t, "iptables-nft-save")))
		})
	}
	t.Run("nftables", func(t *testing.T) {
		s := newSpace(t)
		s.apply(t, flavour("nft").backend(t), injected(Redirect), Choice{})
		compareFile(t, "nftables.nft", s.run(t, "nft", "list", "ruleset"))
	})
}

func compareFile(t *testing.T, name, got string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", "kernel", name))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}
}

func withoutComments(text string) string {
	return regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
}

// everything switches on each option, so that each rule meets a real kernel.
func everything(mode Mode) Config {
	c := injected(mode)
	c.IPv6, c.DropInvalid = true, true
	c.DNS, c.DNSServers = true, []string{"10.96.0.9", "fd00::9"}
	c.ProxyUID, c.ProxyGID = []string{"1337", "1338"}, []string{"1337"}
	c.SkipInterfaces, c.VirtInterfaces = []string{"net1", "net+"}, []string{"vm0", "vm1"}
	c.OutboundSkip = prefixes("10.9.0.0/16", "fd09::/16")
	c.OutboundPorts, c.OutboundSkipPorts = []uint16{9999}, []uint16{3306}
	c.OwnerGroups = []string{"202", "root"}
	return c
}

// held is all a flavour keeps in the kernel, with counters and comments gone.
func (s *space) held(t *testing.T, f flavour) string {
	t.Helper()
	if f == "nft" {
		return regexp.MustCompile(`packets \d+ bytes \d+`).ReplaceAllString(s.run(t, "nft", "list", "ruleset"), "")
	}
	text := s.run(t, string(f)+"-save") + s.run(t, strings.Replace(string(f), "ip", "ip6", 1)+"-save")
	return regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(withoutComments(text), "")
}

func (s *space) links(t *testing.T) string {
	return s.run(t, "ip", "rule") + s.run(t, "ip", "-6", "rule") + s.run(t, "ip", "-6", "addr", "show", "dev", "lo") +
		s.run(t, "ip", "route", "show", "table", "all", "type", "local") + s.run(t, "ip", "-6", "route", "show", "table", "all", "type", "local")
}

func TestApplyTwiceChangesNothingAndCleanupLeavesNothing(t *testing.T) {
	for _, f := range flavours() {
		for _, c := range []Config{injected(Redirect), everything(Redirect), everything(TProxy)} {
			name := string(f) + "/" + string(c.Mode)
			if c.IPv6 {
				name += "/everything"
			}
			t.Run(name, func(t *testing.T) {
				s := newSpace(t)
				before := s.links(t)
				b := f.backend(t)
				s.apply(t, b, c, Choice{})
				once, links := s.held(t, f), s.links(t)
				if strings.Count(strings.ToLower(once), "istio") < 10 {
					t.Fatalf("nothing applied:\n%s", once)
				}
				if c.Mode == TProxy && !strings.Contains(links, "table 133") {
					t.Fatalf("no TPROXY route:\n%s", links)
				}
				s.apply(t, b, c, Choice{})
				if d := cmp.Diff(once, s.held(t, f)); d != "" {
					t.Errorf("second run changed rules:\n%s", d)
				}
				if d := cmp.Diff(links, s.links(t)); d != "" {
					t.Errorf("second run changed links:\n%s", d)
				}
				s.cleanup(t, b, c)
				s.checkEmpty(t, f)
				if d := cmp.Diff(before, s.links(t)); d != "" {
					t.Errorf("clean-up left links:\n%s", d)
				}
			})
		}
	}
}

func (s *space) cleanup(t *testing.T, b Backend, c Config) {
	t.Helper()
	s.must(t, func() error {
		return errors.Join(b.Cleanup(context.Background(), Build(c)), CleanupLinks(Build(c)))
	})
}

func (s *space) checkEmpty(t *testing.T, f flavour) {
	t.Helper()
	after := s.held(t, f)
	if f == "nft" && after != "" || f != "nft" && parseSave(after).residue() {
		t.Errorf("clean-up left:\n%s", after)
	}
}

func TestCleanupTakesDuplicatesAndLeavesForeignRules(t *testing.T) {
	f := flavour("iptables-nft")
	s := newSpace(t)
	c := everything(Redirect)
	s.apply(t, f.backend(t), c, Choice{})
	s.run(t, "iptables-nft", "-t", "nat", "-A", "PREROUTING", "-i", "net1", "-j", "RETURN")
	s.run(t, "iptables-nft", "-t", "nat", "-A", "OUTPUT", "-j", "ISTIO_OUTPUT")
	s.run(t, "iptables-nft", "-t", "nat", "-A", "OUTPUT", "-d", "192.0.2.1/32", "-j", "ACCEPT")
	s.cleanup(t, f.backend(t), c)
	want := saved{"nat": {"OUTPUT": {"-d 192.0.2.1/32 -j ACCEPT"}}}
	got := parseSave(s.run(t, "iptables-nft-save"))
	for table, chains := range got {
		for chain, rules := range chains {
			if d := cmp.Diff(want[table][chain], rules); d != "" {
				t.Errorf("%s %s: want -, got +:\n%s", table, chain, d)
			}
		}
	}
}

func TestRunKilledBetweenFamiliesIsRepairedByTheNext(t *testing.T) {
	s := newSpace(t)
	c := everything(Redirect)
	killed := errors.New("killed")
	half, err := NewIPTables(func(ctx context.Context, cmd Command) (string, error) {
		if strings.HasPrefix(cmd.Name, "ip6tables") && strings.HasSuffix(cmd.Name, "-restore") {
			return "", killed
		}
		return Exec(ctx, cmd)
	}, "", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	err = s.do(func() error { return half.Apply(context.Background(), Build(c), Choice{}) })
	if !errors.Is(err, killed) {
		t.Fatalf("error is %v, want %v", err, killed)
	}
	f := flavour("iptables-nft")
	v4 := s.run(t, "iptables-nft-save", "-t", "nat")
	if !strings.Contains(v4, chainOutbound) {
		t.Fatal("the first family should be there")
	}
	s.apply(t, f.backend(t), c, Choice{})
	if !strings.Contains(s.run(t, "ip6tables-nft-save", "-t", "nat"), chainOutbound) {
		t.Error("the second family is still missing")
	}
}

func TestDriftIsRepairedOnlyWithReconcile(t *testing.T) {
	for _, f := range []flavour{"iptables-nft", "iptables-legacy"} {
		t.Run(string(f), func(t *testing.T) {
			s := newSpace(t)
			c := everything(TProxy)
			b := f.backend(t)
			s.apply(t, b, c, Choice{})
			whole := s.held(t, f)
			s.run(t, string(f), "-t", "nat", "-D", chainOutbound, "-m", "owner", "--uid-owner", "1337", "-j", "RETURN")
			err := s.do(func() error { return b.Apply(context.Background(), Build(c), Choice{}) })
			if err == nil {
				t.Fatal("applying over drift should fail")
			}
			s.apply(t, b, c, Choice{Reconcile: true})
			// The filter table appears with the guard rules, which must be gone.
			got := s.held(t, f)
			if strings.Contains(got, "-j DROP\n-A OUTPUT") || strings.Contains(got, "-A INPUT") {
				t.Errorf("guard rules are left:\n%s", got)
			}
			if d := cmp.Diff(ruleLines(whole), ruleLines(got)); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
		})
	}
}

func ruleLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "-A") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

func TestForceReplacesWhatIsInPlace(t *testing.T) {
	for _, f := range flavours() {
		t.Run(string(f), func(t *testing.T) {
			s := newSpace(t)
			b := f.backend(t)
			s.apply(t, b, everything(Redirect), Choice{Force: true})
			once := s.held(t, f)
			s.apply(t, b, everything(Redirect), Choice{Force: true})
			if d := cmp.Diff(ruleLines(once), ruleLines(s.held(t, f))); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
		})
	}
}

func TestToolIsTheOneWithRules(t *testing.T) {
	for want, rule := range map[string][]string{
		"iptables-nft":    nil,
		"iptables-legacy": {"iptables-legacy", "-t", "nat", "-A", "OUTPUT", "-d", "192.0.2.1", "-j", "ACCEPT"},
	} {
		t.Run(want, func(t *testing.T) {
			s := newSpace(t)
			if rule != nil {
				s.run(t, rule[0], rule[1:]...)
			}
			var got *tool
			s.must(t, func() (err error) { got, err = findTool(context.Background(), Exec, IPv4, ""); return err })
			if got.name != want {
				t.Errorf("tool is %s, want %s", got.name, want)
			}
		})
	}
}

func TestMissingToolIsAnError(t *testing.T) {
	none := func(_ context.Context, c Command) (string, error) { return "", os.ErrNotExist }
	b, err := NewIPTables(none, "", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Apply(context.Background(), Build(Defaults()), Choice{}); err == nil || !strings.Contains(err.Error(), "iptables") {
		t.Errorf("error is %v, want one naming iptables", err)
	}
}

// pod is a pod with rules, and a machine beyond it that has a server.
type pod struct{ in, out *space }

const (
	podV4, peerV4, farV4 = "10.244.0.99", "10.244.0.1", "10.1.2.3"
	podV6, peerV6, farV6 = "fd00:1::99", "fd00:1::1", "fd00:2::3"
)

func newPod(t *testing.T, f flavour, c Config) pod {
	t.Helper()
	p := pod{in: newSpace(t), out: newSpace(t)}
	connect(t, p.in, p.out)
	p.in.address(t, podV4+"/24", podV6+"/64")
	p.out.address(t, peerV4+"/24", peerV6+"/64")
	p.in.gateway(t, peerV4, peerV6)
	p.in.apply(t, f.backend(t), c, Choice{})
	tproxy := c.Mode == TProxy
	p.in.serve(t, "outbound", ":15001", false)
	p.in.serve(t, "inbound", "0.0.0.0:15006", tproxy)
	p.in.serve(t, "inbound", "[::]:15006", tproxy)
	p.in.serve(t, "status", ":15021", false)
	p.in.serve(t, "app", ":8080", false)
	p.out.serve(t, "peer", ":9000", false)
	return p
}

const proxyID, appID = 1337, 0

// path is one way a connection can take.
type path struct {
	rule     string
	from     *space
	id       int
	src, dst string
	want     string // who answers
	original string // what it was told; empty: not asked
}

func (p pod) paths(pod, peer, far, passthrough, loopback string) []path {
	at := func(addr, port string) string { return net.JoinHostPort(addr, port) }
	return []path{
		{"outbound is captured", p.in, appID, "", at(far, "80"), "outbound", at(far, "80")},
		{"inbound is captured", p.out, appID, "", at(pod, "8080"), "inbound", at(pod, "8080")},
		{"excluded inbound port is not", p.out, appID, "", at(pod, "15021"), "status", at(pod, "15021")},
		{"the proxy's own traffic leaves", p.in, proxyID, "", at(peer, "9000"), "peer", ""},
		{"the proxy doesn't reach itself", p.in, proxyID, "", at(pod, "15021"), "inbound", at(pod, "15021")},
		{"application to its own address stays", p.in, appID, "", at(pod, "8080"), "app", at(pod, "8080")},
		{"proxy to the pod's own address enters again", p.in, proxyID, "", at(pod, "8080"), "inbound", at(pod, "8080")},
		{"pass-through source reaches the application", p.in, proxyID, passthrough, at(pod, "8080"), "app", at(pod, "8080")},
		{"loopback stays", p.in, appID, "", at(loopback, "8080"), "app", at(loopback, "8080")},
		{"the proxy's loopback stays", p.in, proxyID, "", at(loopback, "8080"), "app", at(loopback, "8080")},
	}
}

func TestConnectionsTakeTheirWay(t *testing.T) {
	for _, f := range flavours() {
		t.Run(string(f), func(t *testing.T) {
			c := injected(Redirect)
			c.IPv6 = true
			p := newPod(t, f, c)
			p.walk(t, false)
			p.loopIsAbsent(t)
		})
	}
}

func TestConnectionsTakeTheirWayWithTProxy(t *testing.T) {
	for _, f := range flavours() {
		t.Run(string(f), func(t *testing.T) {
			c := injected(TProxy)
			c.IPv6 = true
			p := newPod(t, f, c)
			p.walk(t, true)
		})
	}
}

func (p pod) walk(t *testing.T, tproxy bool) {
	for _, list := range [][]path{
		p.paths(podV4, peerV4, farV4, "127.0.0.6", "127.0.0.1"),
		p.paths(podV6, peerV6, farV6, "::6", "::1"),
	} {
		for _, way := range list {
			t.Run(way.rule+"/"+way.dst, func(t *testing.T) {
				got := way.from.ask(t, way.id, way.src, way.dst)
				if len(got) != 3 || got[0] != way.want {
					t.Fatalf("answer is %q, want %s", got, way.want)
				}
				original := got[1]
				if tproxy && way.want == "inbound" && way.from == p.out {
					original = got[2] // the transparent socket's own address
				}
				if way.original != "" && original != way.original {
					t.Errorf("original destination is %s, want %s", original, way.original)
				}
			})
		}
	}
}

// loopIsAbsent dials as the proxy what nobody answers: were the guard missing,
// the proxy's own listener would answer, and would dial again.
func (p pod) loopIsAbsent(t *testing.T) {
	for _, dst := range []string{farV4, farV6} {
		t.Run("no loop/"+dst, func(t *testing.T) {
			if got := p.in.ask(t, proxyID, "", net.JoinHostPort(dst, "80")); got[0] != "error" {
				t.Errorf("answer is %q, want none", got)
			}
		})
	}
}

func TestDNSIsCapturedExceptTheProxys(t *testing.T) {
	for _, f := range flavours() {
		t.Run(string(f), func(t *testing.T) {
			c := injected(Redirect)
			c.IPv6 = true
			c.DNS, c.DNSServers = true, []string{peerV4, peerV6}
			p := newPod(t, f, c)
			p.in.serveUDP(t, "agent", "127.0.0.1:15053")
			p.in.serveUDP(t, "agent", "[::1]:15053")
			p.out.serveUDP(t, "server", ":53")
			for _, server := range []string{peerV4, peerV6} {
				addr := net.JoinHostPort(server, "53")
				if got := p.in.askUDP(t, appID, addr); got != "agent" {
					t.Errorf("application asking %s is answered by %q, want agent", server, got)
				}
				if got := p.in.askUDP(t, proxyID, addr); got != "server" {
					t.Errorf("proxy asking %s is answered by %q, want server", server, got)
				}
			}
		})
	}
}

func (s *space) serveUDP(t *testing.T, name, addr string) {
	t.Helper()
	var c net.PacketConn
	s.must(t, func() (err error) {
		// The proxy answers as its own user: the conntrack zone depends on it.
		if name == "agent" {
			return nil
		}
		c, err = net.ListenPacket("udp", addr)
		return err
	})
	if name == "agent" {
		if err := s.as(proxyID, func() (err error) { c, err = net.ListenPacket("udp", addr); return err }); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(name), from)
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
}

func (s *space) askUDP(t *testing.T, id int, addr string) string {
	t.Helper()
	buf := make([]byte, 64)
	n := 0
	err := s.as(id, func() error {
		c, err := net.Dial("udp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
		n, err = c.Read(buf)
		return err
	})
	if err != nil {
		return err.Error()
	}
	return string(buf[:n])
}

func TestCheckTellsWhetherRulesWork(t *testing.T) {
	probe := Probe{ProxyPort: 15001, InboundPort: 15006, Port: 15002, Timeout: 5 * time.Second, IPv6: true}
	s := newSpace(t)
	check := func(p Probe) error {
		return s.as(proxyID, func() error { return Check(context.Background(), p, quiet(t)) })
	}
	short := probe
	short.Timeout = 300 * time.Millisecond
	if err := check(short); !errors.Is(err, ErrNotRedirected) {
		t.Errorf("without rules the error is %v, want ErrNotRedirected", err)
	}
	c := injected(Redirect)
	c.IPv6 = true
	s.apply(t, flavour("iptables-nft").backend(t), c, Choice{})
	if err := check(probe); err != nil {
		t.Errorf("with rules: %v", err)
	}
}

func TestOriginalDstAllocatesNothing(t *testing.T) {
	s := newSpace(t)
	c := injected(Redirect)
	c.IPv6 = true
	s.apply(t, flavour("iptables-nft").backend(t), c, Choice{})
	for listen, dial := range map[string]string{"127.0.0.1:15006": "127.0.0.6:80", "[::]:15006": "127.0.0.6:80", "[::1]:15006": "[::6]:80"} {
		t.Run(listen+"/"+dial, func(t *testing.T) {
			var l net.Listener
			s.must(t, func() (err error) { l, err = net.Listen("tcp", listen); return err })
			defer l.Close()
			var client net.Conn
			// To ::6 the kernel would choose ::6 as the source, which isn't captured.
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(map[bool]string{true: "::1", false: "127.0.0.1"}[dial[0] == '['])}}
			if err := s.as(proxyID, func() (err error) { client, err = d.Dial("tcp", dial); return err }); err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			raw, err := server.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			err = raw.Control(func(fd uintptr) {
				var got netip.AddrPort
				n := testing.AllocsPerRun(100, func() { got, err = OriginalDst(int(fd)) })
				if n != 0 || err != nil || got.String() != dial {
					t.Errorf("%v allocations, %v, error %v; want 0, %s", n, got, err, dial)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestOriginalDstOfAClosedSocketIsAnErrno(t *testing.T) {
	if _, err := OriginalDst(-1); err == nil {
		t.Error("want an error")
	}
}

func TestSetMarkIsSeenByTheKernel(t *testing.T) {
	s := newSpace(t)
	s.must(t, func() error {
		fd, err := tcpSocket()
		if err != nil {
			return err
		}
		defer closeSocket(fd)
		if err := SetMark(fd, 1338); err != nil {
			return err
		}
		return wantMark(fd, 1338)
	})
}

func TestApplyLinksNeedsNothingWithoutIPv6AndTProxy(t *testing.T) {
	s := newSpace(t)
	before := s.links(t)
	s.must(t, func() error { return ApplyLinks(Build(injected(Redirect))) })
	if d := cmp.Diff(before, s.links(t)); d != "" {
		t.Error(d)
	}
	var addrs []netlink.Addr
	s.must(t, func() (err error) {
		lo, err := findLoopback()
		if err != nil {
			return err
		}
		addrs, err = netlink.AddrList(lo, netlink.FAMILY_V6)
		return err
	})
	if len(addrs) != 1 {
		t.Errorf("lo has %v, want only ::1", addrs)
	}
}

func TestCleanupWorksWithoutIPv6(t *testing.T) {
	s := newSpace(t)
	b, err := NewIPTables(func(ctx context.Context, c Command) (string, error) {
		if strings.HasPrefix(c.Name, "ip6tables") {
			return "", errors.New("no IPv6 here")
		}
		return Exec(ctx, c)
	}, "", quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, b, injected(Redirect), Choice{})
	s.cleanup(t, b, injected(Redirect))
	s.checkEmpty(t, flavour("iptables-nft"))
	c := injected(Redirect)
	c.IPv6 = true
	if err := s.do(func() error { return b.Apply(context.Background(), Build(c), Choice{}) }); err == nil {
		t.Error("with IPv6 wanted, a missing ip6tables must be an error")
	}
}
