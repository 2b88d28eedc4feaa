package redirect

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestValidateNamesTheFlagAndTheReason(t *testing.T) {
	for rule, tc := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"unknown mode":            {func(c *Config) { c.Mode = "NONE" }, []string{"istio-inbound-interception-mode", `"NONE"`}},
		"no outbound port":        {func(c *Config) { c.ProxyPort = 0 }, []string{"envoy-port", "0"}},
		"no inbound port":         {func(c *Config) { c.InboundPort = 0 }, []string{"inbound-capture-port", "0"}},
		"one port twice":          {func(c *Config) { c.InboundPort = c.ProxyPort }, []string{"inbound-capture-port", "15001"}},
		"no user":                 {func(c *Config) { c.ProxyUID = nil }, []string{"proxy-uid", "loop"}},
		"user with a space":       {func(c *Config) { c.ProxyUID = []string{"1 -j ACCEPT"} }, []string{"proxy-uid", "1 -j ACCEPT"}},
		"group that is an option": {func(c *Config) { c.ProxyGID = []string{"-j"} }, []string{"proxy-gid", `"-j"`}},
		"interface with newline":  {func(c *Config) { c.SkipInterfaces = []string{"a\nCOMMIT"} }, []string{"istio-exclude-interfaces", "bad character"}},
		"interface too long":      {func(c *Config) { c.VirtInterfaces = []string{strings.Repeat("x", 16)} }, []string{"kube-virt-interfaces", "15"}},
		"mark 0 with TPROXY":      {func(c *Config) { c.Mode, c.TProxyMark = TProxy, 0 }, []string{"istio-inbound-tproxy-mark", "0"}},
		"table 0 with TPROXY":     {func(c *Config) { c.Mode, c.TProxyTable = TProxy, 0 }, []string{"istio-inbound-tproxy-route-table", "0"}},
		"65 groups":               {func(c *Config) { c.OwnerGroups = slices.Repeat([]string{"1"}, 65) }, []string{"ISTIO_OUTBOUND_OWNER_GROUPS", "65", "64"}},
		"65 groups to skip":       {func(c *Config) { c.OwnerGroupsSkip = slices.Repeat([]string{"1"}, 65) }, []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "65"}},
		"groups both ways": {func(c *Config) { c.OwnerGroups, c.OwnerGroupsSkip = []string{"1"}, []string{"2"} },
			[]string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "*"}},
		"loopback range that isn't": {func(c *Config) { c.LoopbackIPv4 = netip.MustParsePrefix("10.0.0.0/8") }, []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "10.0.0.0/8"}},
		"loopback range too wide":   {func(c *Config) { c.LoopbackIPv4 = netip.MustParsePrefix("127.0.0.0/7") }, []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "/7"}},
		"server with a zone":        {func(c *Config) { c.DNSServers = []string{"fe80::1%eth0"} }, []string{"nameserver", "zone"}},
	} {
		t.Run(rule, func(t *testing.T) {
			c := Defaults()
			tc.change(&c)
			err := c.Validate()
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range tc.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q doesn't say %q", err, word)
				}
			}
		})
	}
	if err := Defaults().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

func TestIPv6IsDecidedByThePodsFirstAddress(t *testing.T) {
	for rule, tc := range map[string]struct {
		addrs []string
		dual  bool
		want  bool
	}{
		"none":                           {nil, true, false},
		"loopback doesn't count":         {[]string{"::1", "10.0.0.1"}, false, false},
		"link-local doesn't count":       {[]string{"fe80::1", "ff02::1", "10.0.0.1"}, false, false},
		"IPv6 first":                     {[]string{"127.0.0.1", "fd00::1", "10.0.0.1"}, false, true},
		"IPv4 first":                     {[]string{"10.0.0.1", "fd00::1"}, false, false},
		"IPv4 first in a dual-stack pod": {[]string{"10.0.0.1", "fd00::1"}, true, true},
		"mapped IPv4 is IPv4":            {[]string{"::ffff:10.0.0.1"}, true, false},
	} {
		t.Run(rule, func(t *testing.T) {
			var addrs []netip.Addr
			for _, a := range tc.addrs {
				addrs = append(addrs, netip.MustParseAddr(a))
			}
			if got := HasIPv6(addrs, tc.dual); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestNameservers(t *testing.T) {
	conf := "# nameserver 1.1.1.1\nsearch a.b\nnameserver 10.96.0.10\nnameserver\t fd00::a extra\nnameserver fe80::1%eth0\nnameserver\nnameserver x\nnameserver ::ffff:1.2.3.4\nnameserver 10.0.0.2"
	want := []string{"10.96.0.10", "fd00::a", "fe80::1", "10.0.0.2"}
	if got := Nameservers(conf); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWaitIsForLegacyFrom162(t *testing.T) {
	for version, want := range map[string]bool{
		"iptables v1.8.9 (legacy)\n": true, "iptables v1.8.9 (nf_tables)": false, "iptables v1.6.2": true, "iptables v1.6.1": false,
		"iptables v1.6": false, "iptables v2.0.0": true, "iptables v1.4.21": false, "": false, "x vy": false,
	} {
		if got := needsWait(version); got != want {
			t.Errorf("%q: got %v, want %v", version, got, want)
		}
	}
}
