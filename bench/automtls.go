package main

import (
	"fmt"
	"os"
	"path/filepath"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rawv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Istio's automatic mTLS: every cluster has a TLS context for endpoints that say
// so in their metadata, and secrets by name. The endpoints that are asked don't
// say so; the others' contexts are only carried, as most are in a mesh.

const sds = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

func socketMatches(host string) ([]*clusterv3.Cluster_TransportSocketMatch, error) {
	secure, err := socket("envoy.transport_sockets.tls", upstreamTLS(host))
	if err != nil {
		return nil, err
	}
	raw, err := socket("envoy.transport_sockets.raw_buffer", &rawv3.RawBuffer{})
	if err != nil {
		return nil, err
	}
	return []*clusterv3.Cluster_TransportSocketMatch{
		{Name: "tlsMode-istio", Match: text("tlsMode", "istio"), TransportSocket: secure},
		{Name: "tlsMode-disabled", Match: &structpb.Struct{}, TransportSocket: raw},
	}, nil
}

func socket(name string, m proto.Message) (*corev3.TransportSocket, error) {
	a, err := packed(m)
	return &corev3.TransportSocket{Name: name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: a}}, err
}

func upstreamTLS(host string) proto.Message {
	secret := func(name string) *tlsv3.SdsSecretConfig {
		return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: fromADS()}
	}
	peer := &tlsv3.SubjectAltNameMatcher{SanType: tlsv3.SubjectAltNameMatcher_URI, Matcher: &matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "spiffe://cluster.local/ns/bench/sa/" + host}}}
	return &tlsv3.UpstreamTlsContext{Sni: "outbound_.8080_._." + host, CommonTlsContext: &tlsv3.CommonTlsContext{
		AlpnProtocols:                  []string{"istio-peer-exchange", "istio"},
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{secret("default")},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{peer}},
			ValidationContextSdsSecretConfig: secret("ROOTCA"),
		}},
	}}
}

// meshed is the metadata that istiod gives an endpoint of a meshed workload.
func meshed(host string) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"envoy.transport_socket_match": text("tlsMode", "istio"),
		"istio":                        text("workload", fmt.Sprintf("%s;bench;%s;v1;Kubernetes", host, host)),
	}}
}

func text(key, value string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewStringValue(value)}}
}

// putSecrets gives the two secrets that the contexts name.
func putSecrets(s *adsServer, dir string) error {
	var files [3]*corev3.DataSource
	for i, name := range []string{"client.pem", "client.key", "ca.pem"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("a secret for the mesh: %w", err)
		}
		files[i] = &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	own := &tlsv3.Secret{Name: "default", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: files[0], PrivateKey: files[1]}}}
	if err := s.put(sds, own.Name, own); err != nil {
		return err
	}
	root := &tlsv3.Secret{Name: "ROOTCA", Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: files[2]}}}
	return s.put(sds, root.Name, root)
}
