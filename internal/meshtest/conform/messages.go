package conform

import (
	"bytes"
	"encoding/json"
	"fmt"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelog "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	fault "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	mutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	rbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxy "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlssocket "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpoptions "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	runtime "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	otellogs "go.opentelemetry.io/proto/otlp/logs/v1"
	oteltrace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

const typePrefix = "type.googleapis.com/"

// resourceKind is a kind of `push`: its short name and message.
type resourceKind struct{ short, message string }

var resourceKinds = map[string]resourceKind{
	"clusters":      {"CDS", "envoy.config.cluster.v3.Cluster"},
	"endpoints":     {"EDS", "envoy.config.endpoint.v3.ClusterLoadAssignment"},
	"listeners":     {"LDS", "envoy.config.listener.v3.Listener"},
	"routes":        {"RDS", "envoy.config.route.v3.RouteConfiguration"},
	"scoped_routes": {"SRDS", "envoy.config.route.v3.ScopedRouteConfiguration"},
	"virtual_hosts": {"VHDS", "envoy.config.route.v3.VirtualHost"},
	"secrets":       {"SDS", "envoy.extensions.transport_sockets.tls.v3.Secret"},
	"extensions":    {"ECDS", "envoy.config.core.v3.TypedExtensionConfig"},
	"runtimes":      {"RTDS", "envoy.service.runtime.v3.Runtime"},
}

// messages links the types that cases push or upstreams parse: JSON finds the
// type of an Any only among linked ones.
func messages() []proto.Message {
	return []proto.Message{
		&cluster.Cluster{}, &endpoint.ClusterLoadAssignment{}, &listener.Listener{}, &route.RouteConfiguration{}, &route.FilterConfig{},
		&route.ScopedRouteConfiguration{}, &route.VirtualHost{}, &core.TypedExtensionConfig{}, &runtime.Runtime{}, &filelog.FileAccessLog{},
		&fault.HTTPFault{}, &mutation.HeaderMutation{}, &ratelimit.LocalRateLimit{}, &rbac.RBAC{}, &router.Router{}, &hcm.HttpConnectionManager{}, &tcpproxy.TcpProxy{},
		&tlssocket.Secret{}, &httpoptions.HttpProtocolOptions{}, &structpb.Struct{}, &anypb.Any{},
	}
}

// newMessage is an empty message by its full name.
func newMessage(name string) (proto.Message, error) {
	switch name { // the same fields, without the gateway code of the services' packages
	case "opentelemetry.proto.collector.logs.v1.ExportLogsServiceRequest":
		return &otellogs.LogsData{}, nil
	case "opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest":
		return &oteltrace.TracesData{}, nil
	}
	for _, m := range messages() {
		if string(m.ProtoReflect().Descriptor().FullName()) == name {
			return m, nil
		}
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("message %s is not linked: add it to messages: %w", name, err)
	}
	return t.New().Interface(), nil
}

// messageOf is a message of authored fields.
func messageOf(name string, body any) (proto.Message, error) {
	m, err := newMessage(name)
	if err != nil {
		return nil, err
	}
	var js bytes.Buffer
	if err := json.NewEncoder(&js).Encode(body); err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(js.Bytes(), m); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// pushed is one resource of a push.
type pushed struct {
	name string
	any  *anypb.Any
}

// pushedOf packs a resource. {name, any: {type, value}} is made by hand, as is
// {name, any: {"@type": ...}}: of any type, even broken.
func pushedOf(message string, body any) (pushed, error) {
	fields, _ := body.(object)
	if hand, ok := fields["any"].(object); ok && len(fields) <= 2 {
		name, _ := fields["name"].(string)
		if hand["@type"] == nil {
			url, _ := hand["type"].(string)
			value, _ := hand["value"].(string)
			return pushed{name, &anypb.Any{TypeUrl: url, Value: rawBytes(value)}}, nil
		}
		m, err := messageOf("google.protobuf.Any", hand)
		if err != nil {
			return pushed{}, err
		}
		return pushed{name, m.(*anypb.Any)}, nil
	}
	m, err := messageOf(message, body)
	if err != nil {
		return pushed{}, err
	}
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return pushed{}, err
	}
	return pushed{resourceName(m), out}, nil
}

func resourceName(m proto.Message) string {
	for _, field := range []protoreflect.Name{"cluster_name", "name"} {
		if f := m.ProtoReflect().Descriptor().Fields().ByName(field); f != nil && m.ProtoReflect().Get(f).String() != "" {
			return m.ProtoReflect().Get(f).String()
		}
	}
	return ""
}

// shortName is the short name of a type URL, or the URL.
func shortName(url string) string {
	for _, k := range resourceKinds {
		if typePrefix+k.message == url {
			return k.short
		}
	}
	return url
}

// typeURL is the type URL of a short name.
func typeURL(short string) string {
	for _, k := range resourceKinds {
		if k.short == short {
			return typePrefix + k.message
		}
	}
	return short
}
