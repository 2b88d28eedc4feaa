// Command init replaces istio-init: it programs the pod's kernel to bring
// traffic to the proxy, and exits. It takes the arguments an injected pod has,
// with or without the leading istio-iptables.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sluice/redirect/command"
)

var version = "dev" // set by the linker

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], command.System(os.LookupEnv))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	os.Exit(command.ExitCode(err))
}

func run(ctx context.Context, args []string, host command.Host) error {
	if len(args) > 0 && args[0] == command.Name {
		args = args[1:]
	}
	host.Args = args
	c := command.New(host)
	c.Version = version
	if len(args) == 1 && (args[0] == "help" || args[0] == "version") {
		args = []string{"--" + args[0]}
	}
	c.SetArgs(args)
	return c.ExecuteContext(ctx)
}
