// Command proxy is the sidecar: agent and data plane in one process. It takes
// pilot-agent's command line (`proxy sidecar`, `wait`, `request`,
// `istio-iptables`) and Envoy's (`-c FILE`). run.go shows how it is wired.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sluice/redirect/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h := host{lookup: os.LookupEnv, environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr, args: os.Args[1:]}
	if os.Getenv("GOGC") == "" {
		h.started = paceCollector().settle
	}
	root := rootCommand(h)
	root.SetArgs(os.Args[1:])
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(command.ExitCode(err))
	}
}
