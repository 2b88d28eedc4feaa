package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestPackedMetadataIsWhatItWas(t *testing.T) {
	for _, m := range []Metadata{
		nil,
		{"istio": {}},
		{"istio": {"workload": "w;ns;app;;Kubernetes", "none": nil}, "envoy.lb": {"n": -1.5, "on": true, "off": false}},
		{"a": {"list": List{"x", 1.0, List{}, Struct{"deep": Struct{"": ""}}, nil}, "long": strings.Repeat("z", 300)}, "": {}},
	} {
		p := Pack(m)
		if got := p.Unpack(); !reflect.DeepEqual(got, m) {
			t.Errorf("%v became %v", m, got)
		}
		for ns, s := range m {
			for k, v := range s {
				if got := p.Lookup(ns, k); !reflect.DeepEqual(got, v) {
					t.Errorf("%s %s is %v, want %v", ns, k, got, v)
				}
			}
			if got := p.Lookup(ns, "absent"); got != nil {
				t.Errorf("%s absent is %v", ns, got)
			}
		}
		if again := Pack(p.Unpack()); again != p {
			t.Errorf("%q, packed again %q", p, again)
		}
	}
}
