// Package redirect is all the sidecar asks of the kernel: the rules that bring
// a pod's traffic to the proxy, and the socket options that tell the proxy
// where that traffic was going.
//
// A Config is turned into Rules by a pure function, a Backend (iptables or
// nftables) renders and applies them, and OriginalDst reads back what a
// redirected connection was dialed to.
//
// It isn't a general firewall library: it knows the chains of one sidecar, and
// touches nothing else. cmd/init applies the rules; the listener calls
// OriginalDst and the socket options; nobody else imports it.
package redirect

import (
	"fmt"
	"net/netip"
	"strings"
)

// Mode says how inbound connections reach the proxy.
type Mode string

const (
	// Redirect rewrites the destination (NAT) and loses the peer's view of it.
	Redirect Mode = "REDIRECT"
	// TProxy hands the packet to a transparent socket, addresses untouched.
	TProxy Mode = "TPROXY"
)

// Ports selects ports: all of them, or a list.
type Ports struct {
	All  bool
	List []uint16
}

// None reports whether nothing is selected.
func (p Ports) None() bool { return !p.All && len(p.List) == 0 }

// Ranges selects destination addresses: all of them, or a list of prefixes of
// either family.
type Ranges struct {
	All  bool
	List []netip.Prefix
}

func (r Ranges) loopback() bool {
	for _, p := range r.List {
		if p.Addr().IsLoopback() {
			return true
		}
	}
	return false
}

// Config is what the pod's owner asked to have captured. The zero value is not
// useful: start from Defaults. It is plain data; callers may copy it freely.
type Config struct {
	ProxyPort   uint16 // takes outbound connections
	InboundPort uint16 // takes inbound connections
	TunnelPort  uint16 // HBONE; never captured

	ProxyUID []string // user ids (or names) whose traffic is the proxy's own
	ProxyGID []string // the same for groups

	Mode         Mode
	TProxyMark   uint32
	TProxyTable  uint32 // routing table that delivers marked packets to lo
	InboundPorts Ports  // nothing selected: no inbound capture
	InboundSkip  []uint16

	OutboundPorts     []uint16 // captured whatever their address
	OutboundSkipPorts []uint16
	OutboundRanges    Ranges
	OutboundSkip      []netip.Prefix
	OwnerGroups       []string // nil: every group's traffic is captured
	OwnerGroupsSkip   []string // only with OwnerGroups nil

	SkipInterfaces []string
	VirtInterfaces []string // traffic from these is a guest's outbound traffic

	DNS        bool // capture DNS to port 15053
	DNSAll     bool // whatever server it is sent to
	DNSServers []string

	DropInvalid  bool
	IPv6         bool
	LoopbackIPv4 netip.Prefix
}

// Defaults is the configuration istio-init has with no flag and no variable set.
func Defaults() Config {
	return Config{
		ProxyPort: 15001, InboundPort: 15006, TunnelPort: 15008,
		ProxyUID: []string{"1337"}, ProxyGID: []string{"1337"},
		Mode: Redirect, TProxyMark: 1337, TProxyTable: 133,
		LoopbackIPv4: netip.MustParsePrefix("127.0.0.1/32"),
	}
}

// maxOwnerGroups is the kernel's xt match limit less what a rule needs anyway.
const maxOwnerGroups = 64

// Validate reports the first field that can't be turned into rules. Everything
// that ends up as text in a rule is checked here, so rendering needs no escapes.
func (c Config) Validate() error {
	switch {
	case c.Mode != Redirect && c.Mode != TProxy:
		return fmt.Errorf("istio-inbound-interception-mode: %q is neither REDIRECT nor TPROXY", c.Mode)
	case c.ProxyPort == 0:
		return fmt.Errorf("envoy-port: must not be 0")
	case c.InboundPort == 0:
		return fmt.Errorf("inbound-capture-port: must not be 0")
	case c.ProxyPort == c.InboundPort:
		return fmt.Errorf("inbound-capture-port: %d is already envoy-port", c.InboundPort)
	case len(c.ProxyUID) == 0:
		return fmt.Errorf("proxy-uid: empty, so the proxy's own traffic would loop")
	case c.Mode == TProxy && c.TProxyMark == 0:
		return fmt.Errorf("istio-inbound-tproxy-mark: 0 matches unmarked packets")
	case c.Mode == TProxy && c.TProxyTable == 0:
		return fmt.Errorf("istio-inbound-tproxy-route-table: 0 is not a table")
	case len(c.OwnerGroups) > maxOwnerGroups:
		return fmt.Errorf("ISTIO_OUTBOUND_OWNER_GROUPS: %d groups, the limit is %d", len(c.OwnerGroups), maxOwnerGroups)
	case len(c.OwnerGroupsSkip) > maxOwnerGroups:
		return fmt.Errorf("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE: %d groups, the limit is %d", len(c.OwnerGroupsSkip), maxOwnerGroups)
	case c.OwnerGroups != nil && len(c.OwnerGroupsSkip) > 0:
		return fmt.Errorf("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE: only allowed when ISTIO_OUTBOUND_OWNER_GROUPS is *")
	}
	if err := c.validateLoopback(); err != nil {
		return err
	}
	return c.validateWords()
}

func (c Config) validateLoopback() error {
	p := c.LoopbackIPv4
	if !p.IsValid() || !p.Addr().Is4() || !p.Addr().IsLoopback() || p.Bits() < 8 {
		return fmt.Errorf("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: %s is not an IPv4 loopback prefix of 8 to 32 bits", p)
	}
	return nil
}

func (c Config) validateWords() error {
	for _, f := range []struct {
		name  string
		words []string
		check func(string) string
	}{
		{"proxy-uid", c.ProxyUID, ownerFault},
		{"proxy-gid", c.ProxyGID, ownerFault},
		{"ISTIO_OUTBOUND_OWNER_GROUPS", c.OwnerGroups, ownerFault},
		{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", c.OwnerGroupsSkip, ownerFault},
		{"istio-exclude-interfaces", c.SkipInterfaces, interfaceFault},
		{"kube-virt-interfaces", c.VirtInterfaces, interfaceFault},
		{"resolv.conf nameserver", c.DNSServers, serverFault},
	} {
		for _, w := range f.words {
			if fault := f.check(w); fault != "" {
				return fmt.Errorf("%s: %q %s", f.name, w, fault)
			}
		}
	}
	return nil
}

func ownerFault(s string) string {
	if s == "" || s[0] == '-' {
		return "is not a user or group"
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.", r)) {
			return "is not a user or group: only letters, digits and _-. are allowed"
		}
	}
	return ""
}

// interfaceFault allows what the kernel allows in a device name (IFNAMSIZ less
// the terminator) and iptables' trailing + wildcard, but nothing that a rule
// file would read as something else.
func interfaceFault(s string) string {
	if s == "" || len(s) > 15 {
		return "is not an interface name: 1 to 15 characters are allowed"
	}
	if s[0] == '-' || s[0] == '!' || s[0] == '@' {
		return "is not an interface name: bad first character"
	}
	for _, r := range s {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune("/:\"'\\{};#*?", r) {
			return "is not an interface name: bad character"
		}
	}
	return ""
}

func serverFault(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return "is not an IP address without a zone"
	}
	return ""
}

// HasIPv6 decides whether IPv6 rules are needed from the pod's own addresses in
// interface order: the first one that is neither loopback nor link-local
// decides, unless the pod is dual-stack, where any will do.
func HasIPv6(addrs []netip.Addr, dualStack bool) bool {
	for _, a := range addrs {
		a = a.Unmap()
		if !a.IsValid() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() {
			continue
		}
		if a.Is6() {
			return true
		}
		if !dualStack {
			return false
		}
	}
	return false
}
