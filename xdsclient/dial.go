package xdsclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"sluice/internal/config"
	"sluice/internal/identity"
)

// ClusterDialer dials the static cluster that ads_config names: its first
// endpoint, a socket or pipe, with the cluster's TLS. secrets gives SDS secrets
// by name and may be nil.
func ClusterDialer(static *config.Snapshot, name string, secrets func(string) *config.Secret) (Dialer, error) {
	c := static.Clusters[name]
	if c == nil {
		//lint:ignore ST1005 Envoy's words, which tools look for
		return nil, fmt.Errorf("Unknown gRPC client cluster '%s'", name)
	}
	address, ok := firstEndpoint(c)
	if !ok {
		return nil, fmt.Errorf("cluster '%s' has no endpoint with an address", name)
	}
	return func(ctx context.Context) (*grpc.ClientConn, error) {
		creds := insecure.NewCredentials()
		if c.TLS != nil {
			t, err := clientTLS(c.TLS, secrets)
			if err != nil {
				return nil, fmt.Errorf("TLS of cluster '%s': %w", name, err)
			}
			creds = credentials.NewTLS(t)
		}
		network, target := "tcp", address.String()
		if address.Pipe != "" {
			network, target = "unix", address.Pipe
		}
		return identity.Connect(network, target, creds, grpc.WithAuthority(authority(address)))
	}, nil
}

func firstEndpoint(c *config.Cluster) (config.Address, bool) {
	if c.Load == nil {
		return config.Address{}, false
	}
	for _, l := range c.Load.Localities {
		for _, e := range l.Endpoints {
			return e.Address, true
		}
	}
	return config.Address{}, false
}

func authority(a config.Address) string {
	if a.Pipe != "" {
		return "localhost"
	}
	return a.String()
}

// clientTLS builds a client's TLS from a cluster's.
func clientTLS(u *config.UpstreamTLS, secrets func(string) *config.Secret) (*tls.Config, error) {
	find := func(r config.SecretRef) *config.Secret {
		if r.Inline != nil || secrets == nil {
			return r.Inline
		}
		return secrets(r.Name)
	}
	out := &tls.Config{MinVersion: u.Min, MaxVersion: tls.VersionTLS13, ServerName: u.SNI, NextProtos: []string{"h2"}}
	for _, r := range u.Certificates {
		s := find(r)
		if s == nil || s.Certificate == nil {
			return nil, fmt.Errorf("no certificate %q yet", r.Name)
		}
		out.Certificates = append(out.Certificates, *s.Certificate)
	}
	out.InsecureSkipVerify = true // by name; verify checks chain and SANs as Envoy does
	v := u.Validation
	if v == nil {
		return out, nil
	}
	roots, system, sans := v.Roots, v.SystemRoots, v.SANs
	if v.Ref.Name != "" {
		s := find(v.Ref)
		if s == nil || s.Validation == nil {
			return nil, fmt.Errorf("no validation context %q yet", v.Ref.Name)
		}
		if s.Validation.Roots != nil {
			roots = s.Validation.Roots
		}
		system, sans = system || s.Validation.SystemRoots, append(sans[:len(sans):len(sans)], s.Validation.SANs...)
	}
	switch {
	case roots == nil && !system && len(sans) > 0:
		return nil, errNamesAlone
	case roots == nil && !system:
		return out, nil
	}
	out.VerifyConnection = func(cs tls.ConnectionState) error { return verify(cs, roots, sans) }
	return out, nil
}

func verify(cs tls.ConnectionState, roots *x509.CertPool, sans []config.SANMatch) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the server has no certificate")
	}
	leaf := cs.PeerCertificates[0]
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, c := range cs.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(o); err != nil {
		return err
	}
	if len(sans) == 0 {
		return nil
	}
	for _, m := range sans {
		if sanMatches(leaf, m) {
			return nil
		}
	}
	return errors.New("no subject alternative name of the server matches")
}

func sanMatches(leaf *x509.Certificate, m config.SANMatch) bool {
	var names []string
	if m.Type == config.SANAny || m.Type == config.SANDNS {
		names = append(names, leaf.DNSNames...)
	}
	if m.Type == config.SANAny || m.Type == config.SANURI {
		for _, u := range leaf.URIs {
			names = append(names, u.String())
		}
	}
	for _, n := range names {
		if m.Match.Match(n) {
			return true
		}
	}
	return false
}
