package translate

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
)

const localRate = `"@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: p`

func localRateFilter(rest string) string {
	return httpFilters(`{name: rl, typed_config: {` + localRate + rest + `}}, ` + routerOK)
}

func TestLocalRateLimitsThatAreRefused(t *testing.T) {
	const bucket = `token_bucket: {max_tokens: 1, fill_interval: 1s}`
	for _, tt := range []struct{ rule, url, text, want string }{
		{"a bucket fills no faster than each 50 ms", ListenerURL, localRateFilter(`, token_bucket: {max_tokens: 1, fill_interval: 0.04s}`), "typed_config.token_bucket.fill_interval: local rate limit token bucket fill timer must be >= 50ms"},
		{"nor does a descriptor's", ListenerURL, localRateFilter(`, descriptors: [{entries: [{key: k}], token_bucket: {max_tokens: 1, fill_interval: 0.04s}}]`), "descriptors[0].token_bucket.fill_interval"},
		{"a route's limit has a bucket", RouteURL, oneRoute(`route: {cluster: a}, typed_per_filter_config: {rl: {` + localRate + `}}`), "token_bucket: local rate limit token bucket must be set for per filter configs"},
		{"no two descriptors are the same", ListenerURL, localRateFilter(`, descriptors: [{entries: [{key: k, value: v}], ` + bucket + `}, {entries: [{key: k, value: v}], ` + bucket + `}]`), "descriptors[1]: duplicate descriptor"},
		{"the filter's own rate limits have no stage", ListenerURL, localRateFilter(`, rate_limits: [{stage: 1, actions: [{remote_address: {}}]}]`), "rate_limits[0]: 'stage' field"},
		{"and no limit", ListenerURL, localRateFilter(`, rate_limits: [{limit: {dynamic_metadata: {metadata_key: {key: a, path: [{key: b}]}}}, actions: [{remote_address: {}}]}]`), "rate_limits[0].limit"},
		{"an action we lack is named", RouteURL, oneRoute(`route: {cluster: a, rate_limits: [{actions: [{remote_address: {}}, {destination_cluster: {}}]}]}`), "route.rate_limits[0].actions[1]: not supported yet: the rate limit action destination_cluster"},
		{"a virtual host's too", RouteURL, `{name: r, virtual_hosts: [{name: v, domains: ["*"], rate_limits: [{actions: [{source_cluster: {}}]}]}]}`, "virtual_hosts[0].rate_limits[0].actions[0]"},
		{"requests count once", RouteURL, oneRoute(`route: {cluster: a, rate_limits: [{hits_addend: {number: 2}, actions: [{remote_address: {}}]}]}`), "hits_addend: not supported yet"},
		{"a local cluster is none of ours", ListenerURL, localRateFilter(`, local_cluster_rate_limit: {}`), "local_cluster_rate_limit: not supported yet"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if _, _, err := Default().Resource(tt.url, bytesOf(t, tt.url, tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestLocalRateLimitByDefaultCountsNothing(t *testing.T) {
	got := manager(t, localRateFilter(``)).Filters[0].Policy
	want := &config.LocalRateLimit{StatPrefix: "p", Status: 429, MaxDynamic: 20}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRateLimitsOfARoute(t *testing.T) {
	r := take[*config.RouteConfiguration](t, RouteURL, `{name: r, virtual_hosts: [{name: v, domains: ["*"], rate_limits: [{actions: [{generic_key: {descriptor_value: host}}]}],
  routes: [{match: {prefix: /}, route: {cluster: a, include_vh_rate_limits: true, rate_limits: [
    {stage: 3, actions: [{request_headers: {header_name: X-User, descriptor_key: user, skip_if_absent: true}}, {query_parameters: {query_parameter_name: q, descriptor_key: k}}]},
    {actions: [{masked_remote_address: {v4_prefix_mask_len: 24}}, {header_value_match: {descriptor_value: h, expect_match: false, headers: [{name: x, present_match: true}]}}]},
    {disable_key: k, actions: [{remote_address: {}}]}]}}]}]}`)
	v := r.VirtualHosts[0]
	if want := []config.RateLimit{{Actions: []config.RateAction{{Key: "generic_key", Value: "host"}}}}; !reflect.DeepEqual(v.RateLimits, want) {
		t.Errorf("virtual host: %+v", v.RateLimits)
	}
	a := v.Routes[0].Action
	want := []config.RateLimit{
		{Stage: 3, Actions: []config.RateAction{{Source: config.RateRequestHeader, Key: "user", Name: "x-user", SkipAbsent: true}, {Source: config.RateQueryParam, Key: "k", Name: "q"}}},
		{Actions: []config.RateAction{{Source: config.RateMaskedRemote, Key: "masked_remote_address", Masked: 24, Masked6: 128},
			{Source: config.RateHeaderMatch, Key: "header_match", Value: "h", Unless: true, Headers: []config.HeaderMatch{{Name: "x", Present: true}}}}},
	}
	if !a.WithHostLimits || !reflect.DeepEqual(a.RateLimits, want) {
		t.Errorf("route: %+v", a.RateLimits)
	}
}

func TestTokenBucketDefaults(t *testing.T) {
	p := manager(t, localRateFilter(`, token_bucket: {max_tokens: 7, fill_interval: 60s}`)).Filters[0].Policy.(*config.LocalRateLimit)
	if want := (config.TokenBucket{Max: 7, Fill: 1, Interval: time.Minute}); *p.Bucket != want {
		t.Errorf("got %+v, want %+v", *p.Bucket, want)
	}
}
