//go:build linux

// Command demo shows sluice at its main job on one machine: a client pod and two
// server pods in network namespaces with real redirect rules, an embedded
// control plane and certificate authority, and both binaries started with the
// arguments and environment of an injected pod. It sends traffic of seven kinds,
// says for each what became of it, then breaks things five times. Every line is
// checked; exit status 1 if one is not as it says.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.proxy, "proxy", "bin/proxy", "the sidecar binary")
	flag.StringVar(&o.init, "init", "bin/init", "the redirect binary")
	flag.BoolVar(&o.keep, "keep", false, "leave everything up and say how to look around")
	flag.Parse()
	if os.Geteuid() != 0 {
		os.Exit(asFakeRoot())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx, o)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	case failed > 0:
		fmt.Printf("\n%d of the lines above are not so\n", failed)
		os.Exit(1)
	}
}

type options struct {
	proxy, init string
	keep        bool
}

// asFakeRoot runs the demo again in a user namespace of its own, where an
// unprivileged user may make network namespaces and has user id 1337 to give.
func asFakeRoot() int {
	c := exec.Command("unshare", append([]string{"--user", "--map-root-user", "--map-auto", "--mount", "--net", "--", "sh", "-c",
		`mount -t tmpfs tmpfs /run && exec "$0" "$@"`}, os.Args...)...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo: needs root, or user namespaces with a range of ids (package uidmap):", err)
		return 1
	}
	return 0
}

// story prints what happens and counts what isn't as it should be.
type story struct {
	*world
	failed int
}

func (s *story) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// check prints one line: what happened, or that it did not.
func (s *story) check(what string, err error) {
	if err != nil {
		s.failed++
		fmt.Printf("  ✗ %s\n      NOT SO: %v\n", what, err)
		return
	}
	fmt.Printf("  ✓ %s\n", what)
}

func run(ctx context.Context, o options) (failed int, err error) {
	began := time.Now()
	for _, p := range []*string{&o.proxy, &o.init} {
		if *p, err = filepath.Abs(*p); err != nil {
			return 0, err
		}
		if _, err := os.Stat(*p); err != nil {
			return 0, fmt.Errorf("looking for a binary that `make build` makes: %w", err)
		}
	}
	fmt.Println("Making three pods: a (client), b-1 and b-2 (servers), and x, a client outside the mesh.")
	w, err := newWorld(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	s := &story{world: w}
	fmt.Printf("All three sidecars are ready after %d ms.\n", time.Since(began).Milliseconds())
	s.traffic(ctx)
	s.events(ctx)
	fmt.Printf("\nDone in %.1f s.\n", time.Since(began).Seconds())
	if o.keep {
		s.lookAround(ctx)
	}
	return s.failed, nil
}

func (s *story) lookAround(ctx context.Context) {
	inside := "ip netns exec " + s.pods["a"].Name + " "
	fmt.Print("\nEverything is up until you press Ctrl-C. In another terminal, as root:\n")
	for _, c := range [...]struct{ command, what string }{
		{inside + "curl -v http://" + serviceVIP + "/", "as an application in pod a"},
		{inside + "curl http://127.0.0.1:15000/help", "a's administration pages"},
		{inside + "curl http://127.0.0.1:15000/clusters", "what a knows of others"},
		{inside + "curl http://127.0.0.1:15020/stats/prometheus", "a's metrics"},
		{inside + "iptables-save -t nat", "the redirect rules"},
		{"tail -f " + s.log(s.pods["a"]), "a's log"},
	} {
		fmt.Printf("  %-64s # %s\n", c.command, c.what)
	}
	<-ctx.Done()
}
