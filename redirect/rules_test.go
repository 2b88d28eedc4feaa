package redirect

import (
	"slices"
	"strings"
	"testing"
)

func lines(c Config, f Family) []string {
	return strings.Split(strings.TrimSpace(RestoreText(Build(c), f)), "\n")
}

// The recorded cases don't have these options.
func TestRulesBeyondTheRecordedCases(t *testing.T) {
	for rule, tc := range map[string]struct {
		change    func(*Config)
		v4, v6    []string // lines wanted
		v4no      string   // no IPv4 line contains it
		nft       []string
		nftAbsent string
	}{
		"an included loopback range keeps loopback captured": {
			change: func(c *Config) { c.OutboundRanges.List = prefixes("127.1.2.3/32") },
			v4:     []string{"-A ISTIO_OUTPUT -d 127.1.2.3/32 -j ISTIO_REDIRECT"},
			v4no:   "! --uid-owner 1337 -j RETURN",
		},
		"ranges go to their family": {
			change: func(c *Config) {
				c.OutboundRanges.List, c.OutboundSkip = prefixes("fd00::/8", "10.0.0.0/8"), prefixes("fd01::/16")
				c.VirtInterfaces = []string{"vm0"}
			},
			v4: []string{"-A ISTIO_OUTPUT -d 10.0.0.0/8 -j ISTIO_REDIRECT", "-I PREROUTING 1 -i vm0 -d 10.0.0.0/8 -j ISTIO_REDIRECT"},
			v6: []string{"-A ISTIO_OUTPUT -d fd01::/16 -j RETURN", "-A ISTIO_OUTPUT -d fd00::/8 -j ISTIO_REDIRECT",
				"-I PREROUTING 1 -i vm0 -d fd00::/8 -j ISTIO_REDIRECT"},
			v4no: "fd0",
		},
		"all DNS needs no servers": {
			change: func(c *Config) { c.DNS, c.DNSAll = true, true },
			v4: []string{"-A ISTIO_OUTPUT_DNS -p tcp --dport 53 -j REDIRECT --to-ports 15053", "-A ISTIO_OUTPUT_DNS -p udp --dport 53 -j REDIRECT --to-port 15053",
				"-A ISTIO_OUTPUT_DNS -p udp --dport 53 -j CT --zone 2", "-A ISTIO_INBOUND -p udp --sport 53 -j CT --zone 1"},
			v6: []string{"-A ISTIO_OUTPUT -j ISTIO_OUTPUT_DNS", "-A ISTIO_OUTPUT_DNS -p tcp --dport 53 -j REDIRECT --to-ports 15053"},
		},
		"a family without servers has no jump to DNS": {
			change: func(c *Config) { c.DNS, c.DNSServers = true, []string{"fd00::9"} },
			v6:     []string{"-A ISTIO_OUTPUT -j ISTIO_OUTPUT_DNS", "-A ISTIO_INBOUND -p udp --sport 53 -s fd00::9/128 -j CT --zone 1"},
			v4no:   "-A ISTIO_OUTPUT -j ISTIO_OUTPUT_DNS",
		},
		"outbound ports to skip, both protocols": {
			change: func(c *Config) { c.OutboundSkipPorts = []uint16{3306} },
			v4:     []string{"-A ISTIO_OUTPUT -p tcp --dport 3306 -j RETURN", "-A ISTIO_OUTPUT -p udp --dport 3306 -j RETURN"},
			nft:    []string{"istio-output tcp dport 3306 counter return", "istio-output udp dport 3306 counter return"},
		},
		"TPROXY leaves skipped interfaces to mangle too": {
			change: func(c *Config) { c.Mode, c.InboundPorts.All, c.SkipInterfaces = TProxy, true, []string{"net+"} },
			v4:     []string{"-A PREROUTING -i net+ -j RETURN", "-A OUTPUT -o net+ -j RETURN"},
			nft:    []string{`istio-proxy-mangle prerouting iifname "net*" counter return`},
		},
		"TPROXY for IPv6": {
			change: func(c *Config) { c.Mode, c.InboundPorts.All = TProxy, true },
			v6: []string{"-A ISTIO_TPROXY ! -d ::1/128 -p tcp -j TPROXY --tproxy-mark 1337/0xffffffff --on-port 15006",
				"-I ISTIO_INBOUND 2 -p tcp -s ::6/128 -i lo -j RETURN"},
			nft: []string{"istio-tproxy meta l4proto tcp ip6 daddr != ::1/128 tproxy ip6 to :15006 meta mark set 1337 counter accept"},
		},
		"TPROXY without inbound capture marks nothing": {
			change: func(c *Config) { c.Mode = TProxy },
			v4:     []string{"-A OUTPUT -j ISTIO_OUTPUT"},
			v4no:   "mangle",
		},
		"inbound ports to skip count only with all": {
			change: func(c *Config) { c.InboundPorts.List, c.InboundSkip = []uint16{80}, []uint16{15021} },
			v4:     []string{"-A ISTIO_INBOUND -p tcp --dport 80 -j ISTIO_IN_REDIRECT"},
			v4no:   "15021",
		},
	} {
		t.Run(rule, func(t *testing.T) {
			c := Defaults()
			c.IPv6 = true
			tc.change(&c)
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			wantLines(t, lines(c, IPv4), tc.v4)
			wantLines(t, lines(c, IPv6), tc.v6)
			if all := RestoreText(Build(c), IPv4); tc.v4no != "" && strings.Contains(all, tc.v4no) {
				t.Errorf("%q is not wanted in:\n%s", tc.v4no, all)
			}
			for _, want := range tc.nft {
				if all := NFTText(Build(c)); !strings.Contains(all, want) {
					t.Errorf("%q is missing in:\n%s", want, all)
				}
			}
		})
	}
}

func wantLines(t *testing.T, got, want []string) {
	t.Helper()
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%q is missing in:\n%s", line, strings.Join(got, "\n"))
		}
	}
}

func TestNoIPv6RulesUnlessEnabled(t *testing.T) {
	if text := RestoreText(Build(Defaults()), IPv6); text != "" {
		t.Errorf("got:\n%s", text)
	}
	if text := NFTText(Build(Defaults())); strings.Contains(text, "ip6") {
		t.Errorf("got:\n%s", text)
	}
}

// The order of these decides what is captured.
func TestOutputChainOrder(t *testing.T) {
	c := everything(Redirect)
	var got []string
	for _, l := range lines(c, IPv4) {
		if rest, ok := strings.CutPrefix(l, "-A ISTIO_OUTPUT "); ok {
			got = append(got, rest)
		}
	}
	at := func(part string) int {
		i := slices.IndexFunc(got, func(l string) bool { return strings.Contains(l, part) })
		if i < 0 {
			t.Fatalf("%q is missing in %q", part, got)
		}
		return i
	}
	order := []string{"--dport 3306", "-s 127.0.0.6/32", "-j ISTIO_IN_REDIRECT", "-m owner --gid-owner 1337 -j RETURN",
		"! --gid-owner 202", "-j ISTIO_OUTPUT_DNS", "-d 127.0.0.1/32 -j RETURN", "-d 10.9.0.0/16", "--dport 9999", "-j ISTIO_REDIRECT"}
	for i := 1; i < len(order); i++ {
		if order[i] != "-j ISTIO_REDIRECT" && at(order[i-1]) >= at(order[i]) {
			t.Errorf("%q must stand before %q", order[i-1], order[i])
		}
	}
	if got[len(got)-1] != "-j ISTIO_REDIRECT" {
		t.Errorf("last is %q, want the capture of the rest", got[len(got)-1])
	}
}
