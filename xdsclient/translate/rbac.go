//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	rbac "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	uritemplate "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"

	"sluice/internal/config"
)

// maxRBACDepth bounds the nesting of a rule tree, which is walked recursively.
const maxRBACDepth = 64

func httpRBAC(s scope, t typed) config.HTTPPolicy {
	var m httprbac.RBAC
	if !s.decode(t, &m) {
		return nil
	}
	return &config.HTTPRBAC{RBAC: s.httpRBAC(&m)}
}

func (s scope) httpRBAC(m *httprbac.RBAC) *config.RBAC {
	s.unsupported(m.GetMatcher() != nil, "matcher", "RBAC by the matcher API")
	s.unsupported(m.GetShadowMatcher() != nil, "shadow_matcher", "RBAC by the matcher API")
	return &config.RBAC{
		Rules:            s.at("rules").rbacRules(m.GetRules()),
		Shadow:           s.at("shadow_rules").rbacRules(m.GetShadowRules()),
		StatPrefix:       m.GetRulesStatPrefix(),
		ShadowStatPrefix: m.GetShadowRulesStatPrefix(),
		TrackPerRule:     m.GetTrackPerRuleStats(),
	}
}

// routeRBAC is a route's own rules; none at all turn the filter off there.
func routeRBAC(s scope, t typed) config.HTTPPolicy {
	var m httprbac.RBACPerRoute
	if !s.decode(t, &m) {
		return nil
	}
	if m.GetRbac() == nil {
		return &config.HTTPRBAC{RBAC: &config.RBAC{}}
	}
	return &config.HTTPRBAC{RBAC: s.at("rbac").httpRBAC(m.GetRbac())}
}

func (s scope) rbacRules(m *rbac.RBAC) *config.RBACRules {
	if m == nil {
		return nil
	}
	out := &config.RBACRules{Action: config.RBACAction(m.GetAction())}
	for _, n := range sortedKeys(m.GetPolicies()) {
		p := m.Policies[n]
		at := s.at("policies." + n)
		at.unsupported(p.GetCondition() != nil || p.GetCheckedCondition() != nil, "condition", "CEL conditions in RBAC")
		policy := config.RBACPolicy{Name: n}
		for i, x := range p.GetPermissions() {
			policy.Permissions = append(policy.Permissions, at.index("permissions", i).permission(x, 0))
		}
		for i, x := range p.GetPrincipals() {
			policy.Principals = append(policy.Principals, at.index("principals", i).principal(x, 0))
		}
		out.Policies = append(out.Policies, policy)
	}
	return out
}

func (s scope) permissions(field string, op config.RBACOp, in []*rbac.Permission, depth int) config.RBACExpr {
	out := config.RBACExpr{Op: op}
	for i, p := range in {
		out.Sub = append(out.Sub, s.index(field, i).permission(p, depth+1))
	}
	return out
}

func (s scope) permission(p *rbac.Permission, depth int) config.RBACExpr {
	if depth > maxRBACDepth {
		s.bad("nested more than %d levels", maxRBACDepth)
		return config.RBACExpr{}
	}
	switch x := p.GetRule().(type) {
	case *rbac.Permission_AndRules:
		return s.permissions("and_rules.rules", config.RBACAnd, x.AndRules.GetRules(), depth)
	case *rbac.Permission_OrRules:
		return s.permissions("or_rules.rules", config.RBACOr, x.OrRules.GetRules(), depth)
	case *rbac.Permission_NotRule:
		return config.RBACExpr{Op: config.RBACNot, Sub: []config.RBACExpr{s.at("not_rule").permission(x.NotRule, depth+1)}}
	case *rbac.Permission_Any:
		return config.RBACExpr{Op: config.RBACAny}
	case *rbac.Permission_Header:
		h := s.at("header").header(x.Header)
		return config.RBACExpr{Op: config.RBACHeader, Header: &h}
	case *rbac.Permission_UrlPath:
		return config.RBACExpr{Op: config.RBACURLPath, String: s.at("url_path.path").stringMatch(x.UrlPath.GetPath())}
	case *rbac.Permission_DestinationIp:
		return s.cidr("destination_ip", config.RBACDestIP, x.DestinationIp)
	case *rbac.Permission_DestinationPort:
		return config.RBACExpr{Op: config.RBACDestPort, Ports: [2]uint32{x.DestinationPort, x.DestinationPort + 1}}
	case *rbac.Permission_DestinationPortRange:
		r := x.DestinationPortRange
		if r.GetStart() < 0 || r.GetEnd() > 65536 || r.GetStart() >= r.GetEnd() {
			s.at("destination_port_range").bad("invalid range [%d, %d)", r.GetStart(), r.GetEnd())
		}
		return config.RBACExpr{Op: config.RBACDestPortRange, Ports: [2]uint32{uint32(max(0, r.GetStart())), uint32(max(0, r.GetEnd()))}}
	case *rbac.Permission_Metadata:
		m := s.at("metadata").metadataMatch(x.Metadata)
		return config.RBACExpr{Op: config.RBACMetadata, Metadata: &m}
	case *rbac.Permission_SourcedMetadata:
		return s.sourcedMetadata(x.SourcedMetadata)
	case *rbac.Permission_RequestedServerName:
		return config.RBACExpr{Op: config.RBACServerName, String: s.at("requested_server_name").stringMatch(x.RequestedServerName)}
	case *rbac.Permission_UriTemplate:
		return s.at("uri_template").uriTemplate(x)
	}
	s.bad("not supported yet: this kind of permission (%T)", p.GetRule())
	return config.RBACExpr{}
}

func (s scope) uriTemplate(x *rbac.Permission_UriTemplate) config.RBACExpr {
	var m uritemplate.UriTemplateMatchConfig
	out := config.RBACExpr{Op: config.RBACURITemplate}
	if s.unpack(x.UriTemplate.GetName(), x.UriTemplate.GetTypedConfig(), &m) {
		re := s.at("path_template").template(m.GetPathTemplate())
		out.String = &config.StringMatch{Kind: config.MatchRegex, Value: m.GetPathTemplate(), Regex: re}
	}
	return out
}

func (s scope) sourcedMetadata(m *rbac.SourcedMetadata) config.RBACExpr {
	s = s.at("sourced_metadata")
	s.unsupported(m.GetMetadataSource() != rbac.MetadataSource_DYNAMIC, "metadata_source", m.GetMetadataSource().String())
	md := s.at("metadata_matcher").metadataMatch(m.GetMetadataMatcher())
	return config.RBACExpr{Op: config.RBACMetadata, Metadata: &md}
}
