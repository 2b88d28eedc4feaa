package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// probeBodyLimit is how much of an application's probe answer is passed on.
const probeBodyLimit = 10 << 10

// appProbe is one rewritten probe of ISTIO_KUBE_APP_PROBERS: the kubelet asks
// us under its key, and we ask the application what the pod's author wrote.
type appProbe struct {
	HTTPGet *struct {
		Path        string                         `json:"path"`
		Port        json.RawMessage                `json:"port"`
		Host        string                         `json:"host"`
		Scheme      string                         `json:"scheme"`
		HTTPHeaders []struct{ Name, Value string } `json:"httpHeaders"`
	} `json:"httpGet"`
	TCPSocket *struct {
		Port json.RawMessage `json:"port"`
		Host string          `json:"host"`
	} `json:"tcpSocket"`
	GRPC *struct {
		Port    int32   `json:"port"`
		Service *string `json:"service"`
	} `json:"grpc"`
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// Probes answers /app-health/ and /app-lifecycle/. Pod is the address that is
// probed when a probe names no host.
type Probes struct {
	byPath map[string]appProbe
	pod    netip.Addr
}

// NewProbes parses ISTIO_KUBE_APP_PROBERS ("" gives none). legacyLocalhost
// probes 127.0.0.1 as old releases did.
func NewProbes(text string, pod netip.Addr, legacyLocalhost bool) (*Probes, error) {
	p := &Probes{pod: pod}
	if legacyLocalhost {
		p.pod = netip.MustParseAddr("127.0.0.1")
	}
	if text == "" {
		return p, nil
	}
	if err := json.Unmarshal([]byte(text), &p.byPath); err != nil {
		return nil, fmt.Errorf("parsing ISTIO_KUBE_APP_PROBERS: %w", err)
	}
	for path, probe := range p.byPath {
		if probe.HTTPGet == nil && probe.TCPSocket == nil && probe.GRPC == nil {
			return nil, fmt.Errorf("ISTIO_KUBE_APP_PROBERS: %s: one of httpGet, tcpSocket, grpc must be set", path)
		}
	}
	return p, nil
}

func (p *Probes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	probe, ok := p.byPath[req.URL.Path]
	if !ok {
		http.Error(w, "no probe of this pod has the path "+strconv.Quote(req.URL.Path), http.StatusBadRequest)
		return
	}
	timeout := time.Duration(max(probe.TimeoutSeconds, 1)) * time.Second
	ctx, cancel := context.WithTimeout(req.Context(), timeout)
	defer cancel()
	var err error
	switch {
	case probe.HTTPGet != nil:
		err = p.httpGet(ctx, w, req, probe)
	case probe.TCPSocket != nil:
		err = p.tcp(ctx, probe)
	default:
		err = p.grpc(ctx, probe)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (p *Probes) host(named string) string {
	if named != "" {
		return named
	}
	return p.pod.String()
}

// dialer leaves from the inbound bind address, which the redirect rules let
// pass: the probe must reach the application, not the sidecar again.
func (p *Probes) dialer() *net.Dialer {
	from := "127.0.0.6"
	if p.pod.Is6() && !p.pod.Is4In6() {
		from = "::6"
	}
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
}

func portOf(raw json.RawMessage) (string, error) {
	text := strings.Trim(string(raw), `"`)
	if n, err := strconv.ParseUint(text, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("probe port %s is not a number from 1 to 65535", raw)
	}
	return text, nil
}

func (p *Probes) httpGet(ctx context.Context, w http.ResponseWriter, in *http.Request, probe appProbe) error {
	port, err := portOf(probe.HTTPGet.Port)
	if err != nil {
		return err
	}
	scheme := strings.ToLower(probe.HTTPGet.Scheme)
	if scheme == "" {
		scheme = "http"
	}
	path := probe.HTTPGet.Path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(p.host(""), port)+path, nil)
	if err != nil {
		return fmt.Errorf("building the probe request: %w", err)
	}
	out.Header = in.Header.Clone()
	out.Header.Del("Connection")
	for _, h := range probe.HTTPGet.HTTPHeaders {
		if strings.EqualFold(h.Name, "host") {
			out.Host = h.Value
			continue
		}
		out.Header.Set(h.Name, h.Value)
	}
	if out.Host == out.URL.Host && probe.HTTPGet.Host != "" {
		out.Host = probe.HTTPGet.Host
	}
	res, err := p.client().Do(out)
	if err != nil {
		return fmt.Errorf("probing the application: %w", err)
	}
	defer res.Body.Close()
	status := res.StatusCode
	if status >= 300 && status < 400 {
		status = http.StatusOK // the kubelet counts a redirect as success
	}
	w.WriteHeader(status)
	_, _ = io.Copy(w, io.LimitReader(res.Body, probeBodyLimit))
	return nil
}

// client makes a connection for one probe and closes it: kept connections pile
// up in applications that never time them out.
func (p *Probes) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       p.dialer().DialContext,
			DisableKeepAlives: true,
			// As the kubelet does: a probe asks for life, not for identity.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}

func (p *Probes) tcp(ctx context.Context, probe appProbe) error {
	port, err := portOf(probe.TCPSocket.Port)
	if err != nil {
		return err
	}
	c, err := p.dialer().DialContext(ctx, "tcp", net.JoinHostPort(p.host(probe.TCPSocket.Host), port))
	if err != nil {
		return fmt.Errorf("probing the application: %w", err)
	}
	return c.Close()
}

func (p *Probes) grpc(ctx context.Context, probe appProbe) error {
	target := net.JoinHostPort(p.host(""), strconv.Itoa(int(probe.GRPC.Port)))
	d := p.dialer()
	cc, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }))
	if err != nil {
		return fmt.Errorf("probing the application: %w", err)
	}
	defer cc.Close()
	req := &healthpb.HealthCheckRequest{}
	if probe.GRPC.Service != nil {
		req.Service = *probe.GRPC.Service
	}
	res, err := healthpb.NewHealthClient(cc).Check(ctx, req)
	if err != nil {
		return fmt.Errorf("probing the application: %w", err)
	}
	if res.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("the application's gRPC health is %s", res.Status)
	}
	return nil
}
