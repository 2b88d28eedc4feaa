package command

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/redirect"
)

// flags are the values of the command line and environment as given. Lists stay
// text until config checks them, so that an error can name the flag.
type flags struct {
	envoyPort, inboundPort, tunnelPort string
	uid, gid                           string
	mode                               string
	inboundPorts, inboundSkip          string
	skipInterfaces, virtInterfaces     string
	ranges, skipRanges                 string
	outboundPorts, outboundSkip        string
	mark, table                        string
	probePort                          uint16
	probeTimeout                       time.Duration
	netns, binary                      string

	dryRun, skipApply, validate     bool
	dns, dnsAll, dropInvalid        bool
	dualStack, cni                  bool
	reconcile, cleanup, force, nft  bool
	logJSON                         bool
	loopback, groups, groupsExclude string
}

func (f *flags) bind(s *pflag.FlagSet) {
	s.StringVarP(&f.envoyPort, "envoy-port", "p", "15001", "port that takes outbound connections")
	s.StringVarP(&f.inboundPort, "inbound-capture-port", "z", "15006", "port that takes inbound connections")
	s.StringVarP(&f.tunnelPort, "inbound-tunnel-port", "e", "15008", "HBONE port, never captured")
	s.StringVarP(&f.uid, "proxy-uid", "u", "", "users whose traffic is the proxy's own, comma-separated")
	s.StringVarP(&f.gid, "proxy-gid", "g", "", "groups whose traffic is the proxy's own (default: as proxy-uid)")
	s.StringVarP(&f.mode, "istio-inbound-interception-mode", "m", "", "REDIRECT or TPROXY")
	s.StringVarP(&f.inboundPorts, "istio-inbound-ports", "b", "", "inbound ports to capture, * for all")
	s.StringVarP(&f.inboundSkip, "istio-local-exclude-ports", "d", "", "inbound ports not captured, with -b *")
	s.StringVarP(&f.skipInterfaces, "istio-exclude-interfaces", "c", "", "interfaces left alone")
	s.StringVarP(&f.ranges, "istio-service-cidr", "i", "", "destinations to capture, * for all")
	s.StringVarP(&f.skipRanges, "istio-service-exclude-cidr", "x", "", "destinations not captured")
	s.StringVarP(&f.outboundPorts, "istio-outbound-ports", "q", "", "outbound ports captured whatever the destination")
	s.StringVarP(&f.outboundSkip, "istio-local-outbound-ports-exclude", "o", "", "outbound ports not captured")
	s.StringVarP(&f.virtInterfaces, "kube-virt-interfaces", "k", "", "interfaces of guests, whose traffic is outbound")
	s.StringVarP(&f.mark, "istio-inbound-tproxy-mark", "t", "1337", "packet mark of TPROXY")
	s.StringVarP(&f.table, "istio-inbound-tproxy-route-table", "r", "133", "routing table of TPROXY")
	s.Uint16Var(&f.probePort, "iptables-probe-port", 15002, "port the validation dials")
	s.DurationVar(&f.probeTimeout, "probe-timeout", 5*time.Second, "how long the validation tries")
	s.StringVar(&f.netns, "network-namespace", "", "path of the network namespace to work in")
	s.StringVar(&f.binary, "force-iptables-binary", "", "legacy or nft")
	f.bindSwitches(s)
}

func (f *flags) bindSwitches(s *pflag.FlagSet) {
	s.BoolVarP(&f.dryRun, "dry-run", "n", false, "print the rules and change nothing")
	s.BoolVar(&f.skipApply, "skip-rule-apply", false, "don't apply rules")
	s.BoolVar(&f.validate, "run-validation", false, "check that connections are redirected")
	s.BoolVar(&f.dns, "redirect-dns", false, "capture DNS")
	s.BoolVar(&f.dnsAll, "capture-all-dns", false, "capture DNS to any server")
	s.BoolVar(&f.dropInvalid, "drop-invalid", false, "drop packets conntrack calls invalid")
	s.BoolVar(&f.dualStack, "dual-stack", false, "any IPv6 address of the pod enables IPv6 rules")
	s.BoolVar(&f.cni, "cni-mode", false, "not supported: only for a CNI plugin")
	s.BoolVar(&f.reconcile, "reconcile", false, "repair rules that differ")
	s.BoolVar(&f.cleanup, "cleanup-only", false, "remove the rules")
	s.BoolVar(&f.force, "force-apply", false, "apply even if the rules are in place")
	s.BoolVar(&f.nft, "native-nftables", false, "use nft instead of iptables")
	s.BoolVar(&f.logJSON, "log_as_json", false, "log JSON objects")
}

// aliases are further variables a flag is read from, after its own.
func aliases(flag string) []string {
	own := strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	switch flag {
	case "envoy-port": // deliberately without one: ENVOY_PORT means other things
		return nil
	case "redirect-dns":
		return []string{own, "ISTIO_META_DNS_CAPTURE"}
	case "drop-invalid":
		return []string{own, "INVALID_DROP"}
	case "dual-stack":
		return []string{own, "ISTIO_DUAL_STACK"}
	}
	return []string{own}
}

// fromEnv fills every flag the command line didn't set.
func (f *flags) fromEnv(s *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var fault error
	s.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || flag.Name == "help" || fault != nil {
			return
		}
		for _, name := range aliases(flag.Name) {
			value, ok := lookup(name)
			if !ok || value == "" && flag.Value.Type() != "string" {
				continue
			}
			if err := flag.Value.Set(value); err != nil {
				fault = fmt.Errorf("%s (for --%s): %q: %w", name, flag.Name, value, err)
			}
			return
		}
	})
	f.loopback = env(lookup, "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", env(lookup, "ISTIO_HOST_IPV4_LOOPBACK_CIDR", "127.0.0.1/32"))
	f.groups = env(lookup, "ISTIO_OUTBOUND_OWNER_GROUPS", "*")
	f.groupsExclude = env(lookup, "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "")
	return fault
}

func env(lookup func(string) (string, bool), name, otherwise string) string {
	if v, ok := lookup(name); ok {
		return v
	}
	return otherwise
}

// config parses the lists. Errors name the flag or variable and the bad item.
func (f *flags) config() (redirect.Config, error) {
	p := parser{}
	c := redirect.Defaults()
	c.ProxyPort = p.port("envoy-port", f.envoyPort)
	c.InboundPort = p.port("inbound-capture-port", f.inboundPort)
	c.TunnelPort = p.port("inbound-tunnel-port", f.tunnelPort)
	c.ProxyUID, c.ProxyGID = split(f.uid), split(f.gid)
	if f.mode != "" {
		c.Mode = redirect.Mode(f.mode)
	}
	c.InboundPorts = p.allOrPorts("istio-inbound-ports", f.inboundPorts)
	c.InboundSkip = p.ports("istio-local-exclude-ports", f.inboundSkip)
	c.SkipInterfaces, c.VirtInterfaces = split(f.skipInterfaces), split(f.virtInterfaces)
	if f.ranges == "*" {
		c.OutboundRanges.All = true
	} else {
		c.OutboundRanges.List = p.prefixes("istio-service-cidr", f.ranges)
	}
	c.OutboundSkip = p.prefixes("istio-service-exclude-cidr", f.skipRanges)
	c.OutboundPorts = p.ports("istio-outbound-ports", f.outboundPorts)
	c.OutboundSkipPorts = p.ports("istio-local-outbound-ports-exclude", f.outboundSkip)
	c.TProxyMark = p.number("istio-inbound-tproxy-mark", f.mark)
	c.TProxyTable = p.number("istio-inbound-tproxy-route-table", f.table)
	c.DNS, c.DNSAll, c.DropInvalid = f.dns, f.dnsAll, f.dropInvalid
	if f.groups != "*" {
		c.OwnerGroups = split(f.groups)
	}
	c.OwnerGroupsSkip = split(f.groupsExclude)
	if one := p.prefixes("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", f.loopback); len(one) == 1 {
		c.LoopbackIPv4 = one[0]
	} else if p.err == nil {
		p.fail("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", f.loopback, "want one prefix")
	}
	return c, p.err
}

// parser keeps the first error.
type parser struct{ err error }

func (p *parser) fail(name, item, reason string) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %q: %s", name, item, reason)
	}
}

func (p *parser) port(name, item string) uint16 {
	n, err := strconv.ParseUint(item, 10, 16)
	if err != nil || n == 0 {
		p.fail(name, item, "want a port, 1 to 65535")
	}
	return uint16(n)
}

func (p *parser) ports(name, list string) []uint16 {
	var ports []uint16
	for _, item := range split(list) {
		ports = append(ports, p.port(name, item))
	}
	return ports
}

func (p *parser) allOrPorts(name, list string) redirect.Ports {
	if list == "*" {
		return redirect.Ports{All: true}
	}
	return redirect.Ports{List: p.ports(name, list)}
}

func (p *parser) prefixes(name, list string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, item := range split(list) {
		prefix, err := netip.ParsePrefix(item)
		if a, addrErr := netip.ParseAddr(item); addrErr == nil && a.Zone() == "" {
			prefix, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || prefix.Addr().Is4In6() {
			p.fail(name, item, "want an address range such as 10.0.0.0/8")
			continue
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes
}

func (p *parser) number(name, item string) uint32 {
	n, err := strconv.ParseUint(item, 0, 32)
	if err != nil {
		p.fail(name, item, "want a number of 32 bits")
	}
	return uint32(n)
}

// split cuts a comma list and drops what is empty, as "" and "1,,2" are common.
func split(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
