package translate

import (
	"strings"
	"testing"
)

const (
	authzType  = `"@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz`
	authzRoute = `"@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute`
	authzHTTP  = `http_service: {server_uri: {uri: "http://z", cluster: z, timeout: 1s}}`
)

func authzFilter(rest string) string {
	return httpFilters(`{name: z, typed_config: {` + authzType + `, transport_api_version: V3, ` + rest + `}}, ` + routerOK)
}

func TestExtAuthzThatIsRefused(t *testing.T) {
	const later = ": not supported yet"
	for _, tt := range []struct{ rule, url, text, want string }{
		{"somebody is asked", ListenerURL, authzFilter(`stat_prefix: a`), "no service is asked"},
		{"a prefix is a path's", ListenerURL, authzFilter(`http_service: {server_uri: {uri: "http://z", cluster: z, timeout: 1s}, path_prefix: a}`), `path_prefix should start with "/".`},
		{"headers are listed once", ListenerURL, authzFilter(`http_service: {server_uri: {uri: "http://z", cluster: z, timeout: 1s}, authorization_request: {allowed_headers: {patterns: [{exact: a}]}}}, allowed_headers: {patterns: [{exact: a}]}`), "Invalid duplicate configuration for allowed_headers."},
		{"Google's client", ListenerURL, authzFilter(`grpc_service: {google_grpc: {target_uri: a, stat_prefix: a}}`), "google_grpc" + later},
		{"two paths", ListenerURL, authzFilter(`http_service: {server_uri: {uri: "http://z", cluster: z, timeout: 1s}, path_prefix: /a, path_override: /b}`), "path_override: only one"},
		{"a service that only watches", ListenerURL, authzFilter(authzHTTP + `, shadow_mode: true`), "shadow_mode" + later},
		{"rules for changes", ListenerURL, authzFilter(authzHTTP + `, decoder_header_mutation_rules: {}`), "decoder_header_mutation_rules" + later},
		{"another service by route", RouteURL, oneRoute(`route: {cluster: a}, typed_per_filter_config: {z: {` + authzRoute + `, check_settings: {grpc_service: {envoy_grpc: {cluster_name: a}}}}}`), "check_settings.grpc_service" + later},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if _, _, err := Default().Resource(tt.url, bytesOf(t, tt.url, tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}
