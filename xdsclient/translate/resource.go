package translate

import (
	"fmt"
	"runtime/debug"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"sluice/internal/config"
)

// The resource types, as type URLs.
const (
	ClusterURL   = urlPrefix + "envoy.config.cluster.v3.Cluster"
	EndpointURL  = urlPrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerURL  = urlPrefix + "envoy.config.listener.v3.Listener"
	RouteURL     = urlPrefix + "envoy.config.route.v3.RouteConfiguration"
	SecretURL    = urlPrefix + "envoy.extensions.transport_sockets.tls.v3.Secret"
	ExtensionURL = urlPrefix + "envoy.config.core.v3.TypedExtensionConfig"
	NameTableURL = urlPrefix + "istio.networking.nds.v1.NameTable"
)

// Extension is an extension config by itself (ECDS).
type Extension struct {
	config.Meta
	URL    string // full message name of the config
	Policy config.HTTPPolicy
}

// Resource translates the bytes of one resource of a type. The value is a
// *config.Cluster, *config.LoadAssignment, *config.Listener,
// *config.RouteConfiguration, *config.Secret, *Extension or *config.NameTable.
// The name is the resource's own and is given with an error too, where the
// bytes tell it. A panic is that resource's error.
func (r *Registry) Resource(typeURL string, b []byte) (value any, name string, err error) {
	defer func() {
		if p := recover(); p != nil {
			value, err = nil, fmt.Errorf("translating %s: panic: %v\n%s", shortURL(typeURL), p, debug.Stack())
		}
	}()
	s := r.scope("")
	value, name = s.resource(typeURL, b)
	if err := s.out.err(); err != nil {
		return nil, name, &Refusal{Malformed: s.out.malformed, err: err}
	}
	return value, name, nil
}

// Refusal says why a resource isn't taken. Malformed ones can't be parsed or
// break a constraint of their .proto file: Envoy then takes nothing of the whole
// response, while it takes the rest beside a resource that only can't be built.
type Refusal struct {
	Malformed bool
	err       error
}

// Error gives the paths and reasons.
func (r *Refusal) Error() string { return r.err.Error() }

// Unwrap gives the joined reasons as an error.
func (r *Refusal) Unwrap() error { return r.err }

// parse unmarshals and checks; the name is wanted even when the checks fail.
func parse(s scope, b []byte, m proto.Message, name func() string) (string, bool) {
	if err := proto.Unmarshal(b, m); err != nil {
		s.bad("parsing %s: %v", m.ProtoReflect().Descriptor().Name(), err)
		s.out.malformed = true
		return "", false
	}
	ok := s.check(m)
	s.out.malformed = !ok
	return name(), ok
}

func (s scope) resource(typeURL string, b []byte) (any, string) {
	switch typeURL {
	case ClusterURL:
		m := &clusterv3.Cluster{}
		if name, ok := parse(s, b, m, m.GetName); !ok {
			return nil, name
		}
		v := s.cluster(m)
		v.Hash = Hash(b)
		return v, v.Name
	case ListenerURL:
		m := &listener.Listener{}
		if name, ok := parse(s, b, m, m.GetName); !ok {
			return nil, name
		}
		v := s.listener(m)
		v.Hash = Hash(b)
		return v, v.Name
	case RouteURL:
		m := &route.RouteConfiguration{}
		if name, ok := parse(s, b, m, m.GetName); !ok {
			return nil, name
		}
		v := s.routes(m, false)
		v.Hash = Hash(b)
		return v, v.Name
	case SecretURL:
		m := &tlsv3.Secret{}
		if name, ok := parse(s, b, m, m.GetName); !ok {
			return nil, name
		}
		v := s.secret(m)
		v.Hash = Hash(b)
		return v, v.Name
	case EndpointURL:
		return s.endpointResource(b)
	case ExtensionURL:
		return s.extensionResource(b)
	case NameTableURL:
		v := s.nameTable(b)
		v.Hash = Hash(b)
		return v, ""
	}
	s.bad("unknown resource type %s", typeURL)
	return nil, ""
}

func (s scope) endpointResource(b []byte) (any, string) {
	m := &endpoint.ClusterLoadAssignment{}
	if name, ok := parse(s, b, m, m.GetClusterName); !ok {
		return nil, name
	}
	v := s.loadAssignment(m, false)
	v.Hash = Hash(b)
	return v, v.Name
}

func (s scope) extensionResource(b []byte) (any, string) {
	m := &core.TypedExtensionConfig{}
	if name, ok := parse(s, b, m, m.GetName); !ok {
		return nil, name
	}
	v := &Extension{Meta: config.Meta{Name: m.GetName(), Hash: Hash(b)}}
	t, ok := s.at("typed_config").unwrap(m.GetName(), m.GetTypedConfig())
	if ok {
		v.URL = t.name
		v.Policy = s.at("typed_config").extension(m.GetName(), m.GetTypedConfig())
	}
	return v, v.Name
}
