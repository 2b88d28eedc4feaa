package translate

import (
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	jwt "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"

	"sluice/internal/config"
	"sluice/internal/jwks"
)

func jwtAuthn(s scope, t typed) config.HTTPPolicy {
	var m jwt.JwtAuthentication
	if !s.decode(t, &m) {
		return nil
	}
	s.unsupported(m.GetFilterStateRules() != nil, "filter_state_rules", "requirements by filter state")
	out := &config.JWT{BypassPreflight: m.GetBypassCorsPreflight(), StripFailure: m.GetStripFailureResponse(), StatPrefix: m.GetStatPrefix(),
		Requirements: map[string]*config.JWTRequirement{}}
	names := sortedKeys(m.GetProviders())
	for _, n := range names {
		p := s.at("providers[" + n + "]").jwtProvider(m.GetProviders()[n])
		p.Name = n
		out.Providers = append(out.Providers, p)
	}
	for n, r := range m.GetRequirementMap() {
		q := s.at("requirement_map["+n+"]").requirement(r, names, 0)
		out.Requirements[n] = &q
	}
	for i, r := range m.GetRules() {
		out.Rules = append(out.Rules, s.index("rules", i).jwtRule(r, names, out.Requirements))
	}
	return out
}

func routeJWT(s scope, t typed) config.HTTPPolicy {
	var m jwt.PerRouteConfig
	if !s.decode(t, &m) {
		return nil
	}
	return &config.JWTRoute{Disabled: m.GetDisabled(), Requirement: m.GetRequirementName()}
}

func (s scope) jwtRule(m *jwt.RequirementRule, providers []string, named map[string]*config.JWTRequirement) config.JWTRule {
	match := s.at("match")
	r := m.GetMatch()
	match.unsupported(len(r.GetCookies()) > 0, "cookies", "tokens by cookies of the request")
	match.unsupported(r.GetGrpc() != nil, "grpc", "tokens of gRPC requests only")
	match.unsupported(r.GetRuntimeFraction() != nil, "runtime_fraction", "tokens of a share of requests")
	match.unsupported(r.GetTlsContext() != nil, "tls_context", "tokens by the client's certificate")
	match.unsupported(len(r.GetDynamicMetadata()) > 0, "dynamic_metadata", "tokens by metadata")
	out := config.JWTRule{Match: match.routeMatch(r)}
	switch x := m.GetRequirementType().(type) {
	case *jwt.RequirementRule_Requires:
		q := s.at("requires").requirement(x.Requires, providers, 0)
		out.Requires = &q
	case *jwt.RequirementRule_RequirementName:
		q := named[x.RequirementName]
		if q == nil {
			s.at("requirement_name").bad("Wrong requirement_name: %s", x.RequirementName)
		}
		out.Requires = q
	}
	return out
}

// maxRequirement bounds how deep requirements may be nested.
const maxRequirement = 32

func (s scope) requirement(m *jwt.JwtRequirement, providers []string, depth int) config.JWTRequirement {
	var out config.JWTRequirement
	if depth > maxRequirement {
		s.bad("nested more than %d levels", maxRequirement)
		return out
	}
	several := func(field string, list []*jwt.JwtRequirement) (sub []config.JWTRequirement) {
		for i, r := range list {
			sub = append(sub, s.at(field).index("requirements", i).requirement(r, providers, depth+1))
		}
		return sub
	}
	switch x := m.GetRequiresType().(type) {
	case *jwt.JwtRequirement_ProviderName:
		out.Provider = s.provider("provider_name", x.ProviderName, providers)
	case *jwt.JwtRequirement_ProviderAndAudiences:
		out.Provider = s.at("provider_and_audiences").provider("provider_name", x.ProviderAndAudiences.GetProviderName(), providers)
		out.Audiences = x.ProviderAndAudiences.GetAudiences()
	case *jwt.JwtRequirement_RequiresAny:
		out.Op, out.Sub = config.JWTAny, several("requires_any", x.RequiresAny.GetRequirements())
	case *jwt.JwtRequirement_RequiresAll:
		out.Op, out.Sub = config.JWTAll, several("requires_all", x.RequiresAll.GetRequirements())
	case *jwt.JwtRequirement_AllowMissing:
		out.Op = config.JWTAllowMissing
	case *jwt.JwtRequirement_AllowMissingOrFailed:
		out.Op = config.JWTAllowFailed
	case nil: // Envoy: nothing is required
		out.Op = config.JWTAll
	default:
		s.bad("not supported yet: this kind of requirement")
	}
	return out
}

func (s scope) provider(field, name string, providers []string) int {
	i := slices.Index(providers, name)
	if i < 0 {
		s.at(field).bad("Required provider ['%s'] is not configured.", name)
	}
	return i
}

func (s scope) jwtProvider(m *jwt.JwtProvider) config.JWTProvider {
	out := config.JWTProvider{
		Issuer: m.GetIssuer(), Audiences: m.GetAudiences(),
		RequireExpiration: m.GetRequireExpiration(), MaxLifetime: s.optional("max_lifetime", m.GetMaxLifetime()), ClockSkew: uint64(m.GetClockSkewSeconds()),
		Params: m.GetFromParams(), Cookies: m.GetFromCookies(),
		Forward: m.GetForward(), PadPayload: m.GetPadForwardPayloadHeader(), ClearRoute: m.GetClearRouteCache(),
		PayloadKey: m.GetPayloadInMetadata(), HeaderKey: m.GetHeaderInMetadata(), FailureKey: m.GetFailedStatusInMetadata(),
		SpaceDelimited: m.GetNormalizePayloadInMetadata().GetSpaceDelimitedClaims(),
	}
	if out.ClockSkew == 0 {
		out.ClockSkew = 60
	}
	if m.GetSubjects() != nil {
		out.Subject = s.at("subjects").stringMatch(m.GetSubjects())
	}
	if h := m.GetForwardPayloadHeader(); h != "" {
		out.PayloadHeader = s.written("forward_payload_header", h)
	}
	for i, c := range m.GetClaimToHeaders() {
		out.Claims = append(out.Claims, s.index("claim_to_headers", i).claimHeader(c))
	}
	s.tokenPlaces(m, &out)
	switch x := m.GetJwksSourceSpecifier().(type) {
	case *jwt.JwtProvider_LocalJwks:
		out.Keys = s.at("local_jwks").localKeys(x.LocalJwks)
	case *jwt.JwtProvider_RemoteJwks:
		out.Remote = s.at("remote_jwks").remoteKeys(x.RemoteJwks)
	}
	return out
}

// tokenPlaces says where tokens are: the two usual places without a word.
func (s scope) tokenPlaces(m *jwt.JwtProvider, out *config.JWTProvider) {
	for _, h := range m.GetFromHeaders() {
		out.Headers = append(out.Headers, config.JWTHeader{Name: strings.ToLower(h.GetName()), Prefix: h.GetValuePrefix()})
	}
	if len(out.Headers)+len(out.Params)+len(out.Cookies) == 0 {
		out.Headers = []config.JWTHeader{{Name: "authorization", Prefix: "Bearer "}}
		out.Params = []string{"access_token"}
	}
}

// localKeys reads inline keys. Empty text is a set without keys, as in Envoy: all
// tokens fail.
func (s scope) localKeys(d *core.DataSource) []config.JWK {
	b, ok := s.data(d)
	if !ok || len(b) == 0 {
		return nil
	}
	keys, err := jwks.Parse(b)
	if err != nil {
		s.bad("invalid local jwks: %v", err)
	}
	return keys
}

// remoteKeys says where keys are fetched. async_fetch only has them there sooner:
// they are fetched with the first token that needs them.
func (s scope) remoteKeys(m *jwt.RemoteJwks) *config.RemoteJWKS {
	u := m.GetHttpUri()
	out := &config.RemoteJWKS{Cluster: u.GetCluster(), Scheme: "http", Timeout: s.at("http_uri").duration("timeout", u.GetTimeout(), 0),
		Cache: s.duration("cache_duration", m.GetCacheDuration(), 10*time.Minute)}
	out.Host, out.Path = splitURL(u.GetUri())
	if strings.HasPrefix(u.GetUri(), "https:") {
		out.Scheme = "https"
	}
	out.Retries = s.at("retry_policy").ownRetries(m.GetRetryPolicy())
	return out
}

// ownRetries are those of a request of our own. Which failures count isn't asked:
// all do, and every 5xx.
func (s scope) ownRetries(m *core.RetryPolicy) (out config.Retries) {
	if m == nil {
		return out
	}
	out.Max = int(min(u32(m.GetNumRetries(), 1), maxOwnRetries))
	at := s.at("retry_back_off")
	out.Base = at.duration("base_interval", m.GetRetryBackOff().GetBaseInterval(), time.Second)
	out.MaxInterval = at.duration("max_interval", m.GetRetryBackOff().GetMaxInterval(), 10*out.Base)
	if out.MaxInterval < out.Base {
		at.bad("max_interval must be greater than or equal to the base_interval")
	}
	return out
}

// maxOwnRetries is more than fit into any timeout.
const maxOwnRetries = 100

func (s scope) claimHeader(m *jwt.JwtClaimToHeader) config.ClaimHeader {
	out := config.ClaimHeader{Header: s.written("header_name", m.GetHeaderName())}
	for _, p := range m.GetClaimPath() {
		out.Path = append(out.Path, p.GetKey())
	}
	switch {
	case (len(out.Path) > 0) == (m.GetClaimName() != ""):
		s.bad("exactly one of claim_name and claim_path must be set")
	case len(out.Path) == 0:
		out.Path = strings.Split(m.GetClaimName(), ".")
	}
	return out
}

// written is a header that a token fills; those that frame and route a message
// are not for tokens.
func (s scope) written(field, name string) string {
	name = strings.ToLower(name)
	switch {
	case strings.HasPrefix(name, ":"), name == "host", name == "content-length", name == "transfer-encoding", name == "connection":
		s.at(field).bad("%s can't be filled by a token", name)
	}
	return name
}
