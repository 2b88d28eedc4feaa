package redirect

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// NFTables is the Backend that runs nft, one transaction for both families.
type NFTables struct {
	run Runner
	log *slog.Logger
}

// NewNFTables makes the backend.
func NewNFTables(run Runner, log *slog.Logger) *NFTables { return &NFTables{run: run, log: log} }

func nftCommand(text string) Command {
	return Command{Name: "nft", Args: []string{"-f", "-"}, Stdin: text}
}

// Plan implements Backend.
func (b *NFTables) Plan(r Rules) []Command { return []Command{nftCommand(NFTText(r))} }

// Apply implements Backend. It always replaces: the transaction flushes first,
// so there is no difference to look for and Choice doesn't matter.
func (b *NFTables) Apply(ctx context.Context, r Rules, _ Choice) error {
	// Chains of an earlier, different set of rules outlive a flush.
	text := nftRemoval() + NFTText(r)
	if _, err := b.run(ctx, nftCommand(text)); err != nil {
		return fmt.Errorf("applying rules with nft: %w", err)
	}
	b.log.Info("rules are in place", "tool", "nft")
	for _, table := range nftTables() {
		if err := b.verify(ctx, table, nftRules(r, table)); err != nil {
			return fmt.Errorf("reading the rules back: %w", err)
		}
	}
	return nil
}

func (b *NFTables) verify(ctx context.Context, table string, want []Rule) error {
	if len(want) == 0 {
		return nil
	}
	text, err := b.run(ctx, Command{Name: "nft", Args: []string{"list", "table", nftFamily, nftTable(table)}})
	if err != nil {
		return err
	}
	got := nftCounts(text)
	for _, r := range want {
		chain := nftChain(r.Chain)
		if n := countRules(want, table, r.Chain); got[chain] != n {
			return fmt.Errorf("%s %s has %d rules, want %d", nftTable(table), chain, got[chain], n)
		}
	}
	return nil
}

// nftCounts counts the rules of each chain in what nft lists for one table.
// Every rule of ours has a counter, and nothing else has.
func nftCounts(text string) map[string]int {
	counts := map[string]int{}
	chain := ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 3 && words[0] == "chain" && words[2] == "{":
			chain = words[1]
		case len(words) == 1 && words[0] == "}":
			chain = ""
		case chain != "" && strings.Contains(line, "counter packets"):
			counts[chain]++
		}
	}
	return counts
}

// nftRemoval deletes our tables whether they exist or not: adding one that
// exists is no error, deleting one that doesn't is.
func nftRemoval() string {
	var b strings.Builder
	for _, table := range nftTables() {
		name := nftFamily + " " + nftTable(table)
		b.WriteString("add table " + name + "\ndelete table " + name + "\n")
	}
	return b.String()
}

// Cleanup implements Backend.
func (b *NFTables) Cleanup(ctx context.Context, _ Rules) error {
	if _, err := b.run(ctx, nftCommand(nftRemoval())); err != nil {
		return fmt.Errorf("removing rules with nft: %w", err)
	}
	return nil
}

// State implements Backend.
func (b *NFTables) State(ctx context.Context, _ Rules) string {
	text, err := b.run(ctx, Command{Name: "nft", Args: []string{"list", "ruleset"}})
	if err != nil {
		return err.Error()
	}
	return text
}
