// Command bench compares sluice with the real Envoy and with a bare TCP
// forwarder: one bootstrap for both proxies, their runs interleaved, CPU per
// unit of work as the measure. `bench run` prints the table; the other
// subcommands are the load and the back ends, run as processes of their own so
// that nothing but the proxy is on the proxy's core. See README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	name := "run"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	switch name {
	case "run":
		var o runOptions
		flags.StringVar(&o.sluice, "sluice", "bin/proxy", "the proxy under test")
		flags.StringVar(&o.envoy, "envoy", "", "the Envoy to compare with (default: found in PATH; none leaves it out)")
		flags.StringVar(&o.rows, "rows", "", "regular expression of rows to run (default: all)")
		flags.IntVar(&o.rounds, "rounds", 3, "interleaved rounds")
		flags.DurationVar(&o.length, "length", 3*time.Second, "length of one measurement")
		flags.StringVar(&o.out, "out", "bench/out", "folder for raw results")
		flags.StringVar(&o.results, "results", "", "write the table to this file too")
		_ = flags.Parse(args)
		return run(ctx, o)
	case "load":
		var s loadSpec
		s.flags(flags)
		_ = flags.Parse(args)
		return load(ctx, s, os.Stdout)
	case "backend":
		kind := flags.String("kind", "h1", "h1, h2, grpc, echo or source")
		listen := flags.String("listen", "127.0.0.1:0", "address")
		size := flags.Int("size", 1024, "bytes of a response body")
		_ = flags.Parse(args)
		return backend(ctx, *kind, *listen, *size)
	case "forward":
		listen := flags.String("listen", "127.0.0.1:0", "address")
		to := flags.String("to", "", "upstream address")
		_ = flags.Parse(args)
		return forward(ctx, *listen, *to)
	}
	return fmt.Errorf("unknown subcommand %q: run, load, backend, forward", name)
}
