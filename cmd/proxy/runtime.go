package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"sluice/internal/config"
	"sluice/internal/telemetry"
)

// runtime writes the layers of runtime values and what each says of a key. Layers
// that aren't static say nothing: their values are not supported.
func (d *dumper) runtime(w io.Writer) error {
	type entry struct {
		Final  string   `json:"final_value"`
		Layers []string `json:"layer_values"`
	}
	layers := d.process.boot.RuntimeLayers
	names, entries := []string{}, map[string]*entry{}
	for i, l := range layers {
		names = append(names, l.Name)
		for k, v := range l.Values {
			e := entries[k]
			if e == nil {
				e = &entry{Layers: make([]string, len(layers))}
				entries[k] = e
			}
			e.Layers[i] = runtimeText(v)
			e.Final = e.Layers[i]
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	return enc.Encode(map[string]any{"layers": names, "entries": entries})
}

// runtimeText is a value as Envoy prints it: six digits of a number.
func runtimeText(v config.Value) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', 6, 64)
	case bool:
		return strconv.FormatBool(v)
	case config.Struct:
		text := ""
		if n, ok := v["numerator"]; ok {
			text = "numerator: " + runtimeText(n) + "\n"
		}
		if u, ok := v["denominator"].(string); ok && u != "HUNDRED" {
			text += "denominator: " + u + "\n"
		}
		return text
	}
	return fmt.Sprint(v)
}

// runtimeStats are the counts of layers and keys.
func (p *process) runtimeStats(emit func(telemetry.Metric)) {
	for name, v := range map[string]int{"num_layers": len(p.boot.RuntimeLayers), "num_keys": len(p.boot.Runtime), "admin_overrides_active": 0} {
		emit(telemetry.Metric{Name: "runtime." + name, Prom: "envoy_runtime_" + name, Kind: telemetry.Gauge, Value: uint64(v), Used: true})
	}
}
