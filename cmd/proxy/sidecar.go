package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/identity"
	"sluice/internal/nameserver"
	"sluice/internal/telemetry"
	"sluice/listener"
	"sluice/xdsclient"
)

// istioVersion is what istiod is told: it gates configuration on it, so it is
// the release whose configuration we know, not our own version.
const istioVersion = "1.31.0"

// Files of a pod, relative to the working folder as in Istio's image.
const (
	tokenFile = "./var/run/secrets/tokens/istio-token"
	rootFile  = "./var/run/secrets/istio/root-cert.pem"
	crlFile   = "./var/run/secrets/istio/crl/ca-crl.pem"
	certsDir  = "./var/run/secrets/workload-spiffe-credentials/"
)

// podSide is what a run has only in a pod: an identity from the CA, and the
// agent's pages.
type podSide struct {
	agent  *identity.Agent
	source *identity.Source // nil: an SDS server beside us has the certificates
	ready  *admin.Readiness
	dns    *nameserver.Server // nil: DNS isn't captured
	drains struct{ minimum, termination time.Duration }
	onZero bool        // EXIT_ON_ZERO_ACTIVE_CONNECTIONS
	began  atomic.Bool // the preStop hook drained already
	counts *agentMetrics
}

// serveSidecar is `proxy sidecar`: pilot-agent's command line in an injected pod.
func serveSidecar(ctx context.Context, h host, o agentFlags) error {
	agent, err := identity.NewAgent(identity.Inputs{
		Domain: o.domain, ServiceCluster: o.serviceCluster, Concurrency: o.concurrency, MeshConfig: o.meshConfig, Environ: h.environ,
		ReadFile: os.ReadFile, Addresses: addresses(), Version: istioVersion,
	})
	if err != nil {
		return fmt.Errorf("reading the pod's environment: %w", err)
	}
	text, err := agent.Bootstrap()
	if err != nil {
		return err
	}
	if o.printBootstrap {
		_, err := fmt.Fprintln(h.stdout, string(text))
		return err
	}
	level, log, err := newLog(h, agentLevel(o), o.logAsJSON)
	if err != nil {
		return err
	}
	for _, err := range agent.Ignored {
		log.Warn("node metadata", "error", err)
	}
	registry := newRegistry(h)
	boot, err := registry.Bootstrap(text)
	if err != nil {
		return fmt.Errorf("the bootstrap derived from the environment: %w", err)
	}
	pod, dial, err := newPodSide(agent, log)
	if err != nil {
		return err
	}
	drain, err := time.ParseDuration(agent.Text("drainDuration"))
	if err != nil {
		return fmt.Errorf("ProxyConfig.drainDuration %q: %w", agent.Text("drainDuration"), err)
	}
	return run(ctx, h, settings{
		boot: boot, text: text, registry: registry, log: log, level: level, dial: dial, pod: pod,
		plane: planeOptions{
			workers: max(agent.Number("concurrency", 2), 1), drain: drain, flush: time.Second, maxConns: boot.MaxConnections, node: &boot.Node, runtime: boot.Runtime,
			keep: keepStats(boot.StatsMatcher), tags: telemetry.NewTags(boot.StatsTags),
		},
		options: map[string]any{"concurrency": agent.Number("concurrency", 2), "drain_strategy": "Immediate", "drain_time": drain.String()},
	})
}

// agentLevel takes the level of scope default from --log_output_level.
func agentLevel(o agentFlags) string {
	for pair := range strings.SplitSeq(o.logging, ",") {
		if scope, level, ok := strings.Cut(pair, ":"); ok && (scope == "default" || scope == "all") {
			return level
		}
	}
	return "info"
}

// newPodSide prepares the identity and the way to istiod.
func newPodSide(a *identity.Agent, log *slog.Logger) (*podSide, xdsclient.Dialer, error) {
	p := &podSide{agent: a, ready: admin.NewReadiness(nil, "identity", "configuration")}
	var err error
	if a.Env("ISTIO_META_DNS_CAPTURE") == "true" {
		if err := p.captureDNS(); err != nil {
			return nil, nil, err
		}
	}
	if p.drains.termination, err = time.ParseDuration(a.Text("terminationDrainDuration")); err != nil {
		return nil, nil, fmt.Errorf("ProxyConfig.terminationDrainDuration: %w", err)
	}
	p.drains.minimum = 5 * time.Second
	if v := a.Env("MINIMUM_DRAIN_DURATION"); v != "" {
		if p.drains.minimum, err = time.ParseDuration(v); err != nil {
			return nil, nil, fmt.Errorf("MINIMUM_DRAIN_DURATION: %w", err)
		}
	}
	p.onZero = a.Env("EXIT_ON_ZERO_ACTIVE_CONNECTIONS") == "true"
	peer := func(address, root string) *identity.Peer {
		return &identity.Peer{
			Address: address, Plaintext: strings.HasSuffix(address, ":15010"), RootFile: rootOf(a, root), TokenFile: tokenFile,
			Metadata: map[string]string{"clusterid": a.ClusterID}, ServerName: a.Env("ISTIOD_SAN"),
		}
	}
	discovery := a.Text("discoveryAddress")
	ca := a.Env("CA_ADDR")
	if ca == "" {
		ca = discovery
	}
	o := identity.Options{ID: a.SPIFFE(), CA: peer(ca, "CA_ROOT_CA"), CRLFile: crlFile, Signer: a.Env("ISTIO_META_CERT_SIGNER"), Logf: warner(log)}
	if v := a.Env("SECRET_TTL"); v != "" {
		if o.TTL, err = time.ParseDuration(v); err != nil {
			return nil, nil, fmt.Errorf("SECRET_TTL: %w", err)
		}
	}
	if v := a.Env("WORKLOAD_RSA_KEY_SIZE"); v != "" {
		if o.RSABits, err = strconv.Atoi(v); err != nil {
			return nil, nil, fmt.Errorf("WORKLOAD_RSA_KEY_SIZE: %w", err)
		}
	}
	if m := (identity.Files{Chain: certsDir + "cert-chain.pem", Key: certsDir + "key.pem", Root: certsDir + "root-cert.pem"}); exists(m.Chain, m.Key, m.Root) {
		o.Mounted, o.CA = &m, nil
	}
	if path := a.WorkloadSocket(); served(path) {
		log.Info("certificates come from an SDS server", "socket", path)
		p.counts = newAgentMetrics(func() time.Time { return time.Time{} })
	} else {
		p.source = identity.NewSource(o)
		p.counts = newAgentMetrics(p.source.Expiry)
	}
	return p, peer(discovery, "XDS_ROOT_CA").Dial, nil
}

// rootOf is the file that istiod's certificate is checked against: the one that
// the variable names ("SYSTEM": the system's), else the first of pilot-agent's
// places that is there.
func rootOf(a *identity.Agent, variable string) string {
	if v := a.Env(variable); v != "" {
		return v
	}
	places := []string{"./etc/certs/root-cert.pem"}
	if v := a.Env("PROV_CERT"); v != "" {
		places = append(places, v+"/root-cert.pem")
	}
	for _, path := range places {
		if exists(path) {
			return path
		}
	}
	return rootFile
}

// served says that somebody listens at a socket.
func served(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// identity says whether there is a certificate, or why not. With an SDS server the
// configuration waits for it.
func (s *podSide) identity() (ok bool, problem string) {
	if s.source == nil {
		return true, ""
	}
	return s.source.Certificate() != nil, s.source.Problem()
}

func exists(paths ...string) bool {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}

// changed follows the control path for readiness.
func (s *podSide) changed(f xdsclient.Facts) {
	if f.Live {
		s.ready.Done("configuration")
		s.counts.started()
		return
	}
	why := f.Missing()
	if f.Problem != "" {
		s.counts.connectionFailures.Inc()
	}
	if f.Problem != "" {
		why += "; istiod: " + f.Problem
	} else if !f.Connected {
		why += "; not connected to " + s.agent.Text("discoveryAddress") + " yet"
	}
	s.ready.Because("configuration", why)
}

// servePages opens the status port, which answers probes and scrapes.
func (s *podSide) servePages(_ context.Context, p *process) (stop func(), err error) {
	ip, _ := netip.ParseAddr(s.agent.Env("INSTANCE_IP"))
	probes, err := admin.NewProbes(s.agent.Env("ISTIO_KUBE_APP_PROBERS"), ip, s.agent.Env("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION") == "true")
	if err != nil {
		return nil, err
	}
	app, err := admin.NewAppMetrics(s.agent.Env("ISTIO_PROMETHEUS_ANNOTATIONS"), func() { s.counts.scrapeFailures.WithLabelValues("application").Inc() })
	if err != nil {
		return nil, err
	}
	status := &admin.Status{
		Ready: s.ready, App: app, Probes: probes, Quit: p.quitNow,
		Metrics: func(w io.Writer, _ string) error {
			s.counts.scrapes.Inc()
			if err := admin.WritePrometheus(context.Background(), w, p.plane.metrics, nil); err != nil {
				return err
			}
			return s.counts.write(w)
		},
		Drain:     func() { s.began.Store(true); p.drain(true, true, true) },
		NameTable: func() []byte { return nameTable(p.names.Load()) },
		Identity:  s.identity,
	}
	p.plane.metrics.Global(build)
	port := s.agent.Number("statusPort", 15020)
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, fmt.Errorf("opening the status port: %w", err)
	}
	return serveHTTP([]net.Listener{l}, status.Handler()), nil
}

// terminate drains inbound connections as pilot-agent does: for a fixed time, or
// until none is left. After a preStop drain there is nothing to wait for.
func (s *podSide) terminate(ctx context.Context, p *process) {
	s.ready.Stop()
	if s.began.Load() {
		return
	}
	p.drain(true, true, true)
	if !s.onZero {
		pause(ctx, s.drains.termination)
		return
	}
	pause(ctx, s.drains.minimum)
	for ctx.Err() == nil {
		n, err := p.plane.active(ctx, &p.boot.Static)
		if err != nil || n == 0 {
			p.log.Info("drained", "error", err)
			return
		}
		pause(ctx, time.Second)
	}
}

// pause waits, unless the data plane ends before.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// active counts the connections of listeners that carry the application's
// traffic: the bootstrap's own are for probes and scrapes, which never stop.
func (p *plane) active(ctx context.Context, static *config.Snapshot) (n uint64, err error) {
	var mu sync.Mutex
	err = p.listeners.Visit(ctx, func(_ int, c *config.Listener, x listener.Counters) {
		if slices.ContainsFunc(static.Listeners, func(s *config.Listener) bool { return s.Name == c.Name }) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		n += x.Active
	})
	return n, err
}
