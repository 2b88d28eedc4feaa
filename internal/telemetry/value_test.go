package telemetry

import (
	"math"
	"testing"

	"sluice/internal/config"
)

func TestNumbersInMetadataAreWrittenAsEnvoyDoes(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want string
	}{
		{1, "1"}, {1.5, "1.5"}, {1500000000, "1500000000"}, {4102444800, "4102444800"}, {123456789012345, "123456789012345"},
		{1e15, "1e+15"}, {1e21, "1e+21"}, {0.000001, "1e-06"}, {0.1, "0.1"}, {1.0 / 3, "0.33333333333333331"}, {math.Copysign(0, -1), "-0"},
	} {
		if got := string(AppendValue(nil, config.Value(c.v))); got != c.want {
			t.Errorf("%v: %s, want %s", c.v, got, c.want)
		}
	}
}
