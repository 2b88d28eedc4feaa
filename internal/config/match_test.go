package config

import (
	"math"
	"testing"
)

// TestValuesFitAsInEnvoy has what Envoy's RBAC filter answers to the same metadata.
func TestValuesFitAsInEnvoy(t *testing.T) {
	md := Metadata{"m": {"n": 5.0, "z": 0.0, "nul": nil, "s": "", "l": List{5.0, nil, "x"}, "b": false, "st": Struct{}}}
	yes, no := true, false
	present, absent, null, isFalse := &ValueMatch{Present: &yes}, &ValueMatch{Present: &no}, &ValueMatch{Null: true}, &ValueMatch{Bool: &no}
	number := func(from, to float64) *ValueMatch { return &ValueMatch{Number: &[2]float64{from, to}} }
	exact := func(n float64) *ValueMatch { return number(n, math.Nextafter(n, math.Inf(1))) }
	empty := &ValueMatch{String: &StringMatch{}}
	for _, c := range []struct {
		name, key string
		m         *ValueMatch
		want      bool
	}{
		{"present", "n", present, true},
		{"null is present", "nul", present, true},
		{"a struct is present", "st", present, true},
		{"missing is not present", "none", present, false},
		{"present false fits nothing that is there", "n", absent, false},
		{"present false fits nothing that is missing", "none", absent, false},
		{"null", "nul", null, true},
		{"missing is not null", "none", null, false},
		{"empty text is not null", "s", null, false},
		{"exact number", "n", exact(5), true},
		{"another exact number", "z", exact(5), false},
		{"exact zero", "z", exact(0), true},
		{"missing is not zero", "none", exact(0), false},
		{"a range has its start", "n", number(5, 6), true},
		{"a range has not its end", "n", number(4, 5), false},
		{"an empty range has nothing", "n", number(5, 5), false},
		{"a turned range has nothing", "n", number(5, 3), false},
		{"empty text", "s", empty, true},
		{"missing is not empty text", "none", empty, false},
		{"false", "b", isFalse, true},
		{"missing is not false", "none", isFalse, false},
		{"list by number", "l", &ValueMatch{List: exact(5)}, true},
		{"list by null", "l", &ValueMatch{List: null}, true},
		{"list by present", "l", &ValueMatch{List: present}, true},
		{"list by present false", "l", &ValueMatch{List: absent}, false},
		{"one of several", "n", &ValueMatch{Or: []ValueMatch{*null, *exact(5)}}, true},
		{"none of several", "none", &ValueMatch{Or: []ValueMatch{*null, *absent}}, false},
		{"no matcher", "n", nil, false},
	} {
		for _, invert := range []bool{false, true} {
			m := MetadataMatch{Namespace: "m", Path: []string{c.key}, Value: c.m, Invert: invert}
			if got := m.Match(md); got != (c.want != invert) {
				t.Errorf("%s, inverted %v: %v", c.name, invert, got)
			}
		}
	}
}
