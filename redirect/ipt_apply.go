package redirect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// IPTables is the Backend that runs iptables-restore, one transaction a family.
type IPTables struct {
	run    Runner
	forced string
	log    *slog.Logger
}

// NewIPTables makes the backend. flavour is "legacy", "nft", or empty to choose
// the one in use.
func NewIPTables(run Runner, flavour string, log *slog.Logger) (*IPTables, error) {
	if flavour != "" && flavour != "legacy" && flavour != "nft" {
		return nil, fmt.Errorf("force-iptables-binary: %q is neither legacy nor nft", flavour)
	}
	return &IPTables{run: run, forced: flavour, log: log}, nil
}

func families(r Rules) []Family {
	if r.IPv6 {
		return []Family{IPv4, IPv6}
	}
	return []Family{IPv4}
}

// Plan lists the commands of a first run: a look at both families, one restore
// a family, and the final state.
func (b *IPTables) Plan(r Rules) []Command {
	plan := []Command{{Name: "iptables-save"}, {Name: "ip6tables-save"}}
	for _, f := range families(r) {
		plan = append(plan, Command{Name: baseName(f) + "-restore", Args: []string{"--noflush"}, Stdin: RestoreText(r, f)})
	}
	for _, f := range families(r) {
		plan = append(plan, Command{Name: baseName(f) + "-save"})
	}
	return plan
}

// Apply implements Backend. A family that already is as wanted is left alone
// even when the other isn't: a run killed between the two is thus repaired by
// running again.
func (b *IPTables) Apply(ctx context.Context, r Rules, c Choice) error {
	for _, f := range families(r) {
		t, err := findTool(ctx, b.run, f, b.forced)
		if err != nil {
			return err
		}
		if err := b.applyFamily(ctx, t, r.For(f), c); err != nil {
			return fmt.Errorf("applying rules with %s: %w", t.name, err)
		}
	}
	return nil
}

func (b *IPTables) applyFamily(ctx context.Context, t *tool, want []Rule, c Choice) error {
	s, difference, err := t.compare(ctx, want)
	if err != nil {
		return err
	}
	if difference == "" && !c.Force {
		b.log.Info("rules are in place", "tool", t.name)
		return nil
	}
	switch {
	case c.Force || c.Reconcile && s.residue():
		b.log.Info("replacing rules", "tool", t.name, "difference", difference)
		err = t.replace(ctx, s, want, c.Reconcile)
	default:
		if s.residue() {
			b.log.Warn("adding to existing rules", "tool", t.name, "difference", difference)
		}
		lines := script{}
		lines.create(want)
		err = t.restore(ctx, lines)
	}
	if err != nil {
		return err
	}
	if _, difference, err = t.compare(ctx, want); err != nil {
		return err
	}
	if difference != "" {
		return fmt.Errorf("reading the rules back: %s", difference)
	}
	return nil
}

func (t *tool) compare(ctx context.Context, want []Rule) (saved, string, error) {
	text, err := t.save(ctx)
	if err != nil {
		return nil, "", err
	}
	s := parseSave(text)
	difference, err := delta(s, want, t.has)
	return s, difference, err
}

// replace removes and creates in one transaction. Its tables are still
// committed one after the other, so a guard may stand around it.
func (t *tool) replace(ctx context.Context, s saved, want []Rule, guarded bool) (err error) {
	lines, err := remove(s, want, t.has)
	if err != nil {
		return err
	}
	lines.create(want)
	if guarded {
		if err := t.restore(ctx, guard("-I")); err != nil {
			return fmt.Errorf("setting guard rules: %w", err)
		}
		defer func() {
			if e := t.restore(ctx, guard("-D")); e != nil {
				err = errors.Join(err, fmt.Errorf("removing guard rules: %w", e))
			}
		}()
	}
	return t.restore(ctx, lines)
}

// maxCopies bounds the rounds of a clean-up: one round takes one copy of a rule.
const maxCopies = 16

// Cleanup implements Backend, for both families whatever the rules: an earlier
// run may have had IPv6.
func (b *IPTables) Cleanup(ctx context.Context, r Rules) error {
	optional := !r.IPv6 // a machine without IPv6 has no working ip6tables
	r.IPv6 = true
	var faults []error
	for _, f := range []Family{IPv4, IPv6} {
		t, err := findTool(ctx, b.run, f, b.forced)
		if f == IPv6 && err != nil && optional {
			b.log.Info("no IPv6 rules to remove", "reason", err)
			continue
		}
		if err == nil {
			err = t.clean(ctx, r.For(f))
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("removing %s rules: %w", baseName(f), err))
		}
	}
	return errors.Join(faults...)
}

func (t *tool) clean(ctx context.Context, want []Rule) error {
	for range maxCopies {
		text, err := t.save(ctx)
		if err != nil {
			return err
		}
		lines, err := remove(parseSave(text), want, t.has)
		if err != nil || len(lines) == 0 {
			return err
		}
		if err := t.restore(ctx, lines); err != nil {
			return err
		}
	}
	return fmt.Errorf("rules are left after %d rounds", maxCopies)
}

// State implements Backend. Errors become part of the text: it is for people.
func (b *IPTables) State(ctx context.Context, r Rules) string {
	all := ""
	for _, f := range families(r) {
		t, err := findTool(ctx, b.run, f, b.forced)
		if err != nil {
			all += err.Error() + "\n"
			continue
		}
		text, err := t.save(ctx)
		if err != nil {
			text += err.Error() + "\n"
		}
		all += text
	}
	return all
}
