//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbac "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"sluice/internal/config"
)

func (s scope) cidr(field string, op config.RBACOp, r *core.CidrRange) config.RBACExpr {
	p, _ := s.at(field).prefix(r)
	return config.RBACExpr{Op: op, Prefix: p}
}

func (s scope) principals(field string, op config.RBACOp, in []*rbac.Principal, depth int) config.RBACExpr {
	out := config.RBACExpr{Op: op}
	for i, p := range in {
		out.Sub = append(out.Sub, s.index(field, i).principal(p, depth+1))
	}
	return out
}

func (s scope) principal(p *rbac.Principal, depth int) config.RBACExpr {
	if depth > maxRBACDepth {
		s.bad("nested more than %d levels", maxRBACDepth)
		return config.RBACExpr{}
	}
	switch x := p.GetIdentifier().(type) {
	case *rbac.Principal_AndIds:
		return s.principals("and_ids.ids", config.RBACAnd, x.AndIds.GetIds(), depth)
	case *rbac.Principal_OrIds:
		return s.principals("or_ids.ids", config.RBACOr, x.OrIds.GetIds(), depth)
	case *rbac.Principal_NotId:
		return config.RBACExpr{Op: config.RBACNot, Sub: []config.RBACExpr{s.at("not_id").principal(x.NotId, depth+1)}}
	case *rbac.Principal_Any:
		return config.RBACExpr{Op: config.RBACAny}
	case *rbac.Principal_Authenticated_:
		out := config.RBACExpr{Op: config.RBACAuthenticated}
		if n := x.Authenticated.GetPrincipalName(); n != nil {
			out.String = s.at("authenticated.principal_name").stringMatch(n)
		}
		return out
	case *rbac.Principal_SourceIp:
		return s.cidr("source_ip", config.RBACSourceIP, x.SourceIp)
	case *rbac.Principal_DirectRemoteIp:
		return s.cidr("direct_remote_ip", config.RBACDirectRemoteIP, x.DirectRemoteIp)
	case *rbac.Principal_RemoteIp:
		return s.cidr("remote_ip", config.RBACRemoteIP, x.RemoteIp)
	case *rbac.Principal_Header:
		h := s.at("header").header(x.Header)
		return config.RBACExpr{Op: config.RBACHeader, Header: &h}
	case *rbac.Principal_UrlPath:
		return config.RBACExpr{Op: config.RBACURLPath, String: s.at("url_path.path").stringMatch(x.UrlPath.GetPath())}
	case *rbac.Principal_Metadata:
		m := s.at("metadata").metadataMatch(x.Metadata)
		return config.RBACExpr{Op: config.RBACMetadata, Metadata: &m}
	case *rbac.Principal_SourcedMetadata:
		return s.sourcedMetadata(x.SourcedMetadata)
	case *rbac.Principal_FilterState:
		out := config.RBACExpr{Op: config.RBACFilterState, Key: x.FilterState.GetKey()}
		if m := x.FilterState.GetStringMatch(); m != nil {
			out.String = s.at("filter_state.string_match").stringMatch(m)
		} else {
			s.at("filter_state").bad("not supported yet: a filter state matcher other than string_match")
		}
		return out
	}
	s.bad("not supported yet: this kind of principal (%T)", p.GetIdentifier())
	return config.RBACExpr{}
}
