//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"sluice/internal/meshtest"
	"sluice/internal/meshtest/netns"
	"sluice/internal/meshtest/podapp"
	"sluice/internal/meshtest/podconfig"
)

const (
	hubIP      = "10.244.255.1"
	serviceVIP = "10.96.0.12"
	slowVIP    = "10.96.0.13"
	namespace  = "demo"
)

// pod is one pod; the outside client x has no sidecar.
type pod struct {
	*netns.Namespace
	name, ip, account string
	dir               string
	sidecar           *exec.Cmd
	app               *podapp.App
}

// world is the mesh and everything that runs in it.
type world struct {
	dir      string
	opts     options
	topology *netns.Topology
	ca       *meshtest.CA
	control  *meshtest.Plane
	mesh     podconfig.Mesh
	pods     map[string]*pod
}

// logFormat names what the story tells of a connection or request.
const logFormat = "PATH listener={listener} chain={chain} route=%ROUTE_NAME% cluster=%UPSTREAM_CLUSTER_RAW% endpoint=%UPSTREAM_HOST% " +
	"dialed=%DOWNSTREAM_LOCAL_ADDRESS% server=%UPSTREAM_PEER_URI_SAN% client=%DOWNSTREAM_PEER_URI_SAN% sni=%REQUESTED_SERVER_NAME% " +
	"code=%RESPONSE_CODE% flags=%RESPONSE_FLAGS% details=%RESPONSE_CODE_DETAILS% id=%REQ(X-DEMO)% up=%UPSTREAM_TRANSPORT_FAILURE_REASON%\n"

func newWorld(ctx context.Context, o options) (*world, error) {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the sidecars run as 1337
		return nil, err
	}
	w := &world{dir: dir, opts: o, pods: map[string]*pod{}, mesh: demoMesh()}
	if w.topology, err = netns.New("sld", netip.MustParseAddr(hubIP), 16); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	if err := w.fill(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func demoMesh() podconfig.Mesh {
	workloads := []podconfig.Workload{{Name: "b-1", IP: "10.244.0.21"}, {Name: "b-2", IP: "10.244.0.22"}}
	return podconfig.Mesh{Namespace: namespace, AccessLog: "/dev/stdout", LogFormat: logFormat, Services: []podconfig.Service{
		{Name: "b", VIP: serviceVIP, Workloads: workloads, Retries: 2, Ports: []podconfig.Port{
			{Number: 80, Target: 8080, Protocol: podconfig.HTTP}, {Number: 7070, Target: 7070, Protocol: podconfig.HTTP2},
			{Number: 9000, Target: 9000, Protocol: podconfig.TCP}, {Number: 9001, Target: 9001, Protocol: podconfig.TCP},
			{Number: 9443, Target: 9443, Protocol: podconfig.TLS},
		}},
		{Name: "slow", VIP: slowVIP, Account: "b", Timeout: 500 * time.Millisecond, Workloads: []podconfig.Workload{{Name: "b-1", IP: "10.244.0.21"}},
			Ports: []podconfig.Port{{Number: 80, Target: 8080, Protocol: podconfig.HTTP}}},
	}}
}

func (w *world) fill(ctx context.Context) (err error) {
	if w.ca, err = meshtest.NewCA(); err != nil {
		return err
	}
	for _, p := range []pod{
		{name: "a", ip: "10.244.0.11", account: "a"}, {name: "b1", ip: "10.244.0.21", account: "b"},
		{name: "b2", ip: "10.244.0.22", account: "b"}, {name: "x", ip: "10.244.0.99"},
	} {
		if p.Namespace, err = w.topology.Add(p.name, netip.MustParseAddr(p.ip), 16); err != nil {
			return err
		}
		p.dir = filepath.Join(w.dir, p.name)
		w.pods[p.name] = &p
	}
	if err := w.startControlPlane(); err != nil {
		return err
	}
	for _, name := range []string{"b1", "b2"} {
		if w.pods[name].app, err = startApp(w.pods[name].Namespace, name); err != nil {
			return fmt.Errorf("starting the application of %s: %w", name, err)
		}
	}
	for _, name := range []string{"a", "b1", "b2"} {
		if err := w.start(ctx, w.pods[name]); err != nil {
			return err
		}
	}
	for _, name := range []string{"a", "b1", "b2"} {
		if err := w.waitReady(ctx, w.pods[name]); err != nil {
			return err
		}
	}
	return nil
}

// startControlPlane serves ADS and CSRs in the hub's namespace, on istiod's port.
func (w *world) startControlPlane() error {
	l, err := w.topology.Hub().Listen(hubIP + ":15012")
	if err != nil {
		return fmt.Errorf("opening the control plane's port: %w", err)
	}
	w.control, err = meshtest.Start(meshtest.Options{Listener: l, CA: w.ca, Hosts: []string{"istiod.istio-system.svc", hubIP},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	return w.push()
}

func (w *world) stopControlPlane() {
	if w.control != nil {
		w.control.Close()
		w.control = nil
	}
}

// push gives every pod the mesh as it is now.
func (w *world) push() error {
	var errs []error
	for _, p := range w.pods {
		if p.account != "" {
			errs = append(errs, w.control.SetPod(p.ip, &w.mesh))
		}
	}
	return errors.Join(errs...)
}

// start writes the pod's files, sets its redirect rules and starts its sidecar.
func (w *world) start(ctx context.Context, p *pod) error {
	for _, d := range []string{"etc/istio/proxy", "var/lib/istio/data", "var/run/secrets/workload-spiffe-uds"} {
		d = filepath.Join(p.dir, d)
		if err := errors.Join(os.MkdirAll(d, 0o777), os.Chmod(d, 0o777)); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"var/run/secrets/tokens/istio-token":  w.ca.Token(namespace, p.account),
		"var/run/secrets/istio/root-cert.pem": string(w.ca.RootPEM),
		"etc/istio/pod/labels":                fmt.Sprintf("app=%q\nversion=\"v1\"\nservice.istio.io/canonical-name=%q\n", p.account, p.account),
		"etc/istio/pod/annotations":           "istio.io/rev=\"default\"\n",
	} {
		path := filepath.Join(p.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	rules := p.Command(ctx, 0, w.opts.init, "istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "",
		"-b", "*", "-d", "15090,15021,15020", "--log_output_level=default:info")
	if out, err := rules.CombinedOutput(); err != nil {
		return fmt.Errorf("redirect rules of %s: %w: %s", p.name, err, out)
	}
	return w.startSidecar(ctx, p)
}

func (w *world) startSidecar(ctx context.Context, p *pod) error {
	log, err := os.OpenFile(w.log(p), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	c := p.Command(ctx, 1337, w.opts.proxy, "proxy", "sidecar", "--domain", namespace+".svc.cluster.local", "--proxyLogLevel=warning",
		"--proxyComponentLogLevel=misc:error", "--log_output_level=default:info")
	c.Dir, c.Stdout, c.Stderr = p.dir, log, log
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "PILOT_CERT_PROVIDER=istiod", "CA_ADDR=" + hubIP + ":15012", "POD_NAME=" + p.name, "POD_NAMESPACE=" + namespace,
		"INSTANCE_IP=" + p.ip, "SERVICE_ACCOUNT=" + p.account, "HOST_IP=" + hubIP, "ISTIO_CPU_LIMIT=1", "TRUST_DOMAIN=cluster.local",
		`PROXY_CONFIG={"discoveryAddress":"` + hubIP + `:15012"}`, `ISTIO_META_POD_PORTS=[{"containerPort":8080,"protocol":"TCP"}]`,
		"ISTIO_META_APP_CONTAINERS=app", "ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_NODE_NAME=node-1", "ISTIO_META_INTERCEPTION_MODE=REDIRECT",
		"ISTIO_META_WORKLOAD_NAME=" + p.name, "ISTIO_META_MESH_ID=cluster.local",
		"ISTIO_META_OWNER=kubernetes://apis/apps/v1/namespaces/demo/deployments/" + p.name,
	}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return fmt.Errorf("starting the sidecar of %s: %w", p.name, err)
	}
	p.sidecar = c
	return nil
}

func (w *world) log(p *pod) string { return filepath.Join(w.dir, p.name+".log") }

func (w *world) waitReady(ctx context.Context, p *pod) error {
	var last error
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if last = p.ready(ctx); last == nil {
			return nil
		}
	}
	text, _ := os.ReadFile(w.log(p))
	return fmt.Errorf("pod %s is not ready: %w; its log: %s", p.name, last, text[max(0, len(text)-2000):])
}

func (p *pod) ready(ctx context.Context) error {
	res, err := p.client(false).Get("http://" + p.ip + ":15021/healthz/ready")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.Join(errors.New(res.Status), ctx.Err())
	}
	return nil
}

func (w *world) close() error {
	w.stopControlPlane()
	for _, p := range w.pods {
		if p.sidecar != nil {
			_ = p.sidecar.Process.Kill()
			_ = p.sidecar.Wait()
		}
		if p.app != nil {
			p.app.Stop()
		}
	}
	err := w.topology.Close()
	if err == nil {
		err = os.RemoveAll(w.dir)
	}
	return err
}
