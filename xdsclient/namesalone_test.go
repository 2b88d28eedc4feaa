package xdsclient_test

import (
	"crypto/x509"
	"net/netip"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"sluice/internal/config"
	"sluice/internal/meshtest"
	"sluice/xdsclient"
)

// TestAValidationSecretWithoutACAIsRefusedWhereNamesAreChecked, and the good one serves on.
func TestAValidationSecretWithoutACAIsRefusedWhereNamesAreChecked(t *testing.T) {
	ca, err := meshtest.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	names := `, default_validation_context: {match_typed_subject_alt_names: [{san_type: URI, matcher: {exact: "spiffe://a/b"}}]}`
	trusted := "{name: roots, validation_context: {trusted_ca: {inline_string: \"" + strings.ReplaceAll(string(ca.RootPEM), "\n", `\n`) + "\"}}}"
	for _, c := range []struct {
		rule, names, second string
		refused             bool
	}{
		{"names in the context, nothing in the secret", names, `{name: roots, validation_context: {}}`, true},
		{"names in the secret alone", `, default_validation_context: {}`, `{name: roots, validation_context: {match_typed_subject_alt_names: [{san_type: URI, matcher: {exact: "spiffe://a/b"}}]}}`, true},
		{"nobody checks names", `, default_validation_context: {}`, `{name: roots, validation_context: {}}`, false},
		{"the system's roots", names, `{name: roots, validation_context: {system_root_certs: {}}}`, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r := start(t, true)
			secrets := func(text string) meshtest.Resources {
				res := whole(t, 1001)
				res.Clusters = append(res.Clusters, message(t, &clusterv3.Cluster{}, `{name: secure, connect_timeout: 1s, type: STATIC, load_assignment: {cluster_name: secure},
  transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
    common_tls_context: {combined_validation_context: {validation_context_sds_secret_config: {name: roots, sds_config: {ads: {}, resource_api_version: V3}}`+c.names+`}}}}}`))
				res.Secrets = []types.Resource{message(t, &tlsv3.Secret{}, text)}
				return res
			}
			r.set("1", secrets(trusted))
			good := r.until("roots", func(s *config.Snapshot) bool { return s.Secrets["roots"] != nil }).Secrets["roots"]
			r.set("2", secrets(c.second))
			if !c.refused {
				r.until("the second secret", func(s *config.Snapshot) bool { return s.Secrets["roots"] != good })
				return
			}
			for end := time.Now().Add(5 * time.Second); len(r.plane.NACKs()) == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			}
			if nacks := strings.Join(r.plane.NACKs(), "\n"); !strings.Contains(nacks, "SAN-based verification of peer certificates without trusted CA is insecure") {
				t.Errorf("NACK: %q", nacks)
			}
			if s := r.lastSnapshot(); s != nil && s.Secrets["roots"] != good {
				t.Error("the good secret doesn't serve on")
			}
		})
	}
}

// lastSnapshot is the newest that came, nil for none.
func (r *rig) lastSnapshot() (last *config.Snapshot) {
	for {
		select {
		case s := <-r.snaps:
			last = s
		default:
			return last
		}
	}
}

func TestNoControlPlaneIsTakenByItsNameAlone(t *testing.T) {
	at := config.Address{IP: netip.MustParseAddrPort("127.0.0.1:1")}
	u := &config.UpstreamTLS{TLSParams: config.TLSParams{Validation: &config.Validation{Ref: config.SecretRef{Name: "roots"}, SANs: []config.SANMatch{{Match: config.StringMatch{Value: "istiod"}}}}}}
	c := &config.Cluster{TLS: u, Load: &config.LoadAssignment{Localities: []config.Locality{{Endpoints: []config.Endpoint{{Address: at}}}}}}
	for rule, x := range map[string]struct {
		roots *config.Validation
		want  string
	}{
		"nothing":            {&config.Validation{}, "without trusted CA is insecure"},
		"the system's roots": {&config.Validation{SystemRoots: true}, ""},
		"a CA":               {&config.Validation{Roots: x509.NewCertPool()}, ""},
	} {
		dial, err := xdsclient.ClusterDialer(&config.Snapshot{Clusters: map[string]*config.Cluster{"xds": c}}, "xds", func(string) *config.Secret { return &config.Secret{Validation: x.roots} })
		if err != nil {
			t.Fatal(err)
		}
		conn, err := dial(t.Context())
		if err == nil {
			conn.Close()
		}
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
