package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"sluice/redirect/command"
)

// version is set by the linker.
var version = "dev"

// host is what the process was given: the only place where environment and
// streams come in.
type host struct {
	lookup         func(string) (string, bool)
	environ        []string
	stdout, stderr io.Writer
	args           []string
	started        func() // told when a start is over, unless nil
}

// redirectCommand is istio-iptables, which the init container of one image runs.
func redirectCommand(h host) *cobra.Command {
	of := command.System(h.lookup)
	of.Args = h.args
	return command.New(of)
}

// flags are Envoy's, for `proxy -c FILE`. Those that change nothing here are
// accepted, so that a command line for Envoy works as it is.
type flags struct {
	config, configYAML  string
	mode                string
	concurrency         int
	logLevel, component string
	drainTime           int
	drainStrategy       string
	flushMillis         int
	node, cluster       string
	visibleWait         bool
	allowUnknown        bool
}

const unknownFlags = true // pilot-agent ignores flags it doesn't know, so do we; Envoy refuses them

func rootCommand(h host) *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:           "proxy -c FILE | proxy sidecar",
		Short:         "The sluice sidecar: takes the arguments of pilot-agent, or of Envoy",
		Args:          cobra.ArbitraryArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		RunE: func(c *cobra.Command, args []string) error {
			if f.config == "" && f.configYAML == "" {
				if len(args) > 0 {
					return fmt.Errorf("unknown command %q: --help lists them", args[0])
				}
				return errors.New("at least one of --config-path (-c) and --config-yaml must be given; for a pod of Istio use `proxy sidecar`")
			}
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q", args[0])
			}
			return serveBootstrap(c.Context(), h, f)
		},
	}
	p := root.Flags()
	p.StringVarP(&f.config, "config-path", "c", "", "bootstrap, YAML or JSON")
	p.StringVar(&f.configYAML, "config-yaml", "", "bootstrap as text, merged over --config-path")
	p.StringVar(&f.mode, "mode", "serve", "serve, or validate: check the bootstrap and exit")
	p.IntVar(&f.concurrency, "concurrency", 1, "workers")
	p.StringVarP(&f.logLevel, "log-level", "l", "info", "trace, debug, info, warning, error, critical or off")
	p.StringVar(&f.component, "component-log-level", "", "accepted for Envoy's sake")
	p.IntVar(&f.drainTime, "drain-time-s", 600, "seconds that connections may drain")
	p.StringVar(&f.drainStrategy, "drain-strategy", "gradual", "gradual or immediate")
	p.IntVar(&f.flushMillis, "file-flush-interval-msec", 1000, "milliseconds between flushes of access logs")
	p.StringVar(&f.node, "service-node", "", "node id")
	p.StringVar(&f.cluster, "service-cluster", "", "node cluster")
	p.BoolVar(&f.visibleWait, "visible-wait", false, "wait for events through the Go scheduler only (slower at low rates)")
	p.BoolVar(&f.allowUnknown, "allow-unknown-static-fields", false, "leave out fields of the bootstrap that aren't known instead of refusing it")
	for _, name := range [...]string{"disable-hot-restart", "skip-deprecated-logs", "reject-unknown-dynamic-fields", "ignore-unknown-dynamic-fields",
		"enable-fine-grain-logging", "log-format-escaped", "use-dynamic-base-id", "cpuset-threads", "enable-core-dump"} {
		p.Bool(name, false, "accepted for Envoy's sake")
	}
	for _, name := range [...]string{"base-id", "base-id-path", "restart-epoch", "parent-shutdown-time-s", "local-address-ip-version", "service-zone",
		"log-path", "log-format", "socket-path", "socket-mode", "admin-address-path", "disable-extensions", "stats-tag", "bootstrap-version"} {
		p.String(name, "", "accepted for Envoy's sake")
	}
	root.AddCommand(sidecarCommand(h), agentCommand(h), requestCommand(), waitCommand(), versionCommand(), redirectCommand(h))
	return root
}

// agentCommand is pilot-agent's `proxy [sidecar]`.
func agentCommand(h host) *cobra.Command {
	c := &cobra.Command{
		Use:                "proxy [sidecar]",
		Short:              "Run as the sidecar of a pod (pilot-agent's word for it)",
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: unknownFlags},
		Args:               cobra.MaximumNArgs(1),
	}
	var o agentFlags
	o.bind(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] != "sidecar" {
			return fmt.Errorf("proxy type %q is not supported: only sidecar is", args[0])
		}
		return serveSidecar(c.Context(), h, o)
	}
	return c
}

func sidecarCommand(h host) *cobra.Command {
	c := agentCommand(h)
	c.Use, c.Args = "sidecar", cobra.NoArgs
	return c
}

// agentFlags are pilot-agent's.
type agentFlags struct {
	domain, meshConfig, serviceCluster   string
	proxyLogLevel, componentLog, logging string
	logAsJSON                            bool
	concurrency, stsPort                 int
	templateFile, outlierLog             string
	printBootstrap                       bool
}

func (o *agentFlags) bind(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&o.domain, "domain", "", "DNS domain suffix (default $POD_NAMESPACE.svc.cluster.local)")
	p.StringVar(&o.meshConfig, "meshConfig", "./etc/istio/config/mesh", "mesh configuration file, may be absent")
	p.StringVar(&o.serviceCluster, "serviceCluster", "istio-proxy", "service cluster")
	p.StringVar(&o.proxyLogLevel, "proxyLogLevel", "warning", "log level of the data plane")
	p.StringVar(&o.componentLog, "proxyComponentLogLevel", "", "accepted")
	p.StringVar(&o.logging, "log_output_level", "default:info", "log level of the agent, scope:level pairs")
	p.BoolVar(&o.logAsJSON, "log_as_json", false, "log in JSON")
	p.IntVar(&o.concurrency, "concurrency", 0, "workers; 0: from ProxyConfig or the CPU limit")
	p.IntVar(&o.stsPort, "stsPort", 0, "accepted; the token exchange server is not supported")
	p.StringVar(&o.templateFile, "templateFile", "", "accepted; the bootstrap is not made from a template")
	p.StringVar(&o.outlierLog, "outlierLogPath", "", "accepted")
	p.BoolVar(&o.printBootstrap, "print-bootstrap", false, "print the bootstrap that is derived from the environment, and exit")
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "sluice %s (%s)\n", version, runtime.Version())
			return err
		},
	}
}
