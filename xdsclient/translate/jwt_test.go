package translate

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
)

const (
	jwtType   = `"@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication`
	jwtRoute  = `"@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig`
	jwtSecret = `local_jwks: {inline_string: '{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"a"}]}'}`
)

func jwtFilter(rest string) string {
	return httpFilters(`{name: jwt, typed_config: {` + jwtType + `, ` + rest + `}}, ` + routerOK)
}

func jwtProviderOf(rest string) string { return jwtFilter(`providers: {p: {` + rest + `}}`) }

func jwtRuleOf(rest string) string {
	return jwtFilter(`providers: {p: {` + jwtSecret + `}}, rules: [{` + rest + `}]`)
}

func TestJWTThatIsRefused(t *testing.T) {
	const at = "typed_config.providers[p]."
	for _, tt := range []struct{ rule, url, text, want string }{
		{"a provider has keys", ListenerURL, jwtProviderOf(`issuer: i`), "value is required"},
		{"that are some", ListenerURL, jwtProviderOf(`local_jwks: {inline_string: junk}`), at + "local_jwks: invalid local jwks: Jwks is an invalid JSON"},
		{"of a kind we know", ListenerURL, jwtProviderOf(`local_jwks: {inline_string: '{"keys":[{"kty":"x"}]}'}`), at + "local_jwks: invalid local jwks: [kty] is not supported in [keys]"},
		{"in a file that is there", ListenerURL, jwtProviderOf(`local_jwks: {filename: /nowhere}`), at + "local_jwks.filename: unable to read file"},
		{"a token writes no pseudo header", ListenerURL, jwtProviderOf(jwtSecret + `, forward_payload_header: ":path"`), at + "forward_payload_header: :path can't be filled"},
		{"nor what frames a message", ListenerURL, jwtProviderOf(jwtSecret + `, claim_to_headers: [{header_name: Content-Length, claim_name: a}]`), at + "claim_to_headers[0].header_name: content-length can't be filled"},
		{"a claim has one name", ListenerURL, jwtProviderOf(jwtSecret + `, claim_to_headers: [{header_name: a, claim_name: a, claim_path: [{key: b}]}]`), at + "claim_to_headers[0]: exactly one of claim_name and claim_path"},
		{"a fetch has a timeout", ListenerURL, jwtProviderOf(`remote_jwks: {http_uri: {uri: http://h/k, cluster: c}}`), "timeout"},
		{"a back-off grows", ListenerURL, jwtProviderOf(`remote_jwks: {http_uri: {uri: http://h/k, cluster: c, timeout: 1s}, retry_policy: {retry_back_off: {base_interval: 2s, max_interval: 1s}}}`), "retry_back_off: max_interval must be greater"},
		{"a requirement's provider is there", ListenerURL, jwtRuleOf(`match: {prefix: /}, requires: {requires_any: {requirements: [{provider_name: p}, {provider_name: q}]}}`), "rules[0].requires.requires_any.requirements[1].provider_name: Required provider ['q'] is not configured."},
		{"a rule's requirement is there", ListenerURL, jwtRuleOf(`match: {prefix: /}, requirement_name: r`), "rules[0].requirement_name: Wrong requirement_name: r"},
		{"tokens are validated", ListenerURL, jwtRuleOf(`match: {prefix: /}, requires: {extract_only_without_validation: {}}`), "rules[0].requires: not supported yet"},
		{"a rule's match is as narrow as it says", ListenerURL, jwtRuleOf(`match: {prefix: /, grpc: {}}`), "rules[0].match.grpc: not supported yet"},
		{"requirements by filter state are not skipped", ListenerURL, jwtFilter(`filter_state_rules: {name: s, requires: {}}`), "filter_state_rules: not supported yet"},
		{"a route says something", RouteURL, oneRoute(`route: {cluster: a}, typed_per_filter_config: {jwt: {` + jwtRoute + `}}`), "value is required"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if _, _, err := Default().Resource(tt.url, bytesOf(t, tt.url, tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestJWTAsIstioWritesIt(t *testing.T) {
	got := manager(t, jwtFilter(`providers: {origins-0: {issuer: i, audiences: [b], `+jwtSecret+`, forward: true, payload_in_metadata: payload,
  normalize_payload_in_metadata: {space_delimited_claims: [permission, scope]}, claim_to_headers: [{header_name: X-C, claim_name: a.b}]}},
  rules: [{match: {prefix: /}, requires: {requires_any: {requirements: [{provider_name: origins-0}, {allow_missing: {}}]}}}], bypass_cors_preflight: true`)).Filters[0].Policy
	want := &config.JWT{BypassPreflight: true, Requirements: map[string]*config.JWTRequirement{},
		Providers: []config.JWTProvider{{Name: "origins-0", Issuer: "i", Audiences: []string{"b"}, ClockSkew: 60, Forward: true,
			Keys: []config.JWK{{ID: "a", Secret: []byte("secret")}}, PayloadKey: "payload", SpaceDelimited: []string{"permission", "scope"},
			Claims:  []config.ClaimHeader{{Header: "x-c", Path: []string{"a", "b"}}},
			Headers: []config.JWTHeader{{Name: "authorization", Prefix: "Bearer "}}, Params: []string{"access_token"}}},
		Rules: []config.JWTRule{{Match: config.RouteMatch{Path: "/"},
			Requires: &config.JWTRequirement{Op: config.JWTAny, Sub: []config.JWTRequirement{{}, {Op: config.JWTAllowMissing}}}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestRemoteKeys(t *testing.T) {
	remote := func(rest string) *config.RemoteJWKS {
		return manager(t, jwtProviderOf(`from_cookies: [c], remote_jwks: {`+rest+`}`)).Filters[0].Policy.(*config.JWT).Providers[0].Remote
	}
	got := remote(`http_uri: {uri: "https://h:1/k?x=1", cluster: c, timeout: 2s}`)
	want := &config.RemoteJWKS{Cluster: "c", Scheme: "https", Host: "h:1", Path: "/k?x=1", Timeout: 2 * time.Second, Cache: 10 * time.Minute}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = remote(`http_uri: {uri: http://h, cluster: c, timeout: 2s}, cache_duration: 60s, async_fetch: {fast_listener: true}, retry_policy: {}`)
	want = &config.RemoteJWKS{Cluster: "c", Scheme: "http", Host: "h", Path: "/", Timeout: 2 * time.Second, Cache: time.Minute,
		Retries: config.Retries{Max: 1, Base: time.Second, MaxInterval: 10 * time.Second}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
