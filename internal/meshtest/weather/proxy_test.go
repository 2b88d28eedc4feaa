package weather

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ports of the namespace, which is ours alone. Two proxies have the same
// listeners: the one that the weather is for, and one that the neighbours of no
// one use, to know what the machine does to everybody.
const (
	quickPort, floodPort, streamPort, silentPort, deafPort = 7001, 7002, 7003, 7004, 7005

	subject, control                  = 8000, 9000
	viaAdmin, viaHTTP, viaTCP, viaTLS = 0, 1, 2, 3 // listeners, from those
)

const bootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: %[1]d}}}
static_resources:
  listeners:
  - {name: http, address: {socket_address: {address: 127.0.0.1, port_value: %[2]d}}, filter_chains: [{filters: [%[5]s]}]}
  - name: tcp
    address: {socket_address: {address: 127.0.0.1, port_value: %[3]d}}
    filter_chains: [{filters: [{name: tcp, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: stream}}]}]
  - name: tls
    address: {socket_address: {address: 127.0.0.1, port_value: %[4]d}}
    filter_chains:
    - filters: [%[5]s]
      transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext,
        require_client_certificate: true, common_tls_context: {validation_context: {trusted_ca: {filename: %[6]s}},
        tls_certificates: [{certificate_chain: {filename: %[7]s}, private_key: {filename: %[8]s}}]}}}
  clusters: [%[9]s]
`

const manager = `{name: http, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: h,
      request_headers_timeout: 3s, request_timeout: 4s, codec_type: AUTO,
      route_config: {virtual_hosts: [{name: v, domains: ["*"], routes: [
        {match: {prefix: /flood}, route: {cluster: flood, timeout: 0s}},
        {match: {prefix: /silent}, route: {cluster: silent, timeout: 1s}},
        {match: {prefix: /patience}, route: {cluster: silent, timeout: 0s}},
        {match: {prefix: /deaf}, route: {cluster: deaf, timeout: 0s}},
        {match: {prefix: /}, route: {cluster: quick}}]}]},
      http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}`

const cluster = `{name: %[1]s, type: STATIC, circuit_breakers: {thresholds: [{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}]},
    load_assignment: {cluster_name: %[1]s, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %[2]d}}}}]}]}}`

func configuration(base int) string {
	var clusters []string
	for name, port := range map[string]int{"quick": quickPort, "flood": floodPort, "stream": streamPort, "silent": silentPort, "deaf": deafPort} {
		clusters = append(clusters, fmt.Sprintf(cluster, name, port))
	}
	return fmt.Sprintf(bootstrap, base+viaAdmin, base+viaHTTP, base+viaTCP, base+viaTLS, manager,
		folder("ca.pem"), folder("server.pem"), folder("server.key"), strings.Join(clusters, ",\n"))
}

// proxy is a process with one worker: whoever stalls it stalls everyone.
type proxy struct {
	t    *testing.T
	base int
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// startProxy starts ours, or the Envoy at a path.
func startProxy(t *testing.T, envoy string, base int) *proxy {
	p := &proxy{t: t, base: base}
	args := []string{"--config-yaml", configuration(base), "--concurrency", "1", "-l", "warning"}
	if envoy == "" {
		p.cmd = exec.Command(folder("proxy"), args...)
	} else {
		p.cmd = exec.Command(envoy, append(args, "--disable-hot-restart")...)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	for range 200 {
		if _, err := p.page("/ready"); err == nil {
			return p
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the proxy doesn't become ready")
	return nil
}

func (p *proxy) stop() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
	if p.log.Len() > 0 {
		log := p.log.String()
		p.t.Logf("the proxy says:\n%s", log[max(0, len(log)-2000):])
	}
}

// page fetches an administration page.
func (p *proxy) page(path string) (string, error) {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get("http://127.0.0.1:" + strconv.Itoa(p.base+viaAdmin) + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", path, res.Status)
	}
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

// stats are the numbers of /stats.
func (p *proxy) stats() map[string]int {
	p.t.Helper()
	text, err := p.page("/stats")
	if err != nil {
		p.t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(text) {
		if name, v, ok := cutTrim(line, ": "); ok {
			out[name], _ = strconv.Atoi(v)
		}
	}
	return out
}

// anonymous is the memory that only this process has, in bytes: heap, stacks and
// the runtime's own.
func (p *proxy) anonymous() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, v, ok := cutTrim(line, ":"); ok && name == "RssAnon" {
			kb, _ := strconv.Atoi(strings.TrimSuffix(v, " kB"))
			return kb << 10
		}
	}
	return 0
}

// waited is how long the worker was ready to run and didn't: its thread, which is
// the one that ran most, and the machine as a whole while its host ran others.
func (p *proxy) waited() (d time.Duration) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	var most time.Duration
	for _, path := range tasks {
		text, _ := os.ReadFile(path) // a thread may have ended
		var ran, waited time.Duration
		fmt.Sscan(string(text), &ran, &waited)
		if ran > most {
			most, d = ran, waited
		}
	}
	return d + stolen()/time.Duration(runtime.NumCPU())
}

// stolen is the time of all processors that the host of a virtual machine gave to
// others.
func stolen() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	var user, nice, system, idle, wait, irq, soft, steal time.Duration
	fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal)
	return steal * 10 * time.Millisecond // of USER_HZ
}

func cutTrim(line, sep string) (before, after string, ok bool) {
	before, after, ok = strings.Cut(line, sep)
	return strings.TrimSpace(before), strings.TrimSpace(after), ok
}
