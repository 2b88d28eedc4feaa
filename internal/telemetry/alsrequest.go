package telemetry

import "sluice/internal/config"

// ALSIdentifier encodes who sends a log, as the field of every message.
func ALSIdentifier(l *config.GRPCLog, n *config.Node) []byte {
	out, identifier := begin(nil, 1)
	out, node := begin(out, 1)
	out = appendNamed(appendNamed(out, 1, n.ID), 2, n.Cluster)
	out = appendBytes(out, 3, AppendStruct(nil, n.Metadata))
	out, locality := begin(out, 4)
	out = end(appendNamed(appendNamed(appendNamed(out, 1, n.Region), 2, n.Zone), 3, n.SubZone), locality)
	out = end(appendNamed(appendNamed(out, 6, n.UserAgentName), 7, n.UserAgentVersion), node)
	return end(appendNamed(out, 2, l.LogName), identifier)
}

// ALSMessage encodes a StreamAccessLogsMessage of entries made by ALS.
func ALSMessage(l *config.GRPCLog, identifier, entries []byte) []byte {
	if l.TCP {
		return appendBytes(identifier[:len(identifier):len(identifier)], 3, entries)
	}
	return appendBytes(identifier[:len(identifier):len(identifier)], 2, entries)
}
