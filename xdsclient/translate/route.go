//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"sluice/internal/config"
)

// maxDirectBody is max_direct_response_body_size_bytes when absent.
const maxDirectBody = 4096

// routes converts a route table; inline ones validate their clusters unless
// they say otherwise, discovered ones don't.
func (s scope) routes(m *route.RouteConfiguration, inline bool) *config.RouteConfiguration {
	return s.routesBeside(m, inline, make([]*config.VirtualHost, len(m.GetVirtualHosts())))
}

// routesBeside is routes with the virtual hosts of m in the places of hosts that
// are still empty.
func (s scope) routesBeside(m *route.RouteConfiguration, inline bool, hosts []*config.VirtualHost) *config.RouteConfiguration {
	s.unsupported(m.GetVhds() != nil, "vhds", "virtual host discovery")
	s.unsupported(m.GetVhostHeader() != "", "vhost_header", "virtual hosts by header")
	s.unsupported(len(m.GetClusterSpecifierPlugins()) > 0, "cluster_specifier_plugins", "cluster specifier plugins")
	out := &config.RouteConfiguration{
		Meta:                 config.Meta{Name: m.GetName()},
		MostSpecificFirst:    m.GetMostSpecificHeaderMutationsWins(),
		IgnorePortInHost:     m.GetIgnorePortInHostMatching(),
		ValidateClusters:     boolean(m.GetValidateClusters(), inline),
		MaxDirectBody:        capped(u32(m.GetMaxDirectResponseBodySizeBytes(), maxDirectBody)),
		InternalOnlyHeaders:  lower(m.GetInternalOnlyHeaders()),
		MirrorPolicies:       s.mirrors("request_mirror_policies", m.GetRequestMirrorPolicies()),
		PerFilter:            s.perFilter(m.GetTypedPerFilterConfig()),
		IgnorePathParameters: m.GetIgnorePathParametersInPathMatching(),
		RequestHeaders:       s.mutations("request_headers_to_add", "request_headers_to_remove", m.GetRequestHeadersToAdd(), m.GetRequestHeadersToRemove()),
		ResponseHeaders:      s.mutations("response_headers_to_add", "response_headers_to_remove", m.GetResponseHeadersToAdd(), m.GetResponseHeadersToRemove()),
	}
	domains, fresh := map[string]bool{}, m.GetVirtualHosts()
	for i, h := range hosts {
		if h == nil {
			h, fresh = s.index("virtual_hosts", i).virtualHost(fresh[0], out.MaxDirectBody), fresh[1:]
		}
		s.domains(i, h, domains)
		out.VirtualHosts = append(out.VirtualHosts, h)
	}
	return out
}

// domains checks that no domain of a virtual host is taken already.
func (s scope) domains(host int, h *config.VirtualHost, taken map[string]bool) {
	for i, d := range h.Domains {
		// A name with more asterisks Envoy takes literally, so it never matches.
		if taken[d] {
			s.index("virtual_hosts", host).index("domains", i).badDomain(d)
		}
		taken[d] = true
	}
}

func (s scope) badDomain(d string) {
	if d == "*" {
		s.bad("only a single wildcard domain is permitted")
		return
	}
	s.bad("only unique values for domains are permitted. Duplicate entry of domain %s", d)
}

func (s scope) virtualHost(m *route.VirtualHost, maxBody int) *config.VirtualHost {
	s.unsupported(m.GetMatcher() != nil, "matcher", "routes by the matcher API")
	s.unsupported(m.GetRetryPolicyTypedConfig() != nil, "retry_policy_typed_config", "use retry_policy")
	s.unsupported(m.GetCors() != nil, "cors", "use typed_per_filter_config")
	out := &config.VirtualHost{
		Name:                   m.GetName(),
		RequireTLS:             config.TLSRequirement(m.GetRequireTls()),
		Retry:                  s.at("retry_policy").retry(m.GetRetryPolicy(), m.GetHedgePolicy()),
		MirrorPolicies:         s.mirrors("request_mirror_policies", m.GetRequestMirrorPolicies()),
		PerFilter:              s.perFilter(m.GetTypedPerFilterConfig()),
		IncludeAttemptCount:    m.GetIncludeRequestAttemptCount(),
		IncludeAttemptResponse: m.GetIncludeAttemptCountInResponse(),
		RetryBufferLimit:       bufferLimit(m),
		RateLimits:             s.rateLimits(m.GetRateLimits()),
		Metadata:               metadata(m.GetMetadata()),
		RequestHeaders:         s.mutations("request_headers_to_add", "request_headers_to_remove", m.GetRequestHeadersToAdd(), m.GetRequestHeadersToRemove()),
		ResponseHeaders:        s.mutations("response_headers_to_add", "response_headers_to_remove", m.GetResponseHeadersToAdd(), m.GetResponseHeadersToRemove()),
	}
	for _, d := range m.GetDomains() {
		out.Domains = append(out.Domains, strings.ToLower(d))
	}
	for i, c := range m.GetVirtualClusters() {
		out.VirtualClusters = append(out.VirtualClusters, config.VirtualCluster{
			Name: c.GetName(), Headers: s.index("virtual_clusters", i).headers("headers", c.GetHeaders()),
		})
	}
	for i, r := range m.GetRoutes() {
		out.Routes = append(out.Routes, s.index("routes", i).route(r, maxBody))
	}
	return out
}

// buffered is what carries a limit for buffering a request for retries.
type buffered interface {
	GetPerRequestBufferLimitBytes() *wrapperUint32
	GetRequestBodyBufferLimit() *wrapperUint64
}

func bufferLimit(m buffered) int {
	if v := m.GetRequestBodyBufferLimit(); v != nil {
		return int(min(v.Value, 1<<31-1))
	}
	if v := m.GetPerRequestBufferLimitBytes(); v != nil {
		return capped(v.Value)
	}
	return -1
}

func (s scope) route(m *route.Route, maxBody int) *config.Route {
	out := &config.Route{
		Name:             m.GetName(),
		Match:            s.at("match").routeMatch(m.GetMatch()),
		Metadata:         metadata(m.GetMetadata()),
		Decorator:        m.GetDecorator().GetOperation(),
		DecoratorNoProp:  !boolean(m.GetDecorator().GetPropagate(), true),
		PerFilter:        s.perFilter(m.GetTypedPerFilterConfig()),
		StatPrefix:       m.GetStatPrefix(),
		RetryBufferLimit: bufferLimit(m),
		RequestHeaders:   s.mutations("request_headers_to_add", "request_headers_to_remove", m.GetRequestHeadersToAdd(), m.GetRequestHeadersToRemove()),
		ResponseHeaders:  s.mutations("response_headers_to_add", "response_headers_to_remove", m.GetResponseHeadersToAdd(), m.GetResponseHeadersToRemove()),
	}
	if t := m.GetTracing(); t != nil {
		out.Tracing = &config.RouteTracing{
			Client: optionalFraction(t.GetClientSampling()), Random: optionalFraction(t.GetRandomSampling()),
			Overall: optionalFraction(t.GetOverallSampling()), CustomTags: s.customTags("tracing.custom_tags", t.GetCustomTags()),
		}
	}
	switch x := m.GetAction().(type) {
	case *route.Route_Route:
		out.Action = s.at("route").action(x.Route)
		if out.Match.Kind == config.PathTemplate || out.Action.PathTemplate == "" {
			break
		}
		s.at("route.path_rewrite_policy").bad("a uri_template rewrite needs a uri_template match")
	case *route.Route_Redirect:
		out.Redirect = s.at("redirect").redirect(x.Redirect)
	case *route.Route_DirectResponse:
		out.Direct = s.at("direct_response").direct(x.DirectResponse, maxBody)
	default:
		s.bad("not supported yet: a route needs route, redirect or direct_response")
	}
	return out
}

func (s scope) direct(m *route.DirectResponseAction, maxBody int) *config.Direct {
	out := &config.Direct{Status: capped(m.GetStatus()), BodyFormat: s.at("body_format").bodyFormat(m.GetBodyFormat())}
	if m.GetBody() != nil {
		out.Body, _ = s.at("body").data(m.Body)
	}
	if len(out.Body) > maxBody {
		s.at("body").bad("response body size is %d bytes; maximum is %d", len(out.Body), maxBody)
	}
	return out
}

func (s scope) redirect(m *route.RedirectAction) *config.Redirect {
	out := &config.Redirect{
		Status:     redirectCode(m.GetResponseCode()),
		HTTPS:      m.GetHttpsRedirect(),
		Scheme:     m.GetSchemeRedirect(),
		Host:       m.GetHostRedirect(),
		Port:       m.GetPortRedirect(),
		StripQuery: m.GetStripQuery(),
	}
	switch x := m.GetPathRewriteSpecifier().(type) {
	case *route.RedirectAction_PathRedirect:
		out.Path = x.PathRedirect
	case *route.RedirectAction_PrefixRewrite:
		out.PrefixRewrite = x.PrefixRewrite
	case *route.RedirectAction_RegexRewrite:
		out.RegexRewrite = s.at("regex_rewrite").rewrite(x.RegexRewrite)
	}
	if out.StripQuery && strings.Contains(out.Path, "?") {
		s.at("path_redirect").bad("redirect path contains query when strip_query is set")
	}
	return out
}

func redirectCode(c route.RedirectAction_RedirectResponseCode) int {
	switch c {
	case route.RedirectAction_FOUND:
		return 302
	case route.RedirectAction_SEE_OTHER:
		return 303
	case route.RedirectAction_TEMPORARY_REDIRECT:
		return 307
	case route.RedirectAction_PERMANENT_REDIRECT:
		return 308
	}
	return 301
}

func (s scope) mirrors(field string, in []*route.RouteAction_RequestMirrorPolicy) []config.Mirror {
	var out []config.Mirror
	for i, m := range in {
		at := s.index(field, i)
		mirror := config.Mirror{
			Cluster:         m.GetCluster(),
			ClusterHeader:   strings.ToLower(m.GetClusterHeader()),
			NoShadowSuffix:  m.GetDisableShadowHostSuffixAppend(),
			TraceSampled:    optionalBool(m.GetTraceSampled()),
			HostRewrite:     m.GetHostRewriteLiteral(),
			HeaderMutations: at.mutationList("request_headers_mutations", m.GetRequestHeadersMutations()),
		}
		if f := m.GetRuntimeFraction(); f != nil {
			p := fraction(f.GetDefaultValue())
			mirror.Fraction = &p
		}
		if mirror.Cluster == "" && mirror.ClusterHeader == "" {
			at.bad("only one of cluster or cluster_header must be set in request mirror policy")
		}
		out = append(out, mirror)
	}
	return out
}

// lbMetadata is the part of a metadata match that load balancing sees.
func lbMetadata(m *core.Metadata) config.Struct {
	return structOf(m.GetFilterMetadata()["envoy.lb"])
}
