//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"crypto/tls"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rawbuffer "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"sluice/internal/config"
)

func downstreamTLS(s scope, t typed, out *config.FilterChain) {
	var m tlsv3.DownstreamTlsContext
	if !s.decode(t, &m) {
		return
	}
	d := &config.DownstreamTLS{
		RequireClientCert: boolean(m.GetRequireClientCertificate(), false),
		RequireSNI:        boolean(m.GetRequireSni(), false),
		PreferClientOrder: m.GetPreferClientCiphers(),
		FullScan:          boolean(m.GetFullScanCertsOnSniMismatch(), false),
		OCSPStaple:        m.GetOcspStaplePolicy() != tlsv3.DownstreamTlsContext_LENIENT_STAPLING,
		SessionTimeout:    int(min(s.duration("session_timeout", m.GetSessionTimeout(), 0).Seconds(), 1<<31-1)),
	}
	d.TLSParams = s.at("common_tls_context").commonTLS(m.GetCommonTlsContext(), tls.VersionTLS12, tls.VersionTLS13)
	switch x := m.GetSessionTicketKeysType().(type) {
	case *tlsv3.DownstreamTlsContext_SessionTicketKeys:
		keys := s.at("session_ticket_keys").ticketKeys(x.SessionTicketKeys)
		d.Tickets = config.SecretRef{Inline: &config.Secret{TicketKeys: keys}}
	case *tlsv3.DownstreamTlsContext_SessionTicketKeysSdsSecretConfig:
		d.Tickets = s.at("session_ticket_keys_sds_secret_config").secretRef(x.SessionTicketKeysSdsSecretConfig)
	case *tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption:
		d.DisableTickets = x.DisableStatelessSessionResumption
	}
	if len(d.Certificates) == 0 {
		s.at("common_tls_context").bad("no TLS certificates found for server context")
	}
	out.TLS = d
}

func upstreamTLS(s scope, t typed, _ int) socket {
	var m tlsv3.UpstreamTlsContext
	if !s.decode(t, &m) {
		return socket{}
	}
	s.unsupported(m.GetAllowRenegotiation(), "allow_renegotiation", "handshakes within a connection")
	u := &config.UpstreamTLS{
		SNI:            m.GetSni(),
		AutoHostSNI:    m.GetAutoHostSni(),
		AutoSAN:        m.GetAutoSniSanValidation(),
		MaxSessionKeys: capped(u32(m.GetMaxSessionKeys(), 1)),
	}
	if strings.ContainsRune(u.SNI, 0) {
		s.at("sni").bad("SNI names containing NULL-byte are not allowed")
	}
	p := s.at("common_tls_context").commonTLS(m.GetCommonTlsContext(), tls.VersionTLS12, tls.VersionTLS12)
	peer := p.Validation // whom we expect differs from cluster to cluster, who we are doesn't
	p.Validation = nil
	u.TLSParams = *s.r.alike.tls.share(&p)
	u.Validation = s.r.alike.peers.share(peer)
	if len(u.Certificates) > 1 {
		s.at("common_tls_context").bad("multiple TLS certificates are not supported for client contexts")
	}
	return socket{tls: u}
}

// commonTLS converts what both directions share; low and high are the versions
// when none are given.
func (s scope) commonTLS(m *tlsv3.CommonTlsContext, low, high uint16) config.TLSParams {
	s.unsupported(m.GetCustomHandshaker() != nil, "custom_handshaker", "handshakers of one's own")
	s.unsupported(m.GetCustomTlsCertificateSelector() != nil, "custom_tls_certificate_selector", "certificate selectors of one's own")
	s.unsupported(m.GetTlsCertificateProviderInstance() != nil, "tls_certificate_provider_instance", "certificate providers")
	p := m.GetTlsParams()
	s.at("tls_params").unsupported(len(p.GetCompliancePolicies()) > 0, "compliance_policies", "name the versions, suites and curves instead")
	out := config.TLSParams{
		Min:  version(p.GetTlsMinimumProtocolVersion(), low),
		Max:  version(p.GetTlsMaximumProtocolVersion(), high),
		ALPN: m.GetAlpnProtocols(),
	}
	if out.Max < out.Min && p.GetTlsMaximumProtocolVersion() == tlsv3.TlsParameters_TLS_AUTO {
		out.Max = out.Min
	}
	out.Ciphers, out.EqualCiphers = s.at("tls_params").ciphers(p.GetCipherSuites())
	out.Curves = s.at("tls_params").curves(p.GetEcdhCurves())
	for i, c := range m.GetTlsCertificates() {
		if cert := s.index("tls_certificates", i).certificate(c); cert != nil {
			out.Certificates = append(out.Certificates, config.SecretRef{Inline: cert})
		}
	}
	for i, c := range m.GetTlsCertificateSdsSecretConfigs() {
		out.Certificates = append(out.Certificates, s.index("tls_certificate_sds_secret_configs", i).secretRef(c))
	}
	if len(m.GetTlsCertificates()) > 0 && len(m.GetTlsCertificateSdsSecretConfigs()) > 0 {
		s.bad("only one of tls_certificates and tls_certificate_sds_secret_configs may be set")
	}
	out.Validation = s.validationContext(m)
	return out
}

func (s scope) validationContext(m *tlsv3.CommonTlsContext) *config.Validation {
	switch x := m.GetValidationContextType().(type) {
	case nil:
		return nil
	case *tlsv3.CommonTlsContext_ValidationContext:
		v := s.at("validation_context").validation(x.ValidationContext)
		if len(v.SANs) > 0 && !v.HasTrustAnchor {
			s.at("validation_context").bad("SAN-based verification of peer certificates without trusted CA is insecure and not allowed")
		}
		return v
	case *tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig:
		return &config.Validation{Ref: s.at("validation_context_sds_secret_config").secretRef(x.ValidationContextSdsSecretConfig), HasTrustAnchor: true}
	case *tlsv3.CommonTlsContext_CombinedValidationContext:
		at := s.at("combined_validation_context")
		v := at.at("default_validation_context").validation(x.CombinedValidationContext.GetDefaultValidationContext())
		v.Ref = at.at("validation_context_sds_secret_config").secretRef(x.CombinedValidationContext.GetValidationContextSdsSecretConfig())
		v.HasTrustAnchor = true
		return v
	}
	s.bad("not supported yet: certificate provider validation contexts")
	return nil
}

func (s scope) secretRef(m *tlsv3.SdsSecretConfig) config.SecretRef {
	out := config.SecretRef{Name: m.GetName()}
	c := m.GetSdsConfig()
	out.Wait = s.at("sds_config").duration("initial_fetch_timeout", c.GetInitialFetchTimeout(), defaultFetch)
	switch x := c.GetConfigSourceSpecifier().(type) {
	case nil:
		if out.Source = config.SecretStatic; c != nil {
			s.at("sds_config").bad("no config source")
		}
	case *core.ConfigSource_Ads, *core.ConfigSource_Self:
		out.Source = config.SecretADS
	case *core.ConfigSource_Path:
		out.Source, out.Path = config.SecretFile, x.Path
	case *core.ConfigSource_PathConfigSource:
		out.Source, out.Path = config.SecretFile, x.PathConfigSource.GetPath()
	case *core.ConfigSource_ApiConfigSource:
		out.Source, out.Cluster = config.SecretAgent, s.at("sds_config").at("api_config_source").sdsCluster(x.ApiConfigSource)
	}
	return out
}

// sdsCluster is the static cluster whose SDS server is asked.
func (s scope) sdsCluster(m *core.ApiConfigSource) string {
	for _, g := range m.GetGrpcServices() {
		if name := g.GetEnvoyGrpc().GetClusterName(); name != "" {
			return name
		}
	}
	s.at("grpc_services").bad("no envoy_grpc with a cluster_name")
	return ""
}

func version(v tlsv3.TlsParameters_TlsProtocol, auto uint16) uint16 {
	switch v {
	case tlsv3.TlsParameters_TLSv1_0:
		return tls.VersionTLS10
	case tlsv3.TlsParameters_TLSv1_1:
		return tls.VersionTLS11
	case tlsv3.TlsParameters_TLSv1_2:
		return tls.VersionTLS12
	case tlsv3.TlsParameters_TLSv1_3:
		return tls.VersionTLS13
	}
	return auto
}

// ciphers converts OpenSSL's names. Names in brackets are a group of equal
// preference, which is given apart too. TLS 1.3's suites can't be
// chosen, in Envoy neither.
func (s scope) ciphers(in []string) (out []uint16, equal [][]uint16) {
	for i, name := range in {
		first := len(out)
		for _, n := range strings.Split(strings.Trim(name, "[]"), "|") {
			id, ok := cipherID(n)
			if !ok {
				s.index("cipher_suites", i).bad("failed to initialize cipher suites: %s was rejected", n)
				continue
			}
			out = append(out, id)
		}
		if group := out[first:]; len(group) > 1 {
			equal = append(equal, slices.Clone(group))
		}
	}
	return out, equal
}

func cipherID(name string) (uint16, bool) {
	switch name {
	case "ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256":
		return tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, true
	case "ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256":
		return tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, true
	case "ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384":
		return tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, true
	case "ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384":
		return tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, true
	case "ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256":
		return tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, true
	case "ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256":
		return tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, true
	case "ECDHE-ECDSA-AES128-SHA":
		return tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, true
	case "ECDHE-RSA-AES128-SHA":
		return tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, true
	case "ECDHE-ECDSA-AES256-SHA":
		return tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, true
	case "ECDHE-RSA-AES256-SHA":
		return tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, true
	case "AES128-GCM-SHA256":
		return tls.TLS_RSA_WITH_AES_128_GCM_SHA256, true
	case "AES256-GCM-SHA384":
		return tls.TLS_RSA_WITH_AES_256_GCM_SHA384, true
	case "AES128-SHA":
		return tls.TLS_RSA_WITH_AES_128_CBC_SHA, true
	case "AES256-SHA":
		return tls.TLS_RSA_WITH_AES_256_CBC_SHA, true
	}
	return 0, false
}

func (s scope) curves(in []string) []tls.CurveID {
	var out []tls.CurveID
	for i, name := range in {
		switch name {
		case "X25519":
			out = append(out, tls.X25519)
		case "P-256":
			out = append(out, tls.CurveP256)
		case "P-384":
			out = append(out, tls.CurveP384)
		case "P-521":
			out = append(out, tls.CurveP521)
		case "X25519MLKEM768":
			out = append(out, tls.X25519MLKEM768)
		default:
			s.index("ecdh_curves", i).bad("failed to initialize ECDH curves: %s", name)
		}
	}
	return out
}

func downstreamRaw(s scope, t typed, _ *config.FilterChain) {
	s.decode(t, &rawbuffer.RawBuffer{})
}
