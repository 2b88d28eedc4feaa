package nameserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"sluice/internal/config"
)

func names() *config.NameTable {
	ip := func(s ...string) (out []netip.Addr) {
		for _, x := range s {
			out = append(out, netip.MustParseAddr(x))
		}
		return out
	}
	many := make([]netip.Addr, 0, 300)
	for i := range 300 {
		many = append(many, netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}))
	}
	return &config.NameTable{Hosts: map[string]config.NameTableEntry{
		"b.demo.svc.cluster.local":  {IPs: ip("10.0.0.2", "fd00::2"), Registry: "Kubernetes", Shortname: "b", Namespace: "demo"},
		"c.other.svc.cluster.local": {IPs: ip("10.0.0.3"), Registry: "Kubernetes", Shortname: "c", Namespace: "other"},
		"api.example.com":           {IPs: ip("240.240.0.1"), Registry: "External"},
		"*.wild.example.com":        {IPs: ip("240.240.0.2"), Registry: "External"},
		"many.example.com":          {IPs: many, Registry: "External"},
	}}
}

// upstreamServer answers every query with 192.0.2.1, by UDP and TCP.
func upstreamServer(t *testing.T) string {
	t.Helper()
	s := New(Options{Listen: []string{"127.0.0.1:0"}})
	u, l := bothPorts(t)
	s.table = &table{hosts: map[string][]netip.Addr{}, wild: map[string][]netip.Addr{"example.org.": {netip.MustParseAddr("192.0.2.1")}, "test.": {netip.MustParseAddr("192.0.2.1")}}}
	s.wg.Go(func() { s.serveUDP(context.Background(), u) })
	s.wg.Go(func() { s.serveTCP(context.Background(), l) })
	t.Cleanup(func() { u.Close(); l.Close(); s.wg.Wait() })
	return u.LocalAddr().String()
}

// bothPorts opens one port number for UDP and TCP; one that is free for the first
// may be taken for the second.
func bothPorts(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		u, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if l, err := net.Listen("tcp", u.LocalAddr().String()); err == nil {
			return u, l
		}
		u.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

func start(t *testing.T, o Options) (*Server, string) {
	t.Helper()
	u, l := bothPorts(t)
	at := l.Addr().String()
	u.Close()
	l.Close()
	o.Listen = []string{at}
	s := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); ctx.Err() == nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	for range 100 {
		if c, err := net.Dial("tcp", at); err == nil {
			c.Close()
			return s, at
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server doesn't listen")
	return s, at
}

// ask sends a query and prints the answer: flags, then the records in order.
func ask(t *testing.T, at, network, host string, kind dnsmessage.Type) string {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(host), Type: kind, Class: dnsmessage.ClassINET}}}
	q, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial(network, at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	var b []byte
	if network == "tcp" {
		if err := writeTCP(c, q); err != nil {
			t.Fatal(err)
		}
		if b, err = readTCP(c); err != nil {
			t.Fatal(err)
		}
	} else {
		c.Write(q)
		b = make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		b = b[:n]
	}
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range m.Answers {
		switch x := r.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(x.A).String())
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(x.AAAA).String())
		case *dnsmessage.CNAMEResource:
			out = append(out, x.CNAME.String())
		}
	}
	if len(out) > 3 {
		slices.Sort(out)
		out = []string{fmt.Sprint(len(out) > 9, " many")}
	}
	flags := strings.TrimPrefix(m.RCode.String(), "RCode")
	if m.Authoritative {
		flags += " aa"
	}
	if m.Truncated {
		flags += " tc"
	}
	return flags + ": " + strings.Join(out, " ")
}

func TestQueriesAreAnswered(t *testing.T) {
	s, at := start(t, Options{Servers: []string{"127.0.0.1:1", upstreamServer(t)}, Search: "demo.svc.cluster.local"})
	if got := ask(t, at, "udp", "b.demo.svc.cluster.local.", dnsmessage.TypeA); got != "ServerFailure: " {
		t.Errorf("before the first table: %s", got)
	}
	s.Set(names(), "demo", "cluster.local")
	for _, c := range []struct {
		rule, host string
		kind       dnsmessage.Type
		want       string
	}{
		{"a service", "b.demo.svc.cluster.local.", dnsmessage.TypeA, "Success aa: 10.0.0.2"},
		{"of the other family", "b.demo.svc.cluster.local.", dnsmessage.TypeAAAA, "Success aa: fd00::2"},
		{"without that family", "api.example.com.", dnsmessage.TypeAAAA, "Success aa: "},
		{"in capitals", "API.Example.Com.", dnsmessage.TypeA, "Success aa: 240.240.0.1"},
		{"short, of the own namespace", "b.", dnsmessage.TypeA, "Success aa: 10.0.0.2"},
		{"short, of another", "c.other.", dnsmessage.TypeA, "Success aa: 10.0.0.3"},
		{"short, with svc", "c.other.svc.", dnsmessage.TypeA, "Success aa: 10.0.0.3"},
		{"a wildcard, two labels deep", "x.y.wild.example.com.", dnsmessage.TypeA, "Success aa: 240.240.0.2"},
		{"with the search domain behind it", "api.example.com.demo.svc.cluster.local.", dnsmessage.TypeA, "Success aa: api.example.com. 240.240.0.1"},
		{"nobody's, asked of the servers", "a.example.org.", dnsmessage.TypeA, "Success aa: 192.0.2.1"},
		{"not ours to short names of others", "c.", dnsmessage.TypeA, "ServerFailure: "},
	} {
		for _, network := range []string{"udp", "tcp"} {
			if got := ask(t, at, network, c.host, c.kind); got != c.want {
				t.Errorf("%s, %s: %s, want %s", c.rule, network, got, c.want)
			}
		}
	}
	if got := ask(t, at, "udp", "many.example.com.", dnsmessage.TypeA); got != "Success aa tc: true many" {
		t.Errorf("an answer longer than 512 bytes by UDP: %s", got)
	}
	if got := ask(t, at, "tcp", "many.example.com.", dnsmessage.TypeA); got != "Success aa: true many" {
		t.Errorf("by TCP: %s", got)
	}
}

func TestServersComeFromResolvConf(t *testing.T) {
	servers, search := ResolvConf("# c\nnameserver 10.96.0.10\nnameserver fd00::a\nnameserver 127.0.0.1\nnameserver nonsense\nsearch demo.svc.cluster.local. svc.cluster.local\noptions ndots:5\n", []string{"127.0.0.1:53"})
	if got := fmt.Sprint(servers, search); got != "[10.96.0.10:53 [fd00::a]:53]demo.svc.cluster.local" {
		t.Error(got)
	}
}

func FuzzAnswer(f *testing.F) {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("b."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, _ := m.Pack()
	f.Add(b)
	s := New(Options{})
	s.Set(names(), "demo", "cluster.local")
	f.Fuzz(func(t *testing.T, b []byte) {
		a := s.answer(t.Context(), b, "udp")
		if a != nil && (len(b) < 2 || a[0] != b[0] || a[1] != b[1]) {
			t.Error("an answer to another query")
		}
	})
}
