package meshtest

import (
	"fmt"

	udpa "github.com/cncf/xds/go/udpa/type/v1"
	filelog "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	cors "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	fault "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcstats "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpinspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldst "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	tlsinspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpproxy "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	uuid "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	rawbuffer "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlssocket "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreams "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	alpn "istio.io/api/envoy/config/filter/http/alpn/v2alpha1"
	stats "istio.io/api/envoy/extensions/stats"
)

// messages are the types that a podconfig document may hold in an Any.
func messages() (*protoregistry.Types, error) {
	types := &protoregistry.Types{}
	for _, m := range []proto.Message{
		&udpa.TypedStruct{}, &filelog.FileAccessLog{}, &cors.Cors{}, &fault.HTTPFault{}, &grpcstats.FilterConfig{}, &router.Router{},
		&httpinspector.HttpInspector{}, &originaldst.OriginalDst{}, &tlsinspector.TlsInspector{}, &manager.HttpConnectionManager{}, &tcpproxy.TcpProxy{},
		&uuid.UuidRequestIdConfig{}, &previous.PreviousHostsPredicate{}, &rawbuffer.RawBuffer{}, &tlssocket.DownstreamTlsContext{},
		&tlssocket.UpstreamTlsContext{}, &upstreams.HttpProtocolOptions{}, &alpn.FilterConfig{}, &stats.PluginConfig{},
	} {
		if err := types.RegisterMessage(m.ProtoReflect().Type()); err != nil {
			return nil, fmt.Errorf("registering %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
		}
	}
	return types, nil
}
