package redirect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Command is one program to run, with its standard input.
type Command struct {
	Name  string
	Args  []string
	Stdin string
}

// String is the command line, for logs and errors.
func (c Command) String() string {
	return strings.Join(append([]string{c.Name}, c.Args...), " ")
}

// Runner runs a command and returns its standard output. An error carries what
// the program said on standard error.
type Runner func(ctx context.Context, c Command) (string, error)

// Exec is the Runner that really runs programs. They inherit the calling OS
// thread's network namespace.
func Exec(ctx context.Context, c Command) (string, error) {
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.Stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			return stdout.String(), fmt.Errorf("running %s: %w", c, err)
		}
		return stdout.String(), fmt.Errorf("running %s: %w: %s", c, err, said)
	}
	return stdout.String(), nil
}

// Print writes commands as a dry run shows them: what would be fed to a tool
// as the tool's input, everything else as a command line.
func Print(w io.Writer, list []Command) error {
	for _, c := range list {
		text := c.Stdin
		if text == "" {
			text = c.String() + "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return fmt.Errorf("printing the rules: %w", err)
		}
	}
	return nil
}

// Choice is what to do when the kernel already holds rules of ours.
type Choice struct {
	// Reconcile replaces rules that differ, dropping traffic meanwhile.
	Reconcile bool
	// Force replaces rules even where they are already as wanted.
	Force bool
}

// Backend puts Rules into the kernel of the calling thread's network namespace.
// Its methods are not safe for concurrent use: the tools below take a lock or
// a transaction each, but a check and the change after it are two of them.
type Backend interface {
	// Plan lists what Apply runs in an untouched namespace.
	Plan(r Rules) []Command
	// Apply makes the rules hold and reads them back. Applying the same rules
	// again changes nothing and succeeds.
	Apply(ctx context.Context, r Rules, c Choice) error
	// Cleanup removes what Apply of the same rules made, and any chain of ours.
	Cleanup(ctx context.Context, r Rules) error
	// State is the kernel's rules as the tool prints them, for logs.
	State(ctx context.Context, r Rules) string
}
