//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	early "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice/internal/config"
)

const (
	routerURL      = "envoy.extensions.filters.http.router.v3.Router"
	routeFilterURL = "envoy.config.route.v3.FilterConfig"
)

// httpFilters converts the filters of a connection manager. The router is the
// only terminal one and must come last.
func (s scope) httpFilters(in []*hcm.HttpFilter, out *config.HTTPConnectionManager) {
	routed := false
	for i, f := range in {
		at := s.index("http_filters", i)
		if d := f.GetConfigDiscovery(); d != nil {
			out.Filters = append(out.Filters, at.discovered(f, d))
			routed = false
			continue
		}
		t, ok := at.at("typed_config").unwrap(f.GetName(), f.GetTypedConfig())
		if !ok {
			continue
		}
		if t.name == routerURL {
			if i != len(in)-1 {
				at.bad("terminal filter named %s must be the last filter in a http filter chain", f.GetName())
			}
			at.unsupported(f.GetDisabled(), "disabled", "a router that is off")
			routed = true
			at.at("typed_config").router(t, out)
			continue
		}
		if p := at.httpPolicy(f, t); p != nil {
			out.Filters = append(out.Filters, config.HTTPFilter{Name: f.GetName(), Policy: p, Disabled: f.GetDisabled()})
		}
		routed = false
	}
	if n := len(in); !routed && n > 0 {
		s.index("http_filters", n-1).bad("non-terminal filter named %s is the last filter in a http filter chain", in[n-1].GetName())
	} else if n == 0 {
		s.at("http_filters").bad("the terminal filter (envoy.filters.http.router) is missing")
	}
}

func (s scope) httpPolicy(f *hcm.HttpFilter, t typed) config.HTTPPolicy {
	if s.ignored(t.name) {
		return nil
	}
	decode, ok := s.r.HTTPFilters[t.name]
	if !ok {
		if !f.GetIsOptional() {
			s.missing(f.GetName(), t.name)
		}
		return nil
	}
	return decode(s.at("typed_config"), t)
}

// discovered is a filter whose config comes by ECDS; link fills it in.
func (s scope) discovered(f *hcm.HttpFilter, d *core.ExtensionConfigSource) config.HTTPFilter {
	s = s.at("config_discovery")
	out := config.HTTPFilter{Name: f.GetName(), Disabled: f.GetDisabled()}
	disc := &config.Discovery{
		Timeout:        s.adsSource("config_source", d.GetConfigSource()),
		WithoutWarming: d.GetApplyDefaultConfigWithoutWarming(),
	}
	for i, u := range d.GetTypeUrls() {
		url := shortURL(u)
		disc.TypeURLs = append(disc.TypeURLs, url)
		if _, ok := s.r.HTTPFilters[url]; !ok && url != typedStructUDPA && url != typedStructXDS {
			s.index("type_urls", i).missing(f.GetName(), url)
		}
	}
	if d.GetDefaultConfig() != nil {
		disc.Default = s.at("default_config").extension(f.GetName(), d.DefaultConfig)
	}
	out.Discovery = disc
	return out
}

// extension converts the config of an HTTP filter that came by itself.
func (s scope) extension(name string, a *anypb.Any) config.HTTPPolicy {
	t, ok := s.unwrap(name, a)
	if !ok {
		return nil
	}
	decode, ok := s.r.HTTPFilters[t.name]
	if !ok {
		s.missing(name, t.name)
		return nil
	}
	return decode(s, t)
}

func (s scope) router(t typed, out *config.HTTPConnectionManager) {
	var m router.Router
	if !s.decode(t, &m) {
		return
	}
	for i, f := range m.GetUpstreamHttpFilters() {
		if shortURL(f.GetTypedConfig().GetTypeUrl()) != "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec" {
			s.index("upstream_http_filters", i).bad("not supported yet: upstream HTTP filter '%s'", f.GetName())
		}
	}
	out.Router = config.Router{
		SuppressEnvoyHeaders: m.GetSuppressEnvoyHeaders(),
		DynamicStats:         boolean(m.GetDynamicStats(), true),
		StartChildSpan:       m.GetStartChildSpan(),
		StrictHeaders:        lower(m.GetStrictCheckHeaders()),
		UpstreamLogs:         s.accessLogs("upstream_log", m.GetUpstreamLog()),
		RespectExpectedRq:    m.GetRespectExpectedRqTimeout(),
	}
}

// perFilter converts typed_per_filter_config. A config of a filter we don't
// have is refused unless it says it is optional.
func (s scope) perFilter(in map[string]*anypb.Any) map[string]config.HTTPPolicy {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]config.HTTPPolicy, len(in))
	for _, name := range sortedKeys(in) {
		at := s.at("typed_per_filter_config[" + name + "]")
		t, ok := at.unwrap(name, in[name])
		if !ok {
			continue
		}
		if p := at.routePolicy(name, t, false); p != nil {
			out[name] = p
		}
	}
	return out
}

func (s scope) routePolicy(name string, t typed, optional bool) config.HTTPPolicy {
	if t.name == routeFilterURL {
		return s.routeFilter(name, t)
	}
	if s.ignored(t.name) {
		return nil
	}
	decode, ok := s.r.RouteFilters[t.name]
	if !ok {
		if !optional {
			s.missing(name, t.name)
		}
		return nil
	}
	return decode(s, t)
}

func (s scope) routeFilter(name string, t typed) config.HTTPPolicy {
	var m route.FilterConfig
	if !s.decode(t, &m) {
		return nil
	}
	if m.GetDisabled() {
		return &config.DisabledFilter{}
	}
	if m.GetConfig() == nil {
		s.at("config").bad("empty route/virtual host per filter configuration for %s filter", name)
		return nil
	}
	if m.GetConfig().GetTypeUrl() == "" {
		return &config.EnabledFilter{} // on, with the chain's own config
	}
	inner, ok := s.at("config").unwrap(name, m.GetConfig())
	if !ok {
		return nil
	}
	if inner.name == routeFilterURL {
		s.at("config").bad("a FilterConfig inside a FilterConfig")
		return nil
	}
	return s.at("config").routePolicy(name, inner, m.GetIsOptional())
}

// earlyMutations takes the one early header mutation extension there is.
func (s scope) earlyMutations(in []*core.TypedExtensionConfig) []config.HeaderMutation {
	var out []config.HeaderMutation
	for i, e := range in {
		at := s.index("early_header_mutation_extensions", i)
		var m early.HeaderMutation
		if at.unpack(e.GetName(), e.GetTypedConfig(), &m) {
			out = append(out, at.mutationList("mutations", m.GetMutations())...)
		}
	}
	return out
}
