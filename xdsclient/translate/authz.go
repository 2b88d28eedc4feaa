//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	network "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"sluice/internal/config"
)

// authzTimeout is Envoy's for a gRPC service without one.
const authzTimeout = 200 * time.Millisecond

func extAuthz(s scope, t typed) config.HTTPPolicy {
	var m authz.ExtAuthz
	if !s.decode(t, &m) {
		return nil
	}
	s.authzUnsupported(&m)
	out := &config.ExtAuthz{
		StatPrefix: m.GetStatPrefix(), FailOpen: m.GetFailureModeAllow(), FailOpenHeader: m.GetFailureModeAllowHeaderAdd(),
		ErrorStatus: 403, Body: authzBody(m.GetWithRequestBody()), ClearRoute: m.GetClearRouteCache(),
		Disallowed: s.at("disallowed_headers").patterns(m.GetDisallowedHeaders()),
		Enabled:    config.Percent{PerMillion: 1_000_000}, DenyDisabled: m.GetDenyAtDisable().GetDefaultValue().GetValue(),
		TLSSession: m.GetIncludeTlsSession(), PeerCertificate: m.GetIncludePeerCertificate(),
		NoMetadata: !boolean(m.GetEnableDynamicMetadataIngestion(), true), MaxDenied: capped(m.GetMaxDeniedResponseBodyBytes()), Metadata: m.GetMetadataContextNamespaces(),
	}
	if c := m.GetStatusOnError().GetCode(); c != 0 {
		out.ErrorStatus = int(c)
	}
	if p := m.GetFilterEnabled().GetDefaultValue(); p != nil {
		out.Enabled = fraction(p)
	}
	if x := m.GetFilterEnabledMetadata(); x != nil {
		v := s.at("filter_enabled_metadata").metadataMatch(x)
		out.EnabledMetadata = &v
	}
	out.Allowed, out.AllHeaders = s.at("allowed_headers").patterns(m.GetAllowedHeaders()), m.GetAllowedHeaders() == nil
	switch x := m.GetServices().(type) {
	case *authz.ExtAuthz_HttpService:
		out.HTTP = s.at("http_service").authzHTTP(x.HttpService)
		s.at("http_service").authzAsked(x.HttpService.GetAuthorizationRequest(), out)
	case *authz.ExtAuthz_GrpcService:
		out.GRPC = s.at("grpc_service").authzGRPC(x.GrpcService)
	default:
		s.bad("no service is asked")
	}
	return out
}

func (s scope) authzUnsupported(m *authz.ExtAuthz) {
	s.unsupported(len(m.GetTypedMetadataContextNamespaces()) > 0, "typed_metadata_context_namespaces", "metadata for the service")
	s.unsupported(len(m.GetRouteMetadataContextNamespaces()) > 0, "route_metadata_context_namespaces", "metadata for the service")
	s.unsupported(len(m.GetRouteTypedMetadataContextNamespaces()) > 0, "route_typed_metadata_context_namespaces", "metadata for the service")
	s.unsupported(m.GetBootstrapMetadataLabelsKey() != "", "bootstrap_metadata_labels_key", "labels for the service")
	s.unsupported(m.GetEncodeRawHeaders(), "encode_raw_headers", "raw headers for the service")
	s.unsupported(m.GetDecoderHeaderMutationRules() != nil, "decoder_header_mutation_rules", "rules for what the service changes")
	s.unsupported(m.GetEmitFilterStateStats() || m.GetFilterMetadata() != nil, "emit_filter_state_stats", "filter state of checks")
	s.unsupported(m.GetEnforceResponseHeaderLimits(), "enforce_response_header_limits", "limits of response headers")
	s.unsupported(m.GetShadowMode(), "shadow_mode", "checks without effect")
	s.unsupported(len(m.GetClearRouteCacheHeaders()) > 0, "clear_route_cache_headers", "routes chosen again by some headers")
}

func authzBody(m *authz.BufferSettings) *config.AuthzBody {
	if m == nil {
		return nil
	}
	return &config.AuthzBody{Max: capped(m.GetMaxRequestBytes()), Partial: m.GetAllowPartialMessage(), Raw: m.GetPackAsBytes()}
}

func (s scope) patterns(l *matcher.ListStringMatcher) []config.StringMatch {
	return s.stringMatches("patterns", l.GetPatterns())
}

func (s scope) authzHTTP(m *authz.HttpService) *config.AuthzHTTP {
	s.authzPath("path_prefix", m.GetPathPrefix())
	s.authzPath("path_override", m.GetPathOverride())
	if m.GetPathPrefix() != "" && m.GetPathOverride() != "" {
		s.at("path_override").bad("only one of path_prefix and path_override may be set")
	}
	u, r := m.GetServerUri(), m.GetAuthorizationResponse()
	at := s.at("authorization_response")
	out := &config.AuthzHTTP{
		Cluster: u.GetCluster(), Timeout: s.at("server_uri").duration("timeout", u.GetTimeout(), 0), PathPrefix: m.GetPathPrefix(), Path: m.GetPathOverride(), Retries: s.at("retry_policy").ownRetries(m.GetRetryPolicy()),
		Add:            s.at("authorization_request").plainHeaders("headers_to_add", m.GetAuthorizationRequest().GetHeadersToAdd()),
		Upstream:       at.at("allowed_upstream_headers").patterns(r.GetAllowedUpstreamHeaders()),
		UpstreamAppend: at.at("allowed_upstream_headers_to_append").patterns(r.GetAllowedUpstreamHeadersToAppend()),
		Client:         at.at("allowed_client_headers").patterns(r.GetAllowedClientHeaders()),
		ClientSuccess:  at.at("allowed_client_headers_on_success").patterns(r.GetAllowedClientHeadersOnSuccess()),
		Metadata:       at.at("dynamic_metadata_from_headers").patterns(r.GetDynamicMetadataFromHeaders()),
	}
	if len(out.Client) > 0 {
		out.Client = append(out.Client, config.StringMatch{Value: "www-authenticate"}, config.StringMatch{Value: "location"})
	}
	return out
}

func (s scope) authzPath(field, path string) {
	if path != "" && path[0] != '/' {
		s.at(field).bad(`%s should start with "/".`, field)
	}
}

// authzAsked says which headers an HTTP service gets: those listed, and four
// always.
func (s scope) authzAsked(m *authz.AuthorizationRequest, out *config.ExtAuthz) {
	if m.GetAllowedHeaders() != nil {
		if !out.AllHeaders {
			s.at("authorization_request.allowed_headers").bad("Invalid duplicate configuration for allowed_headers.")
		}
		out.Allowed = s.at("authorization_request.allowed_headers").patterns(m.GetAllowedHeaders())
	}
	out.AllHeaders = false
	for _, name := range []string{"authorization", ":method", ":path", ":authority"} {
		out.Allowed = append(out.Allowed, config.StringMatch{Value: name})
	}
}

func (s scope) authzGRPC(m *core.GrpcService) *config.AuthzGRPC {
	g := m.GetEnvoyGrpc()
	s.unsupported(g == nil, "google_grpc", "Google's gRPC client")
	s.unsupported(m.GetRetryPolicy() != nil || g.GetRetryPolicy() != nil, "retry_policy", "checks that are tried again")
	s.unsupported(g.GetSkipEnvoyHeaders(), "envoy_grpc.skip_envoy_headers", "calls without Envoy's headers")
	return &config.AuthzGRPC{Cluster: g.GetClusterName(), Authority: g.GetAuthority(), Timeout: s.duration("timeout", m.GetTimeout(), authzTimeout),
		Metadata: s.plainHeaders("initial_metadata", m.GetInitialMetadata())}
}

// plainHeaders sets headers that have no say in how.
func (s scope) plainHeaders(field string, in []*core.HeaderValue) (out []config.HeaderMutation) {
	for i, h := range in {
		value := h.GetValue()
		if raw := h.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		out = append(out, config.HeaderMutation{Name: strings.ToLower(h.GetKey()), Action: config.OverwriteOrAdd, Value: s.index(field, i).format(value)})
	}
	return out
}

func networkExtAuthz(s scope, t typed) config.NetworkFilter {
	var m network.ExtAuthz
	if !s.decode(t, &m) {
		return nil
	}
	s.unsupported(m.GetBootstrapMetadataLabelsKey() != "", "bootstrap_metadata_labels_key", "labels for the service")
	s.unsupported(m.GetSendTlsAlertOnDenial(), "send_tls_alert_on_denial", "alerts to those who are refused")
	s.unsupported(len(m.GetMetadataContextNamespaces())+len(m.GetTypedMetadataContextNamespaces()) > 0, "metadata_context_namespaces", "metadata for the service")
	s.unsupported(m.GetShadowMode(), "shadow_mode", "checks without effect")
	out := &config.NetworkExtAuthz{GRPC: s.at("grpc_service").authzGRPC(m.GetGrpcService()), StatPrefix: m.GetStatPrefix(), FailOpen: m.GetFailureModeAllow(),
		TLSSession: m.GetIncludeTlsSession(), PeerCertificate: m.GetIncludePeerCertificate()}
	if x := m.GetFilterEnabledMetadata(); x != nil {
		v := s.at("filter_enabled_metadata").metadataMatch(x)
		out.EnabledMetadata = &v
	}
	return out
}

func routeExtAuthz(s scope, t typed) config.HTTPPolicy {
	var m authz.ExtAuthzPerRoute
	if !s.decode(t, &m) {
		return nil
	}
	c, at := m.GetCheckSettings(), s.at("check_settings")
	at.unsupported(c.GetWithRequestBody() != nil, "with_request_body", "content for the service by route")
	at.unsupported(c.GetGrpcService() != nil, "grpc_service", "another service by route")
	at.unsupported(c.GetHttpService() != nil, "http_service", "another service by route")
	return &config.ExtAuthzRoute{Disabled: m.GetDisabled(), Context: c.GetContextExtensions(), NoBody: c.GetDisableRequestBodyBuffering()}
}
