package translate

import (
	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"

	"sluice/internal/config"
)

// runtime takes the layers and merges the static ones, later over earlier.
func (s scope) runtime(l *bootstrap.LayeredRuntime, out *config.Bootstrap) {
	for i, x := range l.GetLayers() {
		layer := config.RuntimeLayer{Name: x.GetName()}
		if m := x.GetStaticLayer(); m != nil {
			layer.Values = config.Struct{}
			s.index("layers", i).at("static_layer").flatten("", structOf(m), layer.Values)
		}
		out.RuntimeLayers = append(out.RuntimeLayers, layer)
		for k, v := range layer.Values {
			if out.Runtime == nil {
				out.Runtime = config.Struct{}
			}
			out.Runtime[k] = v
		}
	}
}

// flatten enters the values of in below a prefix: "a.b" is b of a. What looks like a
// fraction is one value.
func (s scope) flatten(prefix string, in, out config.Struct) {
	for k, v := range in {
		switch v := v.(type) {
		case string, float64, bool:
			out[prefix+k] = v
		case config.Struct:
			if v["numerator"] != nil || v["denominator"] != nil {
				out[prefix+k] = v
			} else {
				s.flatten(prefix+k+".", v, out)
			}
		default:
			s.bad("Invalid runtime entry value for %s", prefix+k)
		}
	}
}
