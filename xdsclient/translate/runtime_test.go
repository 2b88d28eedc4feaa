package translate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/config"
)

func TestRuntimeLayersAreFlatAndLaterOnesWin(t *testing.T) {
	b, err := Default().Bootstrap([]byte(`{"layered_runtime": {"layers": [
		{"name": "first", "static_layer": {"a": {"b": 7, "c": "x"}, "on": true, "part": {"numerator": 5, "denominator": "TEN_THOUSAND"}}},
		{"name": "second", "static_layer": {"a.b": 8}},
		{"name": "admin", "admin_layer": {}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	part := config.Struct{"numerator": 5.0, "denominator": "TEN_THOUSAND"}
	if d := cmp.Diff([]config.RuntimeLayer{
		{Name: "first", Values: config.Struct{"a.b": 7.0, "a.c": "x", "on": true, "part": part}},
		{Name: "second", Values: config.Struct{"a.b": 8.0}},
		{Name: "admin"},
	}, b.RuntimeLayers); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(config.Struct{"a.b": 8.0, "a.c": "x", "on": true, "part": part}, b.Runtime); d != "" {
		t.Error(d)
	}
}

func TestRuntimeValuesOfOtherKindsAreRefused(t *testing.T) {
	for _, v := range []string{`null`, `[1]`} {
		if _, err := Default().Bootstrap([]byte(`{"layered_runtime": {"layers": [{"name": "l", "static_layer": {"k": ` + v + `}}]}}`)); err == nil {
			t.Errorf("%s was taken", v)
		}
	}
}
