// Command bench compares sluice with the real Envoy, haproxy, a proxy of the
// standard library and a bare forwarder: one bootstrap for Envoy and for us,
// cells interleaved, CPU per unit of work as the measure. `bench run` writes the
// table; the other subcommands are the load, the back ends and two contestants,
// run as processes of their own so that nothing but the proxy is on the proxy's
// core. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"sluice/bench/load"
	"sluice/bench/machine"
	"sluice/bench/origin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	const names = "run, table, compare, load, probe, origin, mirror, forward, goproxy or enter"
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("a subcommand comes first: %s; `bench run -h` lists its flags", names)
	}
	name, args := args[0], args[1:]
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	switch name {
	case "run":
		return runCommand(ctx, flags, args)
	case "table":
		raw := flags.String("raw", "bench/out/samples.json", "raw results")
		readme := flags.String("readme", "", "put some rows into this file, which has a place for them")
		_ = flags.Parse(args)
		return tableCommand(*raw, *readme, os.Stdout)
	case "compare":
		_ = flags.Parse(args)
		return compareCommand(flags.Args(), os.Stdout)
	case "enter":
		return enterCommand(flags, args)
	case "probe":
		to, host := flags.String("to", "", "address"), flags.String("host", "", "name to ask for")
		_ = flags.Parse(args)
		return probeCommand(ctx, *to, *host, os.Stdout)
	case "load":
		spec := flags.String("spec", "", "the load as JSON")
		_ = flags.Parse(args)
		var s load.Spec
		if err := json.Unmarshal([]byte(*spec), &s); err != nil {
			return fmt.Errorf("-spec: %w", err)
		}
		return load.Run(ctx, s, os.Stdout)
	}
	return serveCommand(ctx, name, flags, args)
}

func runCommand(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var o runOptions
	flags.StringVar(&o.sluice, "sluice", "bin/proxy", "the proxy under test")
	flags.StringVar(&o.envoy, "envoy", ".cache/envoy/bin/envoy", "the Envoy to compare with; none leaves it out")
	flags.StringVar(&o.rows, "rows", "", "regular expression of scenarios to run (default: all)")
	flags.IntVar(&o.rounds, "rounds", 20, "rounds; two of them are ABBA")
	flags.DurationVar(&o.length, "length", 10*time.Second, "measured time of a cell")
	flags.DurationVar(&o.warm, "warm", 2*time.Second, "time before it")
	flags.DurationVar(&o.budget, "budget", 0, "begin no further round that would end later than this")
	flags.BoolVar(&o.narrow, "narrow", false, "spend what the rounds leave of the budget on more of them for the rows with the widest intervals")
	flags.BoolVar(&o.quick, "quick", false, "the main rows only, one round of those that take long, 3,000 idle connections and not 9,800")
	flags.IntVar(&o.retries, "retries", 2, "times that a cell is repeated which doesn't count")
	flags.Float64Var(&o.foreign, "foreign", .04, "share of the proxy's core that others may use")
	flags.DurationVar(&o.quiet, "quiet", 4*time.Second, "after a void cell, time to wait for the machine to be quiet")
	flags.StringVar(&o.out, "out", "bench/out", "folder for raw results")
	flags.StringVar(&o.results, "results", "", "write the table to this file too")
	flags.StringVar(&o.readme, "readme", "", "with -results, put some rows into this file, which has a place for them")
	flags.StringVar(&o.onto, "onto", "", "raw results of an earlier run with the same programs, of which only these rows are run again")
	pinned := flags.Bool("pinned", false, "this process is on core 0 already")
	_ = flags.Parse(args)
	if flags.NArg() > 0 {
		return fmt.Errorf("run takes flags only, not %q", flags.Arg(0))
	}
	if o.rounds < 1 {
		return fmt.Errorf("-rounds %d: must be 1 or more", o.rounds)
	}
	if o.narrow && (o.budget == 0 || o.rounds < 2) {
		return errors.New("-narrow: wants a budget, and two rounds or more")
	}
	if !*pinned {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return machine.Place{}.Enter(append([]string{self, "run", "-pinned"}, args...))
	}
	return run(ctx, o)
}

func enterCommand(flags *flag.FlagSet, args []string) error {
	var p machine.Place
	flags.StringVar(&p.Namespace, "netns", "", "network namespace")
	flags.StringVar(&p.Group, "group", "", "folder of a control group")
	flags.IntVar(&p.Core, "core", 0, "core")
	flags.StringVar(&p.Stamp, "stamp", "", "file for the time of the start")
	_ = flags.Parse(args)
	return p.Enter(flags.Args())
}

func serveCommand(ctx context.Context, name string, flags *flag.FlagSet, args []string) error {
	kind := flags.String("kind", "h1", "protocol: h1, h2, grpc, stream, echo, source or sink; goproxy: h1, h2 or tcp")
	listen := flags.String("listen", "127.0.0.1:0", "address")
	to := flags.String("to", "127.0.0.1:0", "next hop")
	size := flags.Int("size", 1024, "bytes of a response body")
	certs := flags.String("certs", "", "folder of certificates: mutual TLS")
	_ = flags.Parse(args)
	if name == "goproxy" {
		return goProxy(ctx, *kind, *listen, *to, *certs)
	}
	l, err := netip.ParseAddrPort(*listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	switch name {
	case "origin":
		return origin.Serve(ctx, *kind, l, *size, os.Stdout)
	case "mirror":
		return mirror(ctx, *listen, os.Stdout)
	case "forward":
		next, err := netip.ParseAddrPort(*to)
		if err != nil {
			return fmt.Errorf("-to: %w", err)
		}
		return forward(ctx, l, next)
	}
	return fmt.Errorf("unknown subcommand %q", name)
}
