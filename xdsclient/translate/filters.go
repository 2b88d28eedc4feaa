package translate

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonfault "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	buffer "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	cors "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	csrf "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/csrf/v3"
	fault "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcstats "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	grpcweb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	headermutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	healthcheck "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/internal/config"
)

func faultFilter(s scope, t typed) config.HTTPPolicy {
	var m fault.HTTPFault
	if !s.decode(t, &m) {
		return nil
	}
	out := &config.Fault{
		Headers:         s.headers("headers", m.GetHeaders()),
		UpstreamCluster: m.GetUpstreamCluster(),
		DownstreamNodes: m.GetDownstreamNodes(),
		MaxActive:       capped(u32(m.GetMaxActiveFaults(), 0)),
		NoStats:         m.GetDisableDownstreamClusterStats(),
	}
	if d := m.GetDelay(); d != nil {
		out.Delay = &config.FaultDelay{
			Fixed:      s.duration("delay.fixed_delay", d.GetFixedDelay(), 0),
			FromHeader: d.GetHeaderDelay() != nil,
			Percent:    fraction(d.GetPercentage()),
		}
	}
	if a := m.GetAbort(); a != nil {
		out.Abort = faultAbort(a)
	}
	if l := m.GetResponseRateLimit(); l != nil {
		out.ResponseRate = faultRate(l)
	}
	return out
}

func faultAbort(a *fault.FaultAbort) *config.FaultAbort {
	out := &config.FaultAbort{GRPCStatus: -1, Percent: fraction(a.GetPercentage())}
	switch x := a.GetErrorType().(type) {
	case *fault.FaultAbort_HttpStatus:
		out.HTTPStatus = capped(x.HttpStatus)
	case *fault.FaultAbort_GrpcStatus:
		out.GRPCStatus = capped(x.GrpcStatus)
	case *fault.FaultAbort_HeaderAbort_:
		out.FromHeader = true
	}
	return out
}

func faultRate(l *commonfault.FaultRateLimit) *config.FaultRate {
	return &config.FaultRate{
		KiBPerSecond: l.GetFixedLimit().GetLimitKbps(),
		FromHeader:   l.GetHeaderLimit() != nil,
		Percent:      fraction(l.GetPercentage()),
	}
}

func corsFilter(s scope, t typed) config.HTTPPolicy {
	var m cors.Cors
	if !s.decode(t, &m) {
		return nil
	}
	return &config.CORS{}
}

func corsPolicy(s scope, t typed) config.HTTPPolicy {
	var m cors.CorsPolicy
	if !s.decode(t, &m) {
		return nil
	}
	out := &config.CORS{
		Origins:           s.stringMatches("allow_origin_string_match", m.GetAllowOriginStringMatch()),
		Methods:           m.GetAllowMethods(),
		Headers:           m.GetAllowHeaders(),
		Expose:            m.GetExposeHeaders(),
		MaxAge:            m.GetMaxAge(),
		Credentials:       optionalBool(m.GetAllowCredentials()),
		PrivateNetwork:    optionalBool(m.GetAllowPrivateNetworkAccess()),
		ForwardNotMatched: optionalBool(m.GetForwardNotMatchingPreflights()),
		Enabled:           config.Percent{PerMillion: 1000000},
	}
	if f := m.GetFilterEnabled(); f != nil {
		out.Enabled = fraction(f.GetDefaultValue())
	}
	if f := m.GetShadowEnabled(); f != nil {
		out.Shadow = fraction(f.GetDefaultValue())
	}
	return out
}

func optionalBool(v *wrapperspb.BoolValue) *bool {
	if v == nil {
		return nil
	}
	b := v.Value
	return &b
}

func grpcStats(s scope, t typed) config.HTTPPolicy {
	var m grpcstats.FilterConfig
	if !s.decode(t, &m) {
		return nil
	}
	p := &config.GRPCStats{
		EmitFilterState: m.GetEmitFilterState(),
		AllMethods:      boolean(m.GetStatsForAllMethods(), false),
		Upstream:        m.GetEnableUpstreamStats(),
	}
	for _, v := range m.GetIndividualMethodStatsAllowlist().GetServices() {
		if p.Methods == nil {
			p.Methods = make(map[string][]string)
		}
		p.Methods[v.GetName()] = append(p.Methods[v.GetName()], v.GetMethodNames()...)
	}
	return p
}

func grpcWeb(s scope, t typed) config.HTTPPolicy {
	var m grpcweb.GrpcWeb
	if !s.decode(t, &m) {
		return nil
	}
	return &config.GRPCWeb{}
}

func bufferFilter(s scope, t typed) config.HTTPPolicy {
	var m buffer.Buffer
	if !s.decode(t, &m) {
		return nil
	}
	return &config.Buffer{MaxBytes: capped(u32(m.GetMaxRequestBytes(), 0))}
}

func routeBuffer(s scope, t typed) config.HTTPPolicy {
	var m buffer.BufferPerRoute
	if !s.decode(t, &m) {
		return nil
	}
	if m.GetDisabled() {
		return &config.DisabledFilter{}
	}
	return &config.Buffer{MaxBytes: capped(u32(m.GetBuffer().GetMaxRequestBytes(), 0))}
}

func csrfFilter(s scope, t typed) config.HTTPPolicy {
	var m csrf.CsrfPolicy
	if !s.decode(t, &m) {
		return nil
	}
	return &config.CSRF{
		Enabled: fraction(m.GetFilterEnabled().GetDefaultValue()),
		Shadow:  fraction(m.GetShadowEnabled().GetDefaultValue()),
		Origins: s.stringMatches("additional_origins", m.GetAdditionalOrigins()),
	}
}

func healthCheck(s scope, t typed) config.HTTPPolicy {
	var m healthcheck.HealthCheck
	if !s.decode(t, &m) {
		return nil
	}
	out := &config.HealthCheckFilter{PassThrough: boolean(m.GetPassThroughMode(), false), Headers: s.headers("headers", m.GetHeaders())}
	for _, name := range sortedKeys(m.GetClusterMinHealthyPercentages()) {
		out.Clusters = append(out.Clusters, config.MinHealthy{Cluster: name, Percent: percent(m.GetClusterMinHealthyPercentages()[name], 0)})
	}
	s.unsupported(m.GetCacheTime() != nil, "cache_time", "answers remembered for health checks")
	return out
}

func headerMutation(s scope, t typed) config.HTTPPolicy {
	var m headermutation.HeaderMutation
	if !s.decode(t, &m) {
		return nil
	}
	out := s.at("mutations").headerMutation(m.GetMutations())
	out.MostSpecificWins = m.GetMostSpecificHeaderMutationsWins()
	return out
}

func routeHeaderMutation(s scope, t typed) config.HTTPPolicy {
	var m headermutation.HeaderMutationPerRoute
	if !s.decode(t, &m) {
		return nil
	}
	return s.at("mutations").headerMutation(m.GetMutations())
}

func (s scope) headerMutation(m *headermutation.Mutations) *config.HeaderMutationFilter {
	s.unsupported(len(m.GetResponseTrailersMutations()) > 0, "response_trailers_mutations", "trailer mutations")
	s.unsupported(len(m.GetRequestTrailersMutations()) > 0, "request_trailers_mutations", "trailer mutations")
	s.unsupported(len(m.GetFormatters()) > 0, "formatters", "formatters by extension")
	return &config.HeaderMutationFilter{
		Request:  s.mutationList("request_mutations", m.GetRequestMutations()),
		Response: s.mutationList("response_mutations", m.GetResponseMutations()),
		Query:    s.queryMutations("query_parameter_mutations", m.GetQueryParameterMutations()),
	}
}

func (s scope) queryMutations(field string, in []*core.KeyValueMutation) []config.QueryMutation {
	var out []config.QueryMutation
	for i, m := range in {
		at := s.index(field, i)
		a := m.GetAppend()
		_, text := a.GetRecord().GetValue().GetKind().(*structpb.Value_StringValue)
		switch {
		case a == nil && m.GetRemove() != "":
			out = append(out, config.QueryMutation{Remove: m.GetRemove()})
		case a == nil:
			at.bad("No mutation specified.")
		case a.GetRecord() == nil:
			at.at("append").bad("No record specified for query parameter mutation.")
		case !text:
			at.at("append.record.value").bad("Only string value is allowed for query parameter.")
		default:
			out = append(out, config.QueryMutation{Name: a.GetRecord().GetKey(), Action: config.HeaderAppendAction(a.GetAction()),
				Value: at.at("append.record.value").format(a.GetRecord().GetValue().GetStringValue())})
		}
	}
	return out
}
