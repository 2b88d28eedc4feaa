package xdsclient_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice/internal/config"
	"sluice/internal/meshtest"
	"sluice/xdsclient"
	"sluice/xdsclient/translate"
)

// secretServer answers SDS for one secret, as a SPIRE agent does.
type secretServer struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	socket  string
	mu      sync.Mutex
	server  *grpc.Server
	secret  *anypb.Any
	changed chan struct{}
	asked   chan *discovery.DiscoveryRequest
}

func (s *secretServer) set(secret *anypb.Any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret = secret
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *secretServer) now() (*anypb.Any, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secret, s.changed
}

func (s *secretServer) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	for n := 1; ; n++ {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		s.asked <- r
		secret, changed := s.now()
		if n > 1 {
			select {
			case <-changed:
				secret, _ = s.now()
			case <-stream.Context().Done():
				return nil
			}
		}
		err = stream.Send(&discovery.DiscoveryResponse{TypeUrl: translate.SecretURL, VersionInfo: fmt.Sprint("v", n), Nonce: fmt.Sprint("n", n),
			Resources: []*anypb.Any{secret}})
		if err != nil {
			return err
		}
	}
}

func (s *secretServer) up(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	s.server = grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(s.server, s)
	go s.server.Serve(l)
	t.Cleanup(s.server.Stop)
}

// request gives the next request, with the node's id, the version, and the error.
func (s *secretServer) request(t *testing.T) string {
	t.Helper()
	select {
	case r := <-s.asked:
		return fmt.Sprintf("%s of %s at %q: %s", strings.Join(r.GetResourceNames(), " "), r.GetNode().GetId(), r.GetVersionInfo(), r.GetErrorDetail().GetMessage())
	case <-time.After(5 * time.Second):
		t.Fatal("no request")
		return ""
	}
}

func own(t *testing.T, ca *meshtest.CA) (*anypb.Any, *x509.Certificate) {
	t.Helper()
	c, err := ca.Workload("spiffe://cluster.local/ns/demo/sa/a")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	s := message(t, &tlsv3.Secret{}, fmt.Sprintf(`{name: own, tls_certificate: {certificate_chain: {inline_string: %q}, private_key: {inline_string: %q}}}`,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	x, err := anypb.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return x, c.Leaf
}

// fromServer runs a listener whose certificate comes from a server of secrets.
func fromServer(t *testing.T, first *anypb.Any) (*secretServer, chan *config.Snapshot) {
	t.Helper()
	s := &secretServer{socket: t.TempDir() + "/sds", secret: first, changed: make(chan struct{}), asked: make(chan *discovery.DiscoveryRequest, 16)}
	s.up(t)
	boot, err := translate.Default().Bootstrap([]byte(`static_resources:
  clusters: [{name: spire, type: STATIC, typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {http2_protocol_options: {}}}},
    load_assignment: {cluster_name: spire, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: ` + s.socket + `}}}}]}]}}]
  listeners: [{name: in, address: {socket_address: {address: 127.0.0.1, port_value: 1}}, filter_chains: [{filters: [{name: e, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}],
    transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, common_tls_context: {tls_certificate_sds_secret_configs: [
      {name: own, sds_config: {resource_api_version: V3, api_config_source: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: spire}}]}}}]}}}}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	snaps := make(chan *config.Snapshot, 64)
	client := xdsclient.New(xdsclient.Options{Node: config.Node{ID: "n"}, Static: &boot.Static, Translate: translate.Default(), Logf: t.Logf,
		Apply: func(s *config.Snapshot) { snaps <- s }})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { client.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return s, snaps
}

// within takes snapshots until one fits.
func within(t *testing.T, snaps chan *config.Snapshot, what string, fits func(*config.Snapshot) bool) {
	t.Helper()
	for deadline := time.After(5 * time.Second); ; {
		select {
		case s := <-snaps:
			if fits(s) {
				return
			}
		case <-deadline:
			t.Fatalf("%s: it didn't come", what)
		}
	}
}

func broken(t *testing.T) *anypb.Any {
	t.Helper()
	b, err := anypb.New(message(t, &tlsv3.Secret{}, `{name: own, tls_certificate: {certificate_chain: {inline_string: "no"}, private_key: {inline_string: "no"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRefusedFirstSecretOfAServerEndsTheWait(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	s, snaps := fromServer(t, broken(t))
	within(t, snaps, "a listener without its secret", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 && s.Secrets["own"] == nil })
	for range 2 { // it asks, and refuses
		s.request(t)
	}
	good, leaf := own(t, ca)
	s.set(good)
	within(t, snaps, "the secret", func(s *config.Snapshot) bool {
		return s.Secrets["own"] != nil && s.Secrets["own"].Certificate.Leaf.Equal(leaf)
	})
}

func TestSecretsComeFromAServerOfTheirOwn(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	first, leaf := own(t, ca)
	s, snaps := fromServer(t, first)
	holds := func(what string, want *x509.Certificate) {
		t.Helper()
		within(t, snaps, what, func(x *config.Snapshot) bool {
			v := x.Secrets["own"]
			return v != nil && v.Certificate.Leaf.Equal(want)
		})
	}
	says := func(want string) {
		t.Helper()
		if got := s.request(t); !strings.HasPrefix(got, want) {
			t.Fatalf("asked %q, want %q", got, want)
		}
	}
	says(`own of n at "": `)
	holds("at the start", leaf)
	says(`own of  at "v1": `)

	s.set(broken(t))
	says(`own of  at "v1": tls_certificate`)

	second, leaf := own(t, ca)
	s.set(second)
	holds("after a rotation", leaf)
	says(`own of  at "v3": `)

	s.server.Stop()
	third, leaf := own(t, ca)
	s.set(third)
	s.up(t)
	holds("after the server was away", leaf)
}
