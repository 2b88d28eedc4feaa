package redirect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/coreos/go-iptables/iptables"
)

// tool is one family's iptables as chosen: the flavour whose rules the kernel
// obeys. Both flavours may be installed, and both act at once if both are used.
type tool struct {
	run    Runner
	name   string   // such as iptables-nft
	wait   []string // lock arguments of the restore program
	single *iptables.IPTables
}

func baseName(f Family) string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// usedLines is how long the output of a save is when it holds anything.
const usedLines = 3

// findTool chooses the flavour: legacy where it already has rules (somebody
// else on this kernel uses it), else nft, else whatever iptables is.
func findTool(ctx context.Context, run Runner, f Family, forced string) (*tool, error) {
	base := baseName(f)
	if forced != "" {
		return openTool(ctx, run, f, base+"-"+forced)
	}
	legacy := base + "-legacy"
	text, err := run(ctx, Command{Name: legacy + "-save"})
	if err == nil && strings.Count(text, "\n") >= usedLines {
		if t, err := openTool(ctx, run, f, legacy); err == nil {
			return t, nil
		}
	}
	t, nftErr := openTool(ctx, run, f, base+"-nft")
	if nftErr == nil {
		return t, nil
	}
	t, err = openTool(ctx, run, f, base)
	if err != nil {
		return nil, fmt.Errorf("finding a working %s: %w", base, errors.Join(nftErr, err))
	}
	return t, nil
}

// openTool proves that a flavour works by adding and deleting a rule for a
// protocol number nobody uses.
func openTool(ctx context.Context, run Runner, f Family, name string) (*tool, error) {
	t := &tool{run: run, name: name}
	if _, err := t.save(ctx); err != nil {
		return nil, err
	}
	for _, op := range []string{"-A", "-D"} {
		probe := []string{"-t", tableNat, op, "INPUT", "-p", "255", "-j", "RETURN"}
		if _, err := run(ctx, Command{Name: name, Args: probe}); err != nil {
			return nil, fmt.Errorf("probing %s: %w", name, err)
		}
	}
	version, err := run(ctx, Command{Name: name, Args: []string{"--version"}})
	if err == nil && needsWait(version) {
		t.wait = []string{"--wait=30"}
	}
	protocol := iptables.ProtocolIPv4
	if f == IPv6 {
		protocol = iptables.ProtocolIPv6
	}
	t.single, err = iptables.New(iptables.IPFamily(protocol), iptables.Path(name), iptables.Timeout(30))
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return t, nil
}

// needsWait reads "iptables v1.8.9 (legacy)". Only the legacy flavour locks,
// and its restore program learned to wait in 1.6.2.
func needsWait(version string) bool {
	if strings.Contains(version, "nf_tables") {
		return false
	}
	_, text, ok := strings.Cut(version, " v")
	if !ok {
		return false
	}
	number, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	want := []int{1, 6, 2}
	for i, part := range strings.SplitN(number, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil || n < want[i] {
			return false
		}
		if n > want[i] {
			return true
		}
	}
	return strings.Count(number, ".") >= 2
}

func (t *tool) save(ctx context.Context) (string, error) {
	return t.run(ctx, Command{Name: t.name + "-save"})
}

func (t *tool) restore(ctx context.Context, s script) error {
	if len(s) == 0 {
		return nil
	}
	args := append([]string{"--noflush"}, t.wait...)
	_, err := t.run(ctx, Command{Name: t.name + "-restore", Args: args, Stdin: s.String()})
	return err
}

func (t *tool) has(r Rule) (bool, error) {
	ok, err := t.single.Exists(r.Table, r.Chain, r.spec()...)
	if err != nil {
		return false, fmt.Errorf("checking a rule of %s %s: %w", r.Table, r.Chain, err)
	}
	return ok, nil
}
