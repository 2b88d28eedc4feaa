package translate

import (
	"math"
	"net/netip"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"sluice/internal/config"
)

func structOf(s *structpb.Struct) config.Struct {
	if s == nil {
		return nil
	}
	out := make(config.Struct, len(s.Fields))
	for k, v := range s.Fields {
		out[k] = valueOf(v)
	}
	return out
}

func valueOf(v *structpb.Value) config.Value {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return k.StringValue
	case *structpb.Value_NumberValue:
		return k.NumberValue
	case *structpb.Value_BoolValue:
		return k.BoolValue
	case *structpb.Value_StructValue:
		return structOf(k.StructValue)
	case *structpb.Value_ListValue:
		out := make(config.List, 0, len(k.ListValue.GetValues()))
		for _, e := range k.ListValue.GetValues() {
			out = append(out, valueOf(e))
		}
		return out
	}
	return nil
}

func metadata(m *core.Metadata) config.Metadata {
	if len(m.GetFilterMetadata()) == 0 {
		return nil
	}
	out := make(config.Metadata, len(m.FilterMetadata))
	for ns, s := range m.FilterMetadata {
		out[ns] = structOf(s)
	}
	return out
}

// stringsIn gives a struct's string members.
func stringsIn(s *structpb.Struct) map[string]string {
	if s == nil {
		return nil
	}
	out := make(map[string]string, len(s.Fields))
	for k, v := range s.Fields {
		if x, ok := v.GetKind().(*structpb.Value_StringValue); ok {
			out[k] = x.StringValue
		}
	}
	return out
}

// address parses a socket address, pipe or internal listener's name. With names
// allowed a DNS name is kept for upstream to resolve.
func (s scope) address(a *core.Address, names bool) config.Address {
	switch x := a.GetAddress().(type) {
	case *core.Address_SocketAddress:
		return s.at("socket_address").socketAddress(x.SocketAddress, names)
	case *core.Address_Pipe:
		if len(x.Pipe.GetPath()) > 107 {
			s.at("pipe.path").bad("path exceeds the 107 bytes of a socket address")
		}
		return config.Address{Pipe: x.Pipe.GetPath()}
	case *core.Address_EnvoyInternalAddress:
		return config.Address{Internal: x.EnvoyInternalAddress.GetServerListenerName()}
	}
	s.bad("no address")
	return config.Address{}
}

func (s scope) socketAddress(a *core.SocketAddress, names bool) config.Address {
	if a.GetProtocol() == core.SocketAddress_UDP {
		s.at("protocol").bad("not supported yet: UDP")
	}
	port := a.GetPortValue()
	if a.GetNamedPort() != "" {
		s.at("named_port").bad("not supported yet: named ports; use port_value")
	}
	if port > math.MaxUint16 {
		s.at("port_value").bad("%d is more than 65535", port)
		port = 0
	}
	ip, err := netip.ParseAddr(a.GetAddress())
	if err == nil {
		return config.Address{IP: netip.AddrPortFrom(ip, uint16(port))}
	}
	if !names {
		s.at("address").bad("malformed IP address: %s", a.GetAddress())
		return config.Address{}
	}
	return config.Address{Hostname: a.GetAddress(), Port: uint16(port)}
}

func (s scope) prefixes(field string, ranges []*core.CidrRange) config.Prefixes {
	if len(ranges) == 0 {
		return nil
	}
	out := make(config.Prefixes, 0, len(ranges))
	for i, r := range ranges {
		if p, ok := s.index(field, i).prefix(r); ok {
			out = append(out, p)
		}
	}
	return out
}

func (s scope) prefix(r *core.CidrRange) (netip.Prefix, bool) {
	ip, err := netip.ParseAddr(r.GetAddressPrefix())
	if err != nil {
		s.bad("invalid ip/mask combo: %s/%d: not an address", r.GetAddressPrefix(), u32(r.GetPrefixLen(), 0))
		return netip.Prefix{}, false
	}
	bits := int(min(u32(r.GetPrefixLen(), 0), uint32(ip.BitLen()))) // Envoy caps the length too
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		s.bad("invalid ip/mask combo: %s/%d", r.GetAddressPrefix(), bits)
		return netip.Prefix{}, false
	}
	return p, true
}

// data gives a data source's bytes. Files are read when the resource is
// translated, as Envoy does.
func (s scope) data(d *core.DataSource) ([]byte, bool) {
	switch x := d.GetSpecifier().(type) {
	case *core.DataSource_InlineBytes:
		return x.InlineBytes, true
	case *core.DataSource_InlineString:
		return []byte(x.InlineString), true
	case *core.DataSource_Filename:
		b, err := s.r.ReadFile(x.Filename)
		if err != nil {
			s.at("filename").bad("unable to read file: %v", err)
			return nil, false
		}
		return b, true
	case *core.DataSource_EnvironmentVariable:
		v, ok := s.r.Env(x.EnvironmentVariable)
		if !ok {
			s.at("environment_variable").bad("environment variable doesn't exist: %s", x.EnvironmentVariable)
		}
		return []byte(v), ok
	}
	return nil, false
}

func lower(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = strings.ToLower(v)
	}
	return out
}

func ints(in []uint32) []int {
	if len(in) == 0 {
		return nil
	}
	out := make([]int, len(in))
	for i, v := range in {
		out[i] = capped(v)
	}
	return out
}

func keepalive(k *core.TcpKeepalive) config.Keepalive {
	if k == nil {
		return config.Keepalive{}
	}
	return config.Keepalive{
		Enabled:  true,
		Probes:   capped(u32(k.KeepaliveProbes, 0)),
		Time:     seconds(u32(k.KeepaliveTime, 0)),
		Interval: seconds(u32(k.KeepaliveInterval, 0)),
	}
}
