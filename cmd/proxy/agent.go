package main

import (
	"encoding/json"
	"net/netip"

	"sluice/internal/config"
	"sluice/internal/telemetry"
)

// build is Istio's metric of its version, of both parts that the process is.
func build(emit func(telemetry.Metric)) {
	for _, component := range []string{"agent", "proxy"} {
		emit(telemetry.Metric{Name: "istio_build", Prom: "istio_build", Kind: telemetry.Gauge, Value: 1,
			Labels: []telemetry.Label{{Name: "component", Value: component}, {Name: "tag", Value: istioVersion}}})
	}
}

// nameTable writes the table of host names as istiod's debug page does, nil when
// there is none.
func nameTable(t *config.NameTable) []byte {
	if t == nil {
		return nil
	}
	type entry struct {
		IPs       []netip.Addr `json:"ips"`
		Registry  string       `json:"registry,omitempty"`
		Shortname string       `json:"shortname,omitempty"`
		Namespace string       `json:"namespace,omitempty"`
	}
	table := make(map[string]entry, len(t.Hosts))
	for host, e := range t.Hosts {
		table[host] = entry{e.IPs, e.Registry, e.Shortname, e.Namespace}
	}
	b, err := json.MarshalIndent(map[string]any{"table": table}, "", "  ")
	if err != nil {
		return nil
	}
	return append(b, '\n')
}
