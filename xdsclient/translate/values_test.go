package translate

import (
	"crypto/tls"
	"reflect"
	"testing"
	"time"

	"sluice/internal/config"
)

// take translates a resource that must be good.
func take[V any](t *testing.T, url, text string) V {
	t.Helper()
	v, _, err := Default().Resource(url, bytesOf(t, url, text))
	if err != nil {
		t.Fatal(err)
	}
	return v.(V)
}

func manager(t *testing.T, text string) *config.HTTPConnectionManager {
	t.Helper()
	l := take[*config.Listener](t, ListenerURL, text)
	return l.Chains[0].Filters[len(l.Chains[0].Filters)-1].(*config.HTTPConnectionManager)
}

func TestAbsentFieldsHaveEnvoysDefaults(t *testing.T) {
	h := manager(t, httpFilters(routerOK))
	got := []any{h.StreamIdleTimeout, h.DrainTimeout, h.DelayedCloseTimeout, h.IdleTimeout, h.MaxHeaders, h.MaxHeadersKB, h.ServerName, h.GenerateRequestID, h.HTTP2.MaxConcurrentStreams, h.HTTP2.InitialStreamWindow, h.HTTP1.AllowAbsoluteURL}
	want := []any{5 * time.Minute, 5 * time.Second, time.Second, time.Hour, 100, 60, "envoy", true, uint32(1024), uint32(16 << 20), true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("connection manager: got %v, want %v", got, want)
	}
	c := take[*config.Cluster](t, ClusterURL, `{name: c}`)
	got = []any{c.ConnectTimeout, c.BufferLimit, c.Breakers[0].Connections, c.Breakers[0].Retries, c.LBCommon.PanicThreshold, c.IdleTimeout, c.DNS.Refresh}
	want = []any{5 * time.Second, 1 << 20, uint32(1024), uint32(3), 50.0, time.Hour, 5 * time.Second}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("cluster: got %v, want %v", got, want)
	}
	r := take[*config.RouteConfiguration](t, RouteURL, oneRoute(`route: {cluster: a}`)).VirtualHosts[0].Routes[0]
	if r.Action.Timeout != 15*time.Second || r.Action.NotFoundStatus != 503 || r.Action.Retry != nil || r.RetryBufferLimit != -1 {
		t.Errorf("route: %+v", r.Action)
	}
	l := take[*config.Listener](t, ListenerURL, httpFilters(routerOK))
	if !l.BindToPort || l.FiltersTimeout != 15*time.Second || l.StatPrefix != "" {
		t.Errorf("listener: %+v", l)
	}
}

func TestTLSVersionsDependOnTheDirection(t *testing.T) {
	c := take[*config.Cluster](t, ClusterURL, `{name: c, `+tlsSocket(`alpn_protocols: [h2]`)+`}`)
	if c.TLS.Min != tls.VersionTLS12 || c.TLS.Max != tls.VersionTLS12 {
		t.Errorf("client: %x to %x, Envoy stops at TLS 1.2", c.TLS.Min, c.TLS.Max)
	}
	c = take[*config.Cluster](t, ClusterURL, `{name: c, `+tlsSocket(`tls_params: {tls_maximum_protocol_version: TLSv1_3, cipher_suites: ["[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-RSA-AES128-GCM-SHA256]", AES128-GCM-SHA256]}`)+`}`)
	want := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_128_GCM_SHA256}
	if c.TLS.Max != tls.VersionTLS13 || !reflect.DeepEqual(c.TLS.Ciphers, want) {
		t.Errorf("got %x, %v", c.TLS.Max, c.TLS.Ciphers)
	}
}

func TestFilterDisabledBecomesPortRanges(t *testing.T) {
	tests := map[string]struct {
		predicate string
		on, off   []uint16
	}{
		"one range":    {`destination_port_range: {start: 80, end: 82}`, []uint16{79, 82}, []uint16{80, 81}},
		"a union":      {`or_match: {rules: [{destination_port_range: {start: 80, end: 81}}, {destination_port_range: {start: 90, end: 91}}]}`, []uint16{81, 89}, []uint16{80, 90}},
		"a complement": {`not_match: {destination_port_range: {start: 80, end: 81}}`, []uint16{80}, []uint16{0, 79, 81, 65535}},
		"an intersection": {`and_match: {rules: [{destination_port_range: {start: 80, end: 90}}, {destination_port_range: {start: 85, end: 95}}]}`,
			[]uint16{84, 90}, []uint16{85, 89}},
		"everything": {`any_match: true`, nil, []uint16{1, 65535}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := take[*config.Listener](t, ListenerURL, `{name: l, `+addressOK+`, listener_filters: [{name: tls, filter_disabled: {`+tt.predicate+
				`}, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}], filter_chains: [{filters: [`+tcpOK+`]}]}`)
			for _, p := range tt.on {
				if l.Filters.TLSInspector.Disabled(p) {
					t.Errorf("port %d is off", p)
				}
			}
			for _, p := range tt.off {
				if !l.Filters.TLSInspector.Disabled(p) {
					t.Errorf("port %d is on", p)
				}
			}
		})
	}
}

func TestFormatStrings(t *testing.T) {
	type item = config.FormatItem
	tests := map[string][]item{
		"plain":                          {{Text: "plain"}},
		"a%%b":                           {{Text: "a%b"}},
		"%PROTOCOL%":                     {{Op: "PROTOCOL"}},
		"x%REQ(X-A?:PATH):10%y":          {{Text: "x"}, {Op: "REQ", Arg: "x-a", Alt: ":path", Max: 10}, {Text: "y"}},
		"%DYNAMIC_METADATA(ns:a:b)%":     {{Op: "DYNAMIC_METADATA", Arg: "ns", Path: []string{"a", "b"}}},
		"%METADATA(ROUTE:ns:a)%":         {{Op: "METADATA", Arg: "ns", Alt: "ROUTE", Path: []string{"a"}}},
		`%UPSTREAM_METADATA(["n","k"])%`: {{Op: "UPSTREAM_METADATA", Arg: "n", Path: []string{"k"}}},
		"%START_TIME(%Y/%m/%d)%":         {{Op: "START_TIME", Arg: "%Y/%m/%d"}},
		"%FILTER_STATE(k:PLAIN)%":        {{Op: "FILTER_STATE", Arg: "k:PLAIN"}},
	}
	for text, want := range tests {
		s := Default().scope("")
		got := s.format(text)
		if err := s.out.err(); err != nil || !reflect.DeepEqual(got.Items, want) {
			t.Errorf("%s: got %+v, %v, want %+v", text, got.Items, err, want)
		}
	}
	for _, text := range []string{"%", "100%", "%%%", "%REQ(", "%REQ()%", "%REQ%", "%REQ(a?b?c)%", "%REQ(a):z%", "% REQ(a)%", "%PROTOCOL(x)%", "%NOPE%", "%METADATA(NONE:a:b)%", "%req(a)%"} {
		s := Default().scope("")
		s.format(text)
		if s.out.err() == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func TestRewritesUseGosSubstitution(t *testing.T) {
	tests := []struct{ pattern, substitution, in, want string }{
		{`^/a/(.*)$`, `/b/\1`, "/a/x", "/b/x"},
		{`a`, `$1`, "a", "$1"},
		{`(a)(b)`, `\2\1\\`, "ab", `ba\`},
		{`a`, `\1`, "xa", "xa"}, // no such group: RE2 replaces nothing
	}
	for _, tt := range tests {
		r := take[*config.RouteConfiguration](t, RouteURL, oneRoute(`route: {cluster: a, regex_rewrite: {pattern: {regex: '`+tt.pattern+`'}, substitution: '`+tt.substitution+`'}}`))
		rw := r.VirtualHosts[0].Routes[0].Action.RegexRewrite
		if got := rw.Regex.ReplaceAllString(tt.in, rw.Substitution); got != tt.want {
			t.Errorf("%s by %s: got %s, want %s", tt.pattern, tt.substitution, got, tt.want)
		}
	}
}

func TestURITemplates(t *testing.T) {
	tests := []struct {
		template string
		yes, no  []string
	}{
		{"/a/*/c", []string{"/a/b/c"}, []string{"/a/c", "/a/b/d/c", "/a//c"}},
		{"/a/**", []string{"/a/", "/a/b/c"}, []string{"/b"}},
		{"/{x}/{y=b/*}", []string{"/a/b/c"}, []string{"/a/c/c"}},
		{"/mid/**/end", []string{"/mid/a/end", "/mid/a/b/end", "/mid//end"}, []string{"/mid/end", "/mid/a/end/x"}},
		{"/a/{x=**}/b", []string{"/a/q/b"}, []string{"/a/b"}},
		{"/a/**/*", nil, nil},
		{"/a/**/{x}", nil, nil},
		{"/a/*.txt", nil, nil},
	}
	for _, tt := range tests {
		s := Default().scope("")
		re := s.template(tt.template)
		if re == nil {
			if len(tt.yes) > 0 {
				t.Errorf("%s: %v", tt.template, s.out.err())
			}
			continue
		}
		for _, p := range tt.yes {
			if !re.MatchString(p) {
				t.Errorf("%s doesn't match %s", tt.template, p)
			}
		}
		for _, p := range tt.no {
			if re.MatchString(p) {
				t.Errorf("%s matches %s", tt.template, p)
			}
		}
	}
}
