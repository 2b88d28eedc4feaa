package upstream

import "sluice/internal/config"

// Metadata is what an endpoint's metadata says. It is not changed.
type Metadata struct {
	All      config.Metadata
	LB       config.Struct // envoy.lb
	Workload string        // istio.workload: workload;namespace;canonical-name;revision;cluster
	sockets  config.Struct // envoy.transport_socket_match
}

// nsSocketMatch is the name space that chooses a transport socket.
const nsSocketMatch = "envoy.transport_socket_match"

// unpackedMetadata bounds how many are kept; then they are unpacked anew.
const unpackedMetadata = 4096

// Metadata unpacks an endpoint's metadata; equal ones share it.
func (l *Local) Metadata(e *config.Endpoint) *Metadata {
	if m := l.metadata[e.Metadata]; m != nil {
		return m
	}
	all := e.Metadata.Unpack()
	m := &Metadata{All: all, LB: all["envoy.lb"], Workload: all.StringAt("istio", "workload"), sockets: all[nsSocketMatch]}
	if l.metadata == nil || len(l.metadata) >= unpackedMetadata {
		l.metadata = make(map[config.Packed]*Metadata)
	}
	l.metadata[e.Metadata] = m
	return m
}

// tlsMode is part of what identifies a host: another mode is another pool.
func tlsMode(p config.Packed) string {
	mode, _ := p.Lookup(nsSocketMatch, "tlsMode").(string)
	return mode
}
