//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"strings"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	allowlisted "github.com/envoyproxy/go-control-plane/envoy/extensions/internal_redirect/allow_listed_routes/v3"
	previousroutes "github.com/envoyproxy/go-control-plane/envoy/extensions/internal_redirect/previous_routes/v3"
	safecross "github.com/envoyproxy/go-control-plane/envoy/extensions/internal_redirect/safe_cross_scheme/v3"
	uritemplate "github.com/envoyproxy/go-control-plane/envoy/extensions/path/rewrite/uri_template/v3"

	"sluice/internal/config"
)

func (s scope) action(m *route.RouteAction) *config.RouteAction {
	s.actionUnsupported(m)
	out := &config.RouteAction{
		NotFoundStatus:    notFoundStatus(m.GetClusterNotFoundResponseCode()),
		Timeout:           s.duration("timeout", m.GetTimeout(), seconds(15)),
		IdleTimeout:       s.optional("idle_timeout", m.GetIdleTimeout()),
		FlushTimeout:      s.optional("flush_timeout", m.GetFlushTimeout()),
		MaxGRPCTimeout:    s.optional("max_grpc_timeout", m.GetMaxGrpcTimeout()),
		GRPCTimeoutOffset: s.duration("grpc_timeout_offset", m.GetGrpcTimeoutOffset(), 0),
		Retry:             s.r.alike.retries.share(s.at("retry_policy").retry(m.GetRetryPolicy(), m.GetHedgePolicy())),
		PrefixRewrite:     m.GetPrefixRewrite(),
		RegexRewrite:      s.at("regex_rewrite").rewrite(m.GetRegexRewrite()),
		AppendXFH:         m.GetAppendXForwardedHost(),
		HashPolicies:      s.hashPolicies(m.GetHashPolicy()),
		Mirrors:           s.mirrors("request_mirror_policies", m.GetRequestMirrorPolicies()),
		Priority:          config.Priority(m.GetPriority()),
		MetadataMatch:     lbMetadata(m.GetMetadataMatch()),
		InternalRedirect:  s.at("internal_redirect_policy").internalRedirect(m.GetInternalRedirectPolicy()),
		RateLimits:        s.rateLimits(m.GetRateLimits()),
		WithHostLimits:    boolean(m.GetIncludeVhRateLimits(), false),
	}
	if d := m.GetMaxStreamDuration(); d != nil {
		at := s.at("max_stream_duration")
		out.MaxStream = &config.MaxStreamDuration{
			Max:              at.optional("max_stream_duration", d.GetMaxStreamDuration()),
			GRPCHeaderMax:    at.optional("grpc_timeout_header_max", d.GetGrpcTimeoutHeaderMax()),
			GRPCHeaderOffset: at.duration("grpc_timeout_header_offset", d.GetGrpcTimeoutHeaderOffset(), 0),
		}
	}
	s.clusterSpecifier(m, out)
	s.rewrites(m, out)
	s.routeUpgrades(m.GetUpgradeConfigs(), out)
	return out
}

func (s scope) actionUnsupported(m *route.RouteAction) {
	s.unsupported(m.GetRetryPolicyTypedConfig() != nil, "retry_policy_typed_config", "use retry_policy")
	s.unsupported(m.GetCors() != nil, "cors", "use typed_per_filter_config")
	s.unsupported(m.GetPathRewrite() != "", "path_rewrite", "rewriting a path by format string")
	s.unsupported(m.GetInternalRedirectAction() != route.RouteAction_PASS_THROUGH_INTERNAL_REDIRECT, "internal_redirect_action", "use internal_redirect_policy")
}

func notFoundStatus(c route.RouteAction_ClusterNotFoundResponseCode) int {
	switch c {
	case route.RouteAction_NOT_FOUND:
		return 404
	case route.RouteAction_INTERNAL_SERVER_ERROR:
		return 500
	}
	return 503
}

func (s scope) clusterSpecifier(m *route.RouteAction, out *config.RouteAction) {
	switch x := m.GetClusterSpecifier().(type) {
	case *route.RouteAction_Cluster:
		out.Cluster = x.Cluster
	case *route.RouteAction_ClusterHeader:
		out.ClusterHeader = strings.ToLower(x.ClusterHeader)
	case *route.RouteAction_WeightedClusters:
		s.at("weighted_clusters").weighted(x.WeightedClusters, out)
	default:
		s.bad("not supported yet: this kind of cluster specifier")
	}
}

func (s scope) weighted(m *route.WeightedCluster, out *config.RouteAction) {
	out.WeightHeader = strings.ToLower(m.GetHeaderName())
	s.unsupported(m.GetUseHashPolicy().GetValue(), "use_hash_policy", "weights by hash")
	total := uint64(0)
	for i, c := range m.GetClusters() {
		at := s.index("clusters", i)
		if (c.GetName() == "") == (c.GetClusterHeader() == "") {
			at.bad("exactly one of name or cluster_header can be specified")
		}
		total += uint64(u32(c.GetWeight(), 0))
		out.Weighted = append(out.Weighted, config.WeightedCluster{
			Name:            c.GetName(),
			ClusterHeader:   strings.ToLower(c.GetClusterHeader()),
			Weight:          u32(c.GetWeight(), 0),
			HostRewrite:     c.GetHostRewriteLiteral(),
			MetadataMatch:   lbMetadata(c.GetMetadataMatch()),
			PerFilter:       at.perFilter(c.GetTypedPerFilterConfig()),
			RequestHeaders:  at.mutations("request_headers_to_add", "request_headers_to_remove", c.GetRequestHeadersToAdd(), c.GetRequestHeadersToRemove()),
			ResponseHeaders: at.mutations("response_headers_to_add", "response_headers_to_remove", c.GetResponseHeadersToAdd(), c.GetResponseHeadersToRemove()),
		})
	}
	switch {
	case total == 0:
		s.bad("sum of weights in the weighted_cluster must be greater than 0")
	case total > 1<<32-1:
		s.bad("the sum of weights of all weighted clusters is more than 4294967295")
	}
	out.TotalWeight = uint32(total)
}

func (s scope) rewrites(m *route.RouteAction, out *config.RouteAction) {
	n := 0
	for _, set := range []bool{out.PrefixRewrite != "", m.GetRegexRewrite() != nil, m.GetPathRewritePolicy() != nil} {
		if set {
			n++
		}
	}
	if n > 1 {
		s.bad("only one of prefix_rewrite, regex_rewrite or path_rewrite_policy can be specified")
	}
	if p := m.GetPathRewritePolicy(); p != nil {
		var t uritemplate.UriTemplateRewriteConfig
		if s.at("path_rewrite_policy").unpack(p.GetName(), p.GetTypedConfig(), &t) {
			out.PathTemplate = t.GetPathTemplateRewrite()
		}
	}
	switch x := m.GetHostRewriteSpecifier().(type) {
	case *route.RouteAction_HostRewriteLiteral:
		out.HostRewrite = x.HostRewriteLiteral
	case *route.RouteAction_AutoHostRewrite:
		out.AutoHostRewrite = x.AutoHostRewrite.GetValue()
	case *route.RouteAction_HostRewriteHeader:
		out.HostRewriteHeader = strings.ToLower(x.HostRewriteHeader)
	case *route.RouteAction_HostRewritePathRegex:
		out.HostRewriteRegex = s.at("host_rewrite_path_regex").rewrite(x.HostRewritePathRegex)
	case *route.RouteAction_HostRewrite:
		out.HostFormat = s.at("host_rewrite").format(x.HostRewrite)
	}
}

func (s scope) routeUpgrades(in []*route.RouteAction_UpgradeConfig, out *config.RouteAction) {
	seen := map[string]bool{}
	for i, u := range in {
		at := s.index("upgrade_configs", i)
		up := config.Upgrade{
			Type: strings.ToLower(u.GetUpgradeType()), Enabled: boolean(u.GetEnabled(), true), Connect: u.GetConnectConfig() != nil,
		}
		if seen[up.Type] {
			at.bad("duplicate upgrade %s", u.GetUpgradeType())
		}
		seen[up.Type] = true
		if up.Connect {
			if up.Type != "connect" && up.Type != "connect-udp" {
				at.bad("non-CONNECT upgrade type %s has ConnectConfig", u.GetUpgradeType())
			}
			at.unsupported(u.GetConnectConfig().GetProxyProtocolConfig() != nil, "connect_config.proxy_protocol_config", "PROXY protocol on CONNECT")
			out.ConnectTermination = true
			out.PostTunnel = u.GetConnectConfig().GetAllowPost()
		}
		out.Upgrades = append(out.Upgrades, up)
	}
}

func (s scope) hashPolicies(in []*route.RouteAction_HashPolicy) []config.HashPolicy {
	var out []config.HashPolicy
	for i, h := range in {
		at := s.index("hash_policy", i)
		p := config.HashPolicy{Terminal: h.GetTerminal()}
		switch x := h.GetPolicySpecifier().(type) {
		case *route.RouteAction_HashPolicy_Header_:
			p.Kind, p.Name = config.HashHeader, strings.ToLower(x.Header.GetHeaderName())
			p.Rewrite = at.at("header.regex_rewrite").rewrite(x.Header.GetRegexRewrite())
		case *route.RouteAction_HashPolicy_Cookie_:
			p.Kind, p.Name, p.Path = config.HashCookie, x.Cookie.GetName(), x.Cookie.GetPath()
			p.TTL = at.optional("cookie.ttl", x.Cookie.GetTtl())
			for _, a := range x.Cookie.GetAttributes() {
				p.Attrs = append(p.Attrs, config.CookieAttr{Name: a.GetName(), Value: a.GetValue()})
			}
		case *route.RouteAction_HashPolicy_ConnectionProperties_:
			if !x.ConnectionProperties.GetSourceIp() {
				continue // Envoy adds no hash method either
			}
			p.Kind = config.HashSourceIP
		case *route.RouteAction_HashPolicy_QueryParameter_:
			p.Kind, p.Name = config.HashQuery, x.QueryParameter.GetName()
		case *route.RouteAction_HashPolicy_FilterState_:
			p.Kind, p.Name = config.HashFilterState, x.FilterState.GetKey()
		}
		out = append(out, p)
	}
	return out
}

func (s scope) internalRedirect(m *route.InternalRedirectPolicy) *config.InternalRedirect {
	if m == nil {
		return nil
	}
	out := &config.InternalRedirect{
		Max:         capped(u32(m.GetMaxInternalRedirects(), 1)),
		Codes:       []int{302},
		AllowCross:  m.GetAllowCrossSchemeRedirect(),
		CopyHeaders: lower(m.GetResponseHeadersToCopy()),
	}
	if len(m.GetRedirectResponseCodes()) > 0 {
		out.Codes = nil
		for _, c := range m.GetRedirectResponseCodes() {
			switch c { // Envoy leaves the others out
			case 301, 302, 303, 307, 308:
				out.Codes = append(out.Codes, int(c))
			}
		}
	}
	for i, p := range m.GetPredicates() {
		at := s.index("predicates", i)
		t, ok := at.unwrap(p.GetName(), p.GetTypedConfig())
		if !ok {
			continue
		}
		switch t.name {
		case "envoy.extensions.internal_redirect.previous_routes.v3.PreviousRoutesConfig":
			out.PreviousOnce = at.decode(t, &previousroutes.PreviousRoutesConfig{})
		case "envoy.extensions.internal_redirect.safe_cross_scheme.v3.SafeCrossSchemeConfig":
			out.SafeCross = at.decode(t, &safecross.SafeCrossSchemeConfig{})
		case "envoy.extensions.internal_redirect.allow_listed_routes.v3.AllowListedRoutesConfig":
			var m allowlisted.AllowListedRoutesConfig
			if at.decode(t, &m) {
				out.AllowedRoutes = append([]string{}, m.GetAllowedRouteNames()...)
			}
		default:
			at.missing(p.GetName(), t.name)
		}
	}
	return out
}
