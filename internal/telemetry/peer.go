package telemetry

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"

	"sluice/internal/config"
)

// Labels of a workload that peers are told.
const (
	canonicalName     = "service.istio.io/canonical-name"
	canonicalRevision = "service.istio.io/canonical-revision"
)

// Node is who this proxy is, as telemetry says it: its own peer view and what
// it tells peers.
type Node struct {
	ID     string
	Self   *Peer
	Header string // x-envoy-peer-metadata
	Any    []byte // the message of the TCP exchange, an encoded protobuf Any
}

// NewNode takes what peers may know out of the node's metadata; additional are
// further labels to tell.
func NewNode(n *config.Node, additional []string) *Node {
	told := config.Struct{}
	for _, k := range [...]string{"NAME", "NAMESPACE", "CLUSTER_ID", "OWNER", "WORKLOAD_NAME", "IDENTITY", "REGION", "AVAILABILITY_ZONE"} {
		if v, ok := n.Metadata[k].(string); ok && v != "" {
			told[k] = v
		}
	}
	labels := config.Struct{}
	all, _ := n.Metadata["LABELS"].(config.Struct)
	for _, k := range append([]string{"app", "version", canonicalName, canonicalRevision}, additional...) {
		if v, ok := all[k].(string); ok {
			labels[k] = v
		}
	}
	if len(labels) > 0 {
		told["LABELS"] = labels
	}
	enc := AppendStruct(nil, told)
	both := config.Struct{"x-envoy-peer-metadata": told, "x-envoy-peer-metadata-id": n.ID}
	any := appendBytes(appendBytes(nil, 1, []byte("type.googleapis.com/google.protobuf.Struct")), 2, AppendStruct(nil, both))
	return &Node{ID: n.ID, Self: peerOf(told), Header: base64.StdEncoding.EncodeToString(enc), Any: any}
}

// AppendStruct appends a google.protobuf.Struct with its keys in order: the
// bytes are compared and cached by other proxies.
func AppendStruct(dst []byte, s config.Struct) []byte {
	for _, k := range sortedKeys(s) {
		entry := appendBytes(nil, 1, []byte(k))
		entry = appendBytes(entry, 2, protoValue(s[k]))
		dst = appendBytes(dst, 1, entry)
	}
	return dst
}

func protoValue(v config.Value) []byte {
	switch v := v.(type) {
	case float64:
		return binary.LittleEndian.AppendUint64([]byte{2<<3 | 1}, math.Float64bits(v))
	case string:
		return appendBytes(nil, 3, []byte(v))
	case bool:
		if v {
			return []byte{4 << 3, 1}
		}
		return []byte{4 << 3, 0}
	case config.Struct:
		return appendBytes(nil, 5, AppendStruct(nil, v))
	case config.List:
		var list []byte
		for _, e := range v {
			list = appendBytes(list, 1, protoValue(e))
		}
		return appendBytes(nil, 6, list)
	}
	return []byte{1 << 3, 0}
}

// maxPeerDepth bounds the nesting of metadata a peer sends.
const maxPeerDepth = 8

// ParseStruct decodes a google.protobuf.Struct of a peer; ok is false for
// anything that isn't one.
func ParseStruct(b []byte) (s config.Struct, ok bool) { return parseStruct(b, 0) }

func parseStruct(b []byte, depth int) (config.Struct, bool) {
	if depth > maxPeerDepth {
		return nil, false
	}
	s := config.Struct{}
	for len(b) > 0 {
		field, entry, rest, ok := nextField(b)
		if !ok {
			return nil, false
		}
		b = rest
		if field != 1 {
			continue
		}
		var key string
		var value config.Value
		for len(entry) > 0 {
			f, p, more, ok := nextField(entry)
			if !ok {
				return nil, false
			}
			entry = more
			switch f {
			case 1:
				key = string(p)
			case 2:
				if value, ok = parseValue(p, depth+1); !ok {
					return nil, false
				}
			}
		}
		s[key] = value
	}
	return s, true
}

func parseValue(b []byte, depth int) (v config.Value, ok bool) {
	for len(b) > 0 {
		field, p, rest, ok := nextField(b)
		if !ok {
			return nil, false
		}
		b = rest
		switch field {
		case 2:
			if len(p) == 8 {
				v = math.Float64frombits(binary.LittleEndian.Uint64(p))
			}
		case 3:
			v = string(p)
		case 4:
			v = len(p) > 0 && p[0] != 0
		case 5:
			s, ok := parseStruct(p, depth+1)
			if !ok {
				return nil, false
			}
			v = s
		}
	}
	return v, true
}

// nextField cuts one protobuf field off the front; p is its content.
func nextField(b []byte) (field uint64, p, rest []byte, ok bool) {
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, nil, false
	}
	b = b[n:]
	switch tag & 7 {
	case 0:
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, nil, nil, false
		}
		return tag >> 3, b[:n], b[n:], true
	case 1:
		if len(b) < 8 {
			return 0, nil, nil, false
		}
		return tag >> 3, b[:8], b[8:], true
	case 2:
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return 0, nil, nil, false
		}
		return tag >> 3, b[n : n+int(size)], b[n+int(size):], true
	case 5:
		if len(b) < 4 {
			return 0, nil, nil, false
		}
		return tag >> 3, b[:4], b[4:], true
	}
	return 0, nil, nil, false
}

// ParsePeerHeader decodes x-envoy-peer-metadata; nil for anything that isn't
// one.
func ParsePeerHeader(v []byte) *Peer {
	b, err := base64.StdEncoding.DecodeString(string(v))
	if err != nil {
		return nil
	}
	s, ok := ParseStruct(b)
	if !ok {
		return nil
	}
	return peerOf(s)
}

// ParsePeerAny decodes the message of the TCP exchange; nil for anything else.
func ParsePeerAny(b []byte) *Peer {
	for len(b) > 0 {
		field, p, rest, ok := nextField(b)
		if !ok {
			return nil
		}
		if b = rest; field != 2 {
			continue
		}
		s, ok := ParseStruct(p)
		if !ok {
			return nil
		}
		if inner, ok := s["x-envoy-peer-metadata"].(config.Struct); ok {
			return peerOf(inner)
		}
		return nil
	}
	return nil
}

func peerOf(s config.Struct) *Peer {
	text := func(k string) string { t, _ := s[k].(string); return t }
	p := &Peer{Name: text("NAME"), Workload: text("WORKLOAD_NAME"), Namespace: text("NAMESPACE"), Cluster: text("CLUSTER_ID"),
		Owner: text("OWNER"), Principal: text("IDENTITY")}
	if l, ok := s["LABELS"].(config.Struct); ok {
		p.Labels = make(map[string]string, len(l))
		for k, v := range l {
			if t, ok := v.(string); ok {
				p.Labels[k] = t
			}
		}
		p.App, p.Version = p.Labels["app"], p.Labels["version"]
		p.Canonical, p.Revision = p.Labels[canonicalName], p.Labels[canonicalRevision]
	}
	return p
}

// PeerOfWorkload is the peer that endpoint metadata istio.workload tells:
// workload;namespace;canonical-name;revision;cluster.
func PeerOfWorkload(w string) *Peer {
	f := strings.Split(w, ";")
	for len(f) < 5 {
		f = append(f, "")
	}
	return &Peer{Workload: f[0], Namespace: f[1], Canonical: f[2], Revision: f[3], Cluster: f[4]}
}
