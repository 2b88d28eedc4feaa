package redirect

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// passthroughAddr is ::6/128. IPv4 owns all of 127/8, but IPv6 loopback is one
// address, so the proxy couldn't bind this one if it weren't on lo.
func passthroughAddr() *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("::6"), Mask: net.CIDRMask(128, 128)}, Flags: unix.IFA_F_NODAD}
}

func (r Rules) netlinkFamilies() []int {
	if r.IPv6 {
		return []int{netlink.FAMILY_V4, netlink.FAMILY_V6}
	}
	return []int{netlink.FAMILY_V4}
}

// findLoopback retries because a dump is cut short when links change meanwhile,
// which they do while a pod is set up.
func findLoopback() (netlink.Link, error) {
	var link netlink.Link
	var err error
	for range 5 {
		link, err = netlink.LinkByName("lo")
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("finding lo: %w", err)
	}
	return link, nil
}

// ApplyLinks adds the address and the policy routing that rules need. What is
// there already is left alone, so it may run again.
func ApplyLinks(r Rules) error {
	if !r.IPv6 && r.TP == nil {
		return nil
	}
	lo, err := findLoopback()
	if err != nil {
		return err
	}
	if r.IPv6 {
		if err := netlink.AddrAdd(lo, passthroughAddr()); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding ::6 to lo: %w", err)
		}
	}
	if r.TP == nil {
		return nil
	}
	for _, family := range r.netlinkFamilies() {
		if err := r.TP.apply(lo, family); err != nil {
			return err
		}
	}
	return nil
}

// CleanupLinks takes away what ApplyLinks added; what is gone is no error.
func CleanupLinks(r Rules) error {
	lo, err := findLoopback()
	if err != nil {
		return err
	}
	if err := netlink.AddrDel(lo, passthroughAddr()); err != nil && !gone(err) {
		return fmt.Errorf("removing ::6 from lo: %w", err)
	}
	if r.TP == nil {
		return nil
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if err := netlink.RuleDel(r.TP.rule(family)); err != nil && !gone(err) {
			return fmt.Errorf("removing the TPROXY rule: %w", err)
		}
		if err := netlink.RouteDel(r.TP.route(lo, family)); err != nil && !gone(err) {
			return fmt.Errorf("removing the TPROXY route: %w", err)
		}
	}
	return nil
}

// gone lists the kernel's ways to say there is nothing to delete; the last is
// a kernel without IPv6.
func gone(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOENT, unix.ESRCH, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT},
		func(e error) bool { return errors.Is(err, e) })
}

func (t Route) rule(family int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family, rule.Mark, rule.Table = family, t.Mark, int(t.Table)
	return rule
}

func (t Route) route(lo netlink.Link, family int) *netlink.Route {
	all := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if family == netlink.FAMILY_V6 {
		all = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{
		LinkIndex: lo.Attrs().Index, Family: family, Dst: all, Table: int(t.Table),
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	}
}

// apply looks for the rule first: the kernel would add a second one like it
// with another priority.
func (t Route) apply(lo netlink.Link, family int) error {
	rules, err := netlink.RuleList(family)
	if err != nil {
		return fmt.Errorf("listing routing rules: %w", err)
	}
	there := slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Mark == t.Mark && r.Table == int(t.Table) })
	if !there {
		if err := netlink.RuleAdd(t.rule(family)); err != nil {
			return fmt.Errorf("adding the rule for mark %d to table %d: %w", t.Mark, t.Table, err)
		}
	}
	if err := netlink.RouteAdd(t.route(lo, family)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding the local route to table %d: %w", t.Table, err)
	}
	return nil
}

// EnterNetns moves the calling goroutine, and its OS thread for good, into the
// network namespace at path. For a program that does one thing there and exits.
func EnterNetns(path string) error {
	runtime.LockOSThread()
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering network namespace %s: %w", path, err)
	}
	return nil
}
