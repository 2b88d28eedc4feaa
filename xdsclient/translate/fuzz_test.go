package translate

import (
	"strings"
	"testing"
)

// fuzzResource feeds broken and odd resources of one type: whatever comes, there
// is a value or a bounded error, and never a panic.
func fuzzResource(f *testing.F, url string) {
	seeds := 0
	for _, c := range corpus(f) {
		if c.url == url && seeds < 40 {
			f.Add(c.body)
			seeds++
		}
	}
	r := Default()
	r.ReadFile = func(string) ([]byte, error) { return nil, nil }
	f.Fuzz(func(t *testing.T, b []byte) {
		v, _, err := r.Resource(url, b)
		switch {
		case err == nil && v == nil:
			t.Error("neither value nor error")
		case err != nil && v != nil:
			t.Error("value and error")
		case err != nil && strings.Contains(err.Error(), "panic:"):
			t.Error(err)
		case err != nil && len(err.Error()) > (maxProblems+1)*(maxProblemText+8):
			t.Errorf("a text of %d bytes", len(err.Error()))
		}
	})
}

func FuzzCluster(f *testing.F)   { fuzzResource(f, ClusterURL) }
func FuzzEndpoint(f *testing.F)  { fuzzResource(f, EndpointURL) }
func FuzzListener(f *testing.F)  { fuzzResource(f, ListenerURL) }
func FuzzRoute(f *testing.F)     { fuzzResource(f, RouteURL) }
func FuzzSecret(f *testing.F)    { fuzzResource(f, SecretURL) }
func FuzzExtension(f *testing.F) { fuzzResource(f, ExtensionURL) }
func FuzzNameTable(f *testing.F) {
	f.Add([]byte("\n\x10\n\x01a\x12\x0b\n\x091.2.3.4\x00"))
	fuzzResource(f, NameTableURL)
}

func FuzzFormat(f *testing.F) {
	for _, s := range []string{defaultLogFormat, "%REQ(X?Y):10%", "%%", "%METADATA(ROUTE:a:b)%", `%UPSTREAM_METADATA(["a","b"])%`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := Default().scope("")
		got := s.format(text)
		if s.out.err() != nil {
			return
		}
		// What stands outside of operators must come through.
		n := 0
		for _, it := range got.Items {
			if it.Op == "" {
				n += len(it.Text) + strings.Count(it.Text, "%")
			}
		}
		if n > len(text) {
			t.Errorf("%q grew to %+v", text, got.Items)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"/a/*", "/{x}/**", "/{x=a/*}/b", "/a/{y}.txt"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := Default().scope("")
		if s.template(text) == nil && s.out.err() == nil {
			t.Error("neither template nor error")
		}
	})
}

func FuzzBootstrap(f *testing.F) {
	f.Add([]byte(`{static_resources: {listeners: [{name: l, ` + addressOK + `, filter_chains: [{filters: [` + tcpOK + `]}]}], clusters: [{name: a}]}}`))
	f.Add([]byte(`{dynamic_resources: {ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: x}}]}}}`))
	r := Default()
	r.ReadFile = func(string) ([]byte, error) { return nil, nil }
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := r.Bootstrap(b); (v == nil) == (err == nil) {
			t.Error("neither or both of value and error")
		}
	})
}
