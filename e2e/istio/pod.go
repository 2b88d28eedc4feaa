package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/internal/meshtest/netns"
	"sluice/internal/meshtest/podapp"
)

// Sidecar says which data plane a pod has.
type Sidecar string

// The data planes.
const (
	Ours    Sidecar = "sluice"
	Envoy   Sidecar = "envoy"
	Outside Sidecar = "none" // not in the mesh: no redirect rules either
)

// Pod is one pod: a namespace, an application and a sidecar.
type Pod struct {
	Name, IP string
	Kind     Sidecar
	*netns.Namespace
	bed     *Bed
	dir     string
	sidecar *exec.Cmd
	app     *podapp.App
}

// AddPod makes the pod NAME (a, b or c of servicesYAML) and waits until it is ready.
func (b *Bed) AddPod(ctx context.Context, name, ip string, kind Sidecar) (*Pod, error) {
	ns, err := b.Topology.Add(name, netip.MustParseAddr(ip), 16)
	if err != nil {
		return nil, err
	}
	p := &Pod{Name: name, IP: ip, Kind: kind, Namespace: ns, bed: b, dir: filepath.Join(b.Dir, name)}
	b.pods = append(b.pods, p)
	if err := p.files(); err != nil {
		return nil, fmt.Errorf("writing the files of pod %s: %w", name, err)
	}
	if p.app, err = startApp(ns, name); err != nil {
		return nil, fmt.Errorf("starting the application of pod %s: %w", name, err)
	}
	if kind == Outside {
		return p, nil
	}
	if err := p.redirect(ctx); err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, p.WaitReady(ctx)
}

// files are what the kubelet mounts, below the working folder of the sidecar.
func (p *Pod) files() error {
	token, err := p.bed.kube.token("demo", p.Name, p.Name+"-v1-0", time.Hour)
	if err != nil {
		return err
	}
	root, err := os.ReadFile(p.bed.path("etc", "cacerts", "root-cert.pem"))
	if err != nil {
		return err
	}
	for _, d := range []string{"etc/istio/proxy", "var/lib/istio/data", "var/run/secrets/workload-spiffe-uds", "var/run/secrets/credential-uds", "var/run/secrets/workload-spiffe-credentials"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(p.dir, d), 0o777), os.Chmod(filepath.Join(p.dir, d), 0o777)); err != nil {
			return err
		}
	}
	labels := fmt.Sprintf("app=%q\nversion=\"v1\"\nsecurity.istio.io/tlsMode=\"istio\"\nservice.istio.io/canonical-name=%q\nservice.istio.io/canonical-revision=\"v1\"\n", p.Name, p.Name)
	put := map[string]string{
		"var/run/secrets/tokens/istio-token": token, "var/run/secrets/istio/root-cert.pem": string(root),
		"etc/istio/pod/labels": labels, "etc/istio/pod/annotations": "istio.io/rev=\"default\"\n",
	}
	if p.Kind == Envoy {
		template, err := os.ReadFile(p.bed.binaries.bootstrap)
		if err != nil {
			return err
		}
		put["var/lib/istio/envoy/envoy_bootstrap_tmpl.json"] = string(template)
	}
	for name, text := range put {
		path := filepath.Join(p.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	etc := filepath.Join("/etc/netns", p.Namespace.Name)
	return errors.Join(os.MkdirAll(etc, 0o755),
		os.WriteFile(filepath.Join(etc, "hosts"), []byte("127.0.0.1 localhost\n"+istiodIP+" istiod.istio-system.svc\n"), 0o644),
		os.WriteFile(filepath.Join(etc, "resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644))
}

func (p *Pod) redirect(ctx context.Context) error {
	args := []string{"istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020", "--log_output_level=default:info"}
	c := p.Command(ctx, 0, append([]string{p.bed.binaries.init}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("redirect rules of pod %s: %w: %s", p.Name, err, out)
	}
	return nil
}

func (p *Pod) environment() []string {
	config := "{}"
	if p.Kind == Envoy {
		config = fmt.Sprintf(`{"binaryPath":%q}`, p.bed.binaries.envoy)
	}
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/", "HOSTNAME=" + p.Name + "-v1-0", "PILOT_CERT_PROVIDER=istiod", "CA_ADDR=istiod.istio-system.svc:15012",
		"POD_NAME=" + p.Name + "-v1-0", "POD_NAMESPACE=demo", "INSTANCE_IP=" + p.IP, "SERVICE_ACCOUNT=" + p.Name, "HOST_IP=10.0.0.1", "ISTIO_CPU_LIMIT=2",
		"PROXY_CONFIG=" + config, `ISTIO_META_POD_PORTS=[{"containerPort":8080,"protocol":"TCP"}]`, "ISTIO_META_APP_CONTAINERS=app", "GOMEMLIMIT=1073741824",
		"GOMAXPROCS=2", "ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_NODE_NAME=node-1", "ISTIO_META_INTERCEPTION_MODE=REDIRECT",
		"ISTIO_META_WORKLOAD_NAME=" + p.Name + "-v1", "ISTIO_META_OWNER=kubernetes://apis/apps/v1/namespaces/demo/deployments/" + p.Name + "-v1",
		"ISTIO_META_MESH_ID=cluster.local", "TRUST_DOMAIN=cluster.local",
	}
}

// Start starts the sidecar with the arguments of an injected pod.
func (p *Pod) Start(ctx context.Context) error {
	path := filepath.Join(p.bed.Dir, p.Name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := log.Chmod(0o666); err != nil { // Envoy opens /dev/stdout anew, as 1337
		return err
	}
	c := p.Command(ctx, 1337, p.binary(), "proxy", "sidecar", "--domain", "demo.svc.cluster.local", "--proxyLogLevel=warning", "--proxyComponentLogLevel=misc:error", "--log_output_level=default:info")
	c.Dir, c.Env, c.Stdout, c.Stderr = p.dir, p.environment(), log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("starting the sidecar of pod %s: %w", p.Name, err)
	}
	p.sidecar = c
	return nil
}

// binary is the program that the pod's sidecar starts as.
func (p *Pod) binary() string {
	if p.Kind == Envoy {
		return p.bed.binaries.agent
	}
	return p.bed.binaries.proxy
}

// WaitReady waits for what the kubelet's startup probe asks.
func (p *Pod) WaitReady(ctx context.Context) error {
	err := until(ctx, 30*time.Second, "pod "+p.Name+" to be ready", func() error {
		return get(ctx, p.Namespace, "http://"+p.IP+":15021/healthz/ready", http.StatusOK)
	})
	if err != nil {
		err = fmt.Errorf("%w; its log ends: %s", err, tail(filepath.Join(p.bed.Dir, p.Name+".log")))
	}
	return err
}

// StopSidecar kills the sidecar, which Start starts anew.
func (p *Pod) StopSidecar() {
	if p.sidecar != nil {
		_ = syscall.Kill(-p.sidecar.Process.Pid, syscall.SIGKILL) // the agent's Envoy is in the group
		_ = p.sidecar.Wait()
		p.sidecar = nil
	}
}

// Stop ends sidecar and application.
func (p *Pod) Stop() {
	p.StopSidecar()
	if p.app != nil {
		p.app.Stop()
	}
	_ = os.RemoveAll(filepath.Join("/etc/netns", p.Namespace.Name))
}

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// clientIn is an HTTP client that dials from a namespace, as an application there would.
func clientIn(n *netns.Namespace) *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return n.Dial(ctx, address)
		},
	}}
}
