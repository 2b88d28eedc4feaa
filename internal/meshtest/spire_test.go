package meshtest_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice/internal/meshtest"
	"sluice/xdsclient/translate"
)

// spire is a SPIRE agent in miniature: it gives each secret that is asked for once.
type spire struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	secrets map[string]string // YAML by name
}

func (s *spire) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.GetResponseNonce() != "" {
			continue
		}
		out := &discovery.DiscoveryResponse{TypeUrl: r.GetTypeUrl(), VersionInfo: "1", Nonce: "1"}
		for _, name := range r.GetResourceNames() {
			var m tlsv3.Secret
			if err := translate.Message([]byte(s.secrets[name]), &m, false); err != nil {
				return err
			}
			x, err := anypb.New(&m)
			if err != nil {
				return err
			}
			out.Resources = append(out.Resources, x)
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

// TestSPIRE: a socket that somebody serves already, where pilot-agent would make
// its own, has the certificates; istiod's CA isn't asked.
func TestSPIRE(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	plane, _ := smallMesh(t, ca)
	const id = "spiffe://spire.example/ns/demo/sa/a"
	c, err := other.Workload(id)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, b []byte) string {
		return fmt.Sprintf("{inline_string: %q}", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	s := &spire{secrets: map[string]string{
		"default": "{name: default, tls_certificate: {certificate_chain: " + text("CERTIFICATE", c.Certificate[0]) + ", private_key: " + text("PRIVATE KEY", key) + "}}",
		"ROOTCA":  fmt.Sprintf("{name: ROOTCA, validation_context: {trusted_ca: {inline_string: %q}}}", other.RootPEM),
	}}
	dir := t.TempDir()
	socket := dir + "/var/run/secrets/workload-spiffe-uds"
	if err := os.MkdirAll(socket, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, s)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	p := startPod(t, meshtest.PodOptions{Dir: dir, Istiod: plane.Address, Root: ca.RootPEM, Token: "good"})
	eventually(t, p.Health, "/healthz/ready", 200)
	eventually(t, p.Admin, "/certs", 200, id)
	if n := plane.NACKs(); len(n) > 0 {
		t.Errorf("refused: %s", n[0])
	}
}
