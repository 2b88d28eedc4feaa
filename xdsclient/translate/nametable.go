package translate

import (
	"net/netip"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice/internal/config"
)

// nameTable parses istio.networking.nds.v1.NameTable. The message is small and
// has no Go package of its own outside of Istio's source, so it is read from the
// wire: field 1 is a map of host to NameInfo {ips=1, registry=2, shortname=3,
// namespace=4}.
func (s scope) nameTable(b []byte) *config.NameTable {
	out := &config.NameTable{Hosts: map[string]config.NameTableEntry{}}
	s.fields(b, func(num protowire.Number, v []byte) {
		if num != 1 {
			return
		}
		var host string
		var entry config.NameTableEntry
		s.fields(v, func(num protowire.Number, v []byte) {
			switch num {
			case 1:
				host = string(v)
			case 2:
				entry = s.at("table[" + host + "]").nameInfo(v)
			}
		})
		out.Hosts[strings.ToLower(strings.TrimSuffix(host, "."))] = entry
	})
	return out
}

func (s scope) nameInfo(b []byte) config.NameTableEntry {
	var out config.NameTableEntry
	s.fields(b, func(num protowire.Number, v []byte) {
		switch num {
		case 1:
			ip, err := netip.ParseAddr(string(v))
			if err != nil {
				s.at("ips").bad("malformed IP address: %s", v)
				return
			}
			out.IPs = append(out.IPs, ip)
		case 2:
			out.Registry = string(v)
		case 3:
			out.Shortname = string(v)
		case 4:
			out.Namespace = string(v)
		}
	})
	return out
}

// fields walks the length-delimited fields of a message.
func (s scope) fields(b []byte, each func(protowire.Number, []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			s.bad("parsing: %v", protowire.ParseError(n))
			return
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				s.bad("parsing: %v", protowire.ParseError(n))
				return
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			s.bad("parsing: %v", protowire.ParseError(n))
			return
		}
		each(num, v)
		b = b[n:]
	}
}
