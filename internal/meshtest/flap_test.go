package meshtest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/internal/meshtest"
	"sluice/internal/meshtest/podconfig"
)

const (
	flapTime  = 5 * time.Second
	flapEvery = 40 * time.Millisecond
)

// flapping is a proxy under load whose whole configuration changes all the time.
type flapping struct {
	t        *testing.T
	plane    *meshtest.Plane
	backends []string // host:port
	ports    []int    // plain, TLS
	secrets  []*tls.Certificate
	log      meshtest.Log

	mu     sync.Mutex
	failed []string
	done   atomic.Int64 // requests
}

func (f *flapping) fail(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, fmt.Sprintf(format, args...))
}

// TestNoPushEverFailsARequest is the standing test of pushes: clusters,
// endpoints, routes, listeners and secrets change 25 times a second under
// HTTP/1.1 and HTTP/2 traffic, with the race detector on.
func TestNoPushEverFailsARequest(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the proxy with the race detector")
	}
	f := newFlapping(t)
	stop := f.start()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), flapTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, client := range f.clients() {
		wg.Go(func() { f.load(ctx, client) })
	}
	wg.Go(func() { f.scrape(ctx) })
	version := 1
	for tick := time.NewTicker(flapEvery); ctx.Err() == nil; {
		select {
		case <-tick.C:
			version++
			f.push(version)
		case <-ctx.Done():
			tick.Stop()
		}
	}
	wg.Wait()
	f.judge(version)
}

// scrape reads what operators read, all the time.
func (f *flapping) scrape(ctx context.Context) {
	for ctx.Err() == nil {
		for _, page := range []string{"/stats", "/stats/prometheus", "/config_dump?include_eds", "/clusters?format=json", "/listeners", "/certs", "/init_dump"} {
			if code, body := get(f.ports[2], page); code != http.StatusOK {
				f.fail("%s: %d %.200s", page, code, body)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func newFlapping(t *testing.T) *flapping {
	f := &flapping{t: t, plane: startPlane(t, meshtest.Options{})}
	for i := range 3 {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				f.fail("backend %d: request of %s: %v", i, r.Proto, err)
			}
			time.Sleep(3 * time.Millisecond)
			_, _ = io.WriteString(w, strings.Repeat("b", 2000))
		}))
		s.Config.Protocols = protocols(true, true)
		s.Start()
		t.Cleanup(s.Close)
		f.backends = append(f.backends, strings.TrimPrefix(s.URL, "http://"))
	}
	ca := newCA(t)
	for range 2 {
		c, err := ca.Server("flap.test")
		if err != nil {
			t.Fatal(err)
		}
		f.secrets = append(f.secrets, c)
	}
	var err error
	if f.ports, err = meshtest.FreePorts(3); err != nil {
		t.Fatal(err)
	}
	return f
}

// protocols are HTTP/1.1 if it may be, and HTTP/2, without TLS or with.
func protocols(one, plain bool) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(one)
	p.SetHTTP2(!plain)
	p.SetUnencryptedHTTP2(plain)
	return p
}

const flapBootstrap = `
node: {id: one, cluster: two}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}
dynamic_resources:
  ads_config: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}
  cds_config: {ads: {}, resource_api_version: V3}
  lds_config: {ads: {}, resource_api_version: V3}
static_resources:
  clusters:
  - name: xds
    connect_timeout: 5s
    load_assignment: {cluster_name: xds, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}}]}]}
`

// start runs the proxy until the function it returns is called.
func (f *flapping) start() (stop func()) {
	binary, err := binaries.race()
	if err != nil {
		f.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(f.plane.Address)
	file := f.t.TempDir() + "/bootstrap.yaml"
	if err := os.WriteFile(file, fmt.Appendf(nil, flapBootstrap, f.ports[2], port), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.push(1)
	c := exec.Command(binary, "-c", file, "--concurrency", "2", "--drain-time-s", "3", "--drain-strategy", "immediate")
	c.Stdout, c.Stderr = &f.log, &f.log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, f.ports[2], "/ready", 200)
	for _, p := range f.ports[:2] {
		for range 200 {
			x, err := net.Dial("tcp", "127.0.0.1:"+itoa(p))
			if err == nil {
				x.Close()
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
		if strings.Contains(f.log.String(), "DATA RACE") {
			f.t.Errorf("a race:\n%s", f.log.String()[strings.Index(f.log.String(), "WARNING: DATA RACE"):])
		}
	}
}

type flapClient struct {
	name   string
	client *http.Client
	url    string
	fresh  *atomic.Int64 // connections it made
}

func (f *flapping) clients() []flapClient {
	insecure := &tls.Config{InsecureSkipVerify: true, ServerName: "flap.test"}
	plain, secure := "http://127.0.0.1:"+itoa(f.ports[0]), "https://127.0.0.1:"+itoa(f.ports[1])
	two := insecure.Clone()
	two.ServerName = "stays.test"
	list := []flapClient{
		{name: "HTTP/1.1", url: plain, client: &http.Client{Transport: &http.Transport{}}},
		{name: "HTTP/1.1, a connection a request", url: plain, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}},
		{name: "HTTP/2", url: plain, client: &http.Client{Transport: &http.Transport{Protocols: protocols(false, true)}}},
		{name: "HTTP/1.1 over TLS, a connection a request", url: secure, client: &http.Client{Transport: &http.Transport{TLSClientConfig: insecure.Clone(), DisableKeepAlives: true}}},
		{name: "HTTP/2 over TLS", url: secure, client: &http.Client{Transport: &http.Transport{TLSClientConfig: insecure.Clone(), Protocols: protocols(false, false)}}},
		{name: steady, url: secure, client: &http.Client{Transport: &http.Transport{TLSClientConfig: two}}},
	}
	for i := range list {
		list[i].client.Timeout = 10 * time.Second
		list[i].fresh = &atomic.Int64{}
	}
	return list
}

// steady is the client whose filter chain no push changes.
const steady = "HTTP/1.1 on the chain that stays"

// load posts without a break. A POST is never sent twice by the client, so that
// every broken connection shows.
func (f *flapping) load(ctx context.Context, c flapClient) {
	trace := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			c.fresh.Add(1)
		}
	}})
	body := bytes.Repeat([]byte("q"), 500)
	for n := 0; ctx.Err() == nil; n++ {
		if err := once(trace, c, body); err != nil {
			f.fail("%s, request %d: %v", c.name, n, err)
		}
		f.done.Add(1)
	}
	if n := c.fresh.Load(); c.name == steady && n != 1 {
		f.fail("%s: %d connections; its chain never changed, so one should do", c.name, n)
	}
}

// sending is a body that the client may begin anew only while none of it is sent:
// it does so when the connection it chose was told to go away just then. Later a
// new try would hide a failure.
type sending struct {
	from  io.Reader
	begun atomic.Bool
}

func (s *sending) Read(p []byte) (int, error) {
	s.begun.Store(true)
	return s.from.Read(p)
}

func (s *sending) again() (io.ReadCloser, error) {
	if s.begun.Load() {
		return nil, errors.New("a request failed after its content was sent")
	}
	return io.NopCloser(s), nil
}

func once(ctx context.Context, c flapClient, body []byte) error {
	sent := &sending{from: bytes.NewReader(body)}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/", sent)
	if err != nil {
		return err
	}
	q.ContentLength, q.GetBody = int64(len(body)), sent.again
	res, err := c.client.Do(q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, b)
	}
	if err == nil && len(b) != 2000 {
		err = errors.New("a cut answer")
	}
	return err
}

// judge reads what happened.
func (f *flapping) judge(version int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, x := range f.failed {
		if i == 20 {
			f.t.Errorf("and %d more", len(f.failed)-i)
			break
		}
		f.t.Error(x)
	}
	if n := f.plane.NACKs(); len(n) > 0 {
		f.t.Errorf("%d refusals, such as %s", len(n), n[0])
	}
	taken := f.stat("listener_manager.lds.update_success")
	f.t.Logf("%d requests, %d pushes, %d taken", f.done.Load(), version, taken)
	if n := f.done.Load(); n < 500 {
		f.t.Errorf("only %d requests were made", n)
	}
	if taken < version/4 {
		f.t.Errorf("only %d of %d pushes of listeners were taken", taken, version)
	}
}

func (f *flapping) stat(name string) int {
	_, body := get(f.ports[2], "/stats?filter=^"+name+"$")
	_, v, _ := strings.Cut(strings.TrimSpace(body), ": ")
	n, _ := strconv.Atoi(v)
	return n
}

type doc = map[string]any

// push makes version n of everything.
func (f *flapping) push(n int) {
	var docs podconfig.Resources
	for i, name := range []string{"a", "b"} {
		c := doc{"name": name, "type": "EDS", "connect_timeout": itoa(5+n/3%2) + "s", "eds_cluster_config": doc{"eds_config": ads}}
		if i == 1 {
			c["typed_extension_protocol_options"] = doc{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": doc{
				"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": doc{"http2_protocol_options": doc{}}}}
		}
		docs.Clusters = append(docs.Clusters, c)
		var hosts []any
		for j, b := range f.backends {
			if (n+i)%len(f.backends) == j {
				continue // one is always missing
			}
			host, port, _ := net.SplitHostPort(b)
			number, _ := strconv.Atoi(port)
			hosts = append(hosts, doc{"endpoint": doc{"address": doc{"socket_address": doc{"address": host, "port_value": number}}}})
		}
		docs.Endpoints = append(docs.Endpoints, doc{"cluster_name": name, "endpoints": []any{doc{"lb_endpoints": hosts}}})
	}
	docs.Routes = []map[string]any{{"name": "r", "virtual_hosts": []any{doc{"name": "v" + itoa(n), "domains": []any{"*"}, "routes": []any{
		doc{"match": doc{"prefix": "/"}, "route": doc{"cluster": []string{"a", "b"}[n%2], "timeout": itoa(20+n%5) + "s"}}}}}}}
	plain := manager("plain" + itoa(n%2))
	plain["name"] = "plain"
	docs.Listeners = []map[string]any{
		{"name": "plain", "address": at(f.ports[0]), "filter_chains": []any{doc{"filters": []any{plain}}}},
		{"name": "secure", "address": at(f.ports[1]), "listener_filters": []any{doc{"name": "tls", "typed_config": doc{
			"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"}}},
			"filter_chains": []any{
				doc{"name": "stays", "filter_chain_match": doc{"server_names": []any{"stays.test"}}, "filters": []any{manager("stays")}, "transport_socket": downstreamTLS()},
				doc{"name": "changes", "filters": []any{manager("secure" + itoa(n%3))}, "transport_socket": downstreamTLS()},
			}},
	}
	r, err := meshtest.Decode(docs)
	if err == nil {
		r.Secrets, err = meshtest.Secrets(doc{"name": "cert", "tls_certificate": pair(f.secrets[n/2%2])})
	}
	if err == nil {
		err = f.plane.Set(itoa(n), r)
	}
	if err != nil {
		f.fail("push %d: %v", n, err)
	}
}

var ads = doc{"ads": doc{}, "resource_api_version": "V3"}

func at(port int) doc {
	return doc{"socket_address": doc{"address": "127.0.0.1", "port_value": port}}
}

func manager(prefix string) doc {
	return doc{"name": "hcm", "typed_config": doc{
		"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": prefix, "rds": doc{"route_config_name": "r", "config_source": ads},
		"http_filters": []any{doc{"name": "router", "typed_config": doc{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}},
	}}
}

func downstreamTLS() doc {
	return doc{"name": "tls", "typed_config": doc{
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
		"common_tls_context": doc{"alpn_protocols": []any{"h2", "http/1.1"},
			"tls_certificate_sds_secret_configs": []any{doc{"name": "cert", "sds_config": ads}}},
	}}
}

// pair is a certificate and its key as a secret has them.
func pair(c *tls.Certificate) doc {
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		panic(err) // a key that was just made
	}
	text := func(kind string, der []byte) doc {
		return doc{"inline_string": string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))}
	}
	return doc{"certificate_chain": text("CERTIFICATE", c.Certificate[0]), "private_key": text("PRIVATE KEY", key)}
}
