package meshtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Build compiles the sidecar into dir, with the race detector if asked.
func Build(ctx context.Context, dir string, race bool) (path string, err error) {
	path = filepath.Join(dir, "proxy")
	args := []string{"build", "-o", path}
	if race {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "sluice/cmd/proxy")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the sidecar: %w: %s", err, out)
	}
	return path, nil
}

// PodOptions say how a sidecar is started.
type PodOptions struct {
	Binary string
	Dir    string // empty: becomes the working folder
	Istiod string // discoveryAddress and CA
	// Root and Token are what the pod has mounted, nil or "" for no such file.
	Root  []byte
	Token string
	IP    string // 127.0.0.1 when empty
	// ProxyConfig and Env come on top of what a pod gets.
	ProxyConfig map[string]any
	Env         []string
}

// Pod is a running sidecar in the role of an injected pod's, on free ports.
type Pod struct {
	Admin, Status, Health, Prometheus int // ports
	cmd                               *exec.Cmd
	log                               Log
	exited                            chan struct{}
	err                               error
}

// Log collects a process's output; it is safe for concurrent use.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String gives what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// FreePorts finds n ports nobody listens on.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// StartPod writes the pod's files and starts `proxy sidecar`.
func StartPod(o PodOptions) (*Pod, error) {
	ports, err := FreePorts(4)
	if err != nil {
		return nil, err
	}
	p := &Pod{Admin: ports[0], Status: ports[1], Health: ports[2], Prometheus: ports[3], exited: make(chan struct{})}
	if o.IP == "" {
		o.IP = "127.0.0.1"
	}
	for name, text := range map[string][]byte{
		"var/run/secrets/tokens/istio-token": []byte(o.Token), "var/run/secrets/istio/root-cert.pem": o.Root,
		"etc/istio/pod/labels": []byte("app=\"a\"\n"), "etc/istio/proxy/.keep": {},
	} {
		path := filepath.Join(o.Dir, name)
		if len(text) == 0 && filepath.Base(name) != ".keep" {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o600)); err != nil {
			return nil, fmt.Errorf("writing the pod's files: %w", err)
		}
	}
	config := map[string]any{"discoveryAddress": o.Istiod, "proxyAdminPort": p.Admin, "statusPort": p.Status}
	for k, v := range o.ProxyConfig {
		config[k] = v
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("writing PROXY_CONFIG: %w", err)
	}
	p.cmd = exec.Command(o.Binary, "sidecar", "--domain", "demo.svc.cluster.local")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = o.Dir, &p.log, &p.log
	p.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "POD_NAME=a", "POD_NAMESPACE=demo", "SERVICE_ACCOUNT=a", "INSTANCE_IP=" + o.IP, "ISTIO_CPU_LIMIT=2",
		"ISTIO_META_CLUSTER_ID=Kubernetes", "PROXY_CONFIG=" + string(text),
		"ENVOY_STATUS_PORT=" + strconv.Itoa(p.Health), "ENVOY_PROMETHEUS_PORT=" + strconv.Itoa(p.Prometheus),
	}, o.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the sidecar: %w", err)
	}
	go func() { // Stop waits for it
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Log gives what the sidecar has written so far.
func (p *Pod) Log() string { return p.log.String() }

// PID is the process's.
func (p *Pod) PID() int { return p.cmd.Process.Pid }

// Signal sends the sidecar a signal.
func (p *Pod) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Wait waits for the sidecar's end, at most d, and gives its exit status.
func (p *Pod) Wait(d time.Duration) (status int, err error) {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(d):
		return 0, fmt.Errorf("still running after %v", d)
	}
}

// Stop kills what still runs.
func (p *Pod) Stop() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}
