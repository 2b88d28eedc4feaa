package xdsclient_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/meshtest"
	"sluice/xdsclient"
	"sluice/xdsclient/translate"
)

// mount writes a fresh pair, one file after the other as a kubelet doesn't.
func mount(t *testing.T, ca *meshtest.CA, dir string) *x509.Certificate {
	t.Helper()
	c, err := ca.Workload("spiffe://cluster.local/ns/demo/sa/a")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{"key.pem": {Type: "PRIVATE KEY", Bytes: key}, "cert.pem": {Type: "CERTIFICATE", Bytes: c.Certificate[0]}} {
		aside := dir + "/" + name + ".new"
		if err := os.WriteFile(aside, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(aside, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	return c.Leaf
}

func TestRefusedFileOfSecretsEndsTheWait(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"a secret that can't be built": `resources: [{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: own, tls_certificate: {certificate_chain: {inline_string: nothing}, private_key: {inline_string: nothing}}}]`,
		"a file that is no message":    `resources: 5`,
		"a file without the secret":    `resources: []`,
	}
	for rule, bad := range tests {
		t.Run(rule, func(t *testing.T) {
			dir := t.TempDir()
			leaf := mount(t, ca, dir)
			write := func(text string) {
				if err := os.WriteFile(dir+"/sds.yaml", []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(bad)
			r := translate.Default()
			boot, err := r.Bootstrap([]byte(`static_resources: {listeners: [{name: in, address: {socket_address: {address: 127.0.0.1, port_value: 1}}, filter_chains: [{
  filters: [{name: echo, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}],
  transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, common_tls_context: {tls_certificate_sds_secret_configs: [
    {name: own, sds_config: {initial_fetch_timeout: 0s, path_config_source: {path: ` + dir + `/sds.yaml}}}]}}}}]}]}`))
			if err != nil {
				t.Fatal(err)
			}
			rig := &rig{t: t, snaps: make(chan *config.Snapshot, 64)}
			rig.client = xdsclient.New(xdsclient.Options{Static: &boot.Static, Translate: r, Logf: t.Logf, Apply: func(s *config.Snapshot) { rig.snaps <- s }})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- rig.client.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			rig.until("a listener without its secret", func(s *config.Snapshot) bool { return len(s.Listeners) == 1 && s.Secrets["own"] == nil })
			st, err := rig.client.Status(ctx)
			if err != nil || !st.Live || st.Stats["sds.own.update_rejected"] != 1 {
				t.Errorf("live %v, %d refusals, %v", st.Live, st.Stats["sds.own.update_rejected"], err)
			}
			write(`resources: [{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: own, tls_certificate: {certificate_chain: {filename: ` + dir + `/cert.pem}, private_key: {filename: ` + dir + `/key.pem}}}]`)
			rig.until("the secret", func(s *config.Snapshot) bool {
				return s.Secrets["own"] != nil && s.Secrets["own"].Certificate.Leaf.Equal(leaf)
			})
		})
	}
}

func TestEveryRotationOfFileSecretsIsSeen(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	leaf := mount(t, ca, dir)
	pair := `{certificate_chain: {filename: ` + dir + `/cert.pem}, private_key: {filename: ` + dir + `/key.pem}}`
	sds := `resources: [{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: own, tls_certificate: ` + pair + `}]`
	if err := os.WriteFile(dir+"/sds.yaml", []byte(sds), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ secret, name string }{
		"a discovery response in a file": {`{name: own, sds_config: {path_config_source: {path: ` + dir + `/sds.yaml}}}`, "own"},
		"Istio's mounted files by name": {`{name: "file-cert:` + dir + `/cert.pem~` + dir + `/key.pem", sds_config: {api_config_source: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: sds-grpc}}]}}}`,
			"file-cert:" + dir + "/cert.pem~" + dir + "/key.pem"},
	}
	for rule, tt := range tests {
		t.Run(rule, func(t *testing.T) {
			r := translate.Default()
			boot, err := r.Bootstrap([]byte(`static_resources: {listeners: [{name: in, address: {socket_address: {address: 127.0.0.1, port_value: 1}}, filter_chains: [{
  filters: [{name: echo, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}],
  transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, common_tls_context: {tls_certificate_sds_secret_configs: [` + tt.secret + `]}}}}]}]}`))
			if err != nil {
				t.Fatal(err)
			}
			snaps := make(chan *config.Snapshot, 64)
			c := xdsclient.New(xdsclient.Options{Static: &boot.Static, Translate: r, Logf: t.Logf, Apply: func(s *config.Snapshot) { snaps <- s }})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			for range 3 {
				deadline := time.After(5 * time.Second)
				for serves := false; !serves; {
					select {
					case s := <-snaps:
						x := s.Secrets[tt.name]
						serves = len(s.Listeners) == 1 && x != nil && x.Certificate.Leaf.Equal(leaf)
					case <-deadline:
						t.Fatal("the mounted certificate doesn't come")
					}
				}
				leaf = mount(t, ca, dir)
			}
		})
		leaf = mount(t, ca, dir)
	}
}
