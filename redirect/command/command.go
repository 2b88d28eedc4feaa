// Package command is istio-init's command line: it turns arguments and
// environment into a redirect.Config and does what they ask. It holds no rule
// of its own. cmd/init runs it as a program, cmd/proxy offers it as the
// istio-iptables subcommand; the environment comes in through Host.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"sluice/redirect"
)

// Name is the word the injected pod's arguments start with.
const Name = "istio-iptables"

// Host is what the command learns from the machine it runs on.
type Host struct {
	Args       []string // the command line: what is ignored of it is named
	LookupEnv  func(string) (string, bool)
	Addrs      func() ([]netip.Addr, error)      // the pod's addresses in interface order
	ResolvConf func() (string, error)            // the text of resolv.conf
	UserID     func(name string) (string, error) // the uid of a user
	Run        redirect.Runner
	Stdout     io.Writer // rules of a dry run
	Stderr     io.Writer // log
}

// System is the real machine. The environment is the caller's to give.
func System(lookup func(string) (string, bool)) Host {
	return Host{
		LookupEnv:  lookup,
		Addrs:      interfaceAddrs,
		ResolvConf: resolvConf,
		UserID:     userID,
		Run:        redirect.Exec,
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
	}
}

func interfaceAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing the pod's addresses: %w", err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, p.Addr())
		}
	}
	return addrs, nil
}

func resolvConf() (string, error) {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "", fmt.Errorf("reading the name servers: %w", err)
	}
	return string(text), nil
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", fmt.Errorf("looking up user %s: %w", name, err)
	}
	return u.Uid, nil
}

// New makes the command. Unknown flags and stray arguments are ignored, because
// an injection template may be newer than this program; the command prints no
// error itself.
func New(h Host) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:                Name,
		Short:              "Bring this pod's traffic to the proxy",
		Args:               cobra.ArbitraryArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		SilenceUsage:       true,
		SilenceErrors:      true,
		CompletionOptions:  cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := misspelt(c, h.Args, h.Stderr); err != nil {
				return err
			}
			if err := f.fromEnv(c.Flags(), h.LookupEnv); err != nil {
				return err
			}
			return f.run(c.Context(), h)
		},
	}
	f.bind(c.Flags())
	return c
}

// ExitCode is the exit status for the error of a run: 0, 1, or 126 for a failed
// validation, which is what Istio's CNI repair controller looks for.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, redirect.ErrNotRedirected):
		return 126
	}
	return 1
}

func (f *flags) run(ctx context.Context, h Host) error {
	var handler slog.Handler = slog.NewTextHandler(h.Stderr, nil)
	if f.logJSON {
		handler = slog.NewJSONHandler(h.Stderr, nil)
	}
	log := slog.New(handler)
	if f.cni {
		return errors.New("cni-mode: not supported, this program only programs its own pod")
	}
	if f.netns != "" {
		if err := redirect.EnterNetns(f.netns); err != nil {
			return fmt.Errorf("network-namespace: %w", err)
		}
	}
	cfg, err := f.complete(h, log)
	if err != nil {
		return err
	}
	log.Info("configured", "config", fmt.Sprintf("%+v", cfg))
	if err := f.program(ctx, h, log, cfg); err != nil {
		return err
	}
	if f.validate {
		return redirect.Check(ctx, redirect.Probe{
			ProxyPort: cfg.ProxyPort, InboundPort: cfg.InboundPort, Port: f.probePort,
			Timeout: f.probeTimeout, IPv6: cfg.IPv6,
		}, log)
	}
	return nil
}

// complete is config plus what only the machine knows.
func (f *flags) complete(h Host, log *slog.Logger) (redirect.Config, error) {
	c, err := f.config()
	if err != nil {
		return c, err
	}
	if len(c.ProxyUID) == 0 {
		c.ProxyUID = []string{defaultUID(h)}
	}
	if len(c.ProxyGID) == 0 {
		c.ProxyGID = c.ProxyUID
	}
	addrs, err := h.Addrs()
	if err != nil {
		return c, err
	}
	c.IPv6 = redirect.HasIPv6(addrs, f.dualStack)
	if c.DNS && !c.DNSAll {
		conf, err := h.ResolvConf()
		if err != nil {
			return c, fmt.Errorf("redirect-dns: %w", err)
		}
		if c.DNSServers = redirect.Nameservers(conf); len(c.DNSServers) == 0 {
			log.Warn("redirect-dns: resolv.conf names no server and capture-all-dns is off, DNS is not captured")
		}
	}
	return c, c.Validate()
}

func defaultUID(h Host) string {
	name := env(h.LookupEnv, "ENVOY_USER", "istio-proxy")
	if id, err := h.UserID(name); err == nil {
		return id
	}
	return "1337"
}

func (f *flags) program(ctx context.Context, h Host, log *slog.Logger, cfg redirect.Config) error {
	rules := redirect.Build(cfg)
	var backend redirect.Backend = redirect.NewNFTables(h.Run, log)
	if !f.nft {
		ipt, err := redirect.NewIPTables(h.Run, f.binary, log)
		if err != nil {
			return err
		}
		backend = ipt
	}
	switch {
	case f.dryRun:
		return f.print(h, backend.Plan(rules))
	case f.cleanup:
		return cleanup(ctx, backend, rules)
	case f.skipApply:
		return nil
	}
	// The addresses and routes come first: rules without them lose packets,
	// they without rules do nothing.
	if err := redirect.ApplyLinks(rules); err != nil {
		return err
	}
	err := backend.Apply(ctx, rules, redirect.Choice{Reconcile: f.reconcile, Force: f.force})
	f.report(h, log, backend.State(ctx, rules))
	return err
}

// report logs the rules as they are now, readable unless objects are wanted.
func (f *flags) report(h Host, log *slog.Logger, state string) {
	if f.logJSON {
		log.Info("final state", "rules", state)
		return
	}
	fmt.Fprintf(h.Stderr, "Final state of the rules:\n%s", state)
}

func cleanup(ctx context.Context, backend redirect.Backend, rules redirect.Rules) error {
	return errors.Join(backend.Cleanup(ctx, rules), redirect.CleanupLinks(rules))
}

// print is the dry run. The file gets the tools' input only, appended.
func (f *flags) print(h Host, plan []redirect.Command) error {
	if err := redirect.Print(h.Stdout, plan); err != nil {
		return err
	}
	path, ok := h.LookupEnv("DRY_RUN_FILE_PATH")
	if !ok || path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("DRY_RUN_FILE_PATH: %w", err)
	}
	for _, c := range plan {
		if _, err := file.WriteString(c.Stdin); err != nil {
			file.Close()
			return fmt.Errorf("DRY_RUN_FILE_PATH: %w", err)
		}
	}
	return file.Close()
}
