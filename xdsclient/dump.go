package xdsclient

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rawbuffer "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"sluice/internal/config"
)

// Dump gives the sections of /config_dump in Envoy's order, each a JSON object
// with its @type. What came from the control plane is shown as it came, for
// istioctl compares it with what istiod holds; secrets are redacted. boot is the
// bootstrap as parsed and may be nil; started is when the proxy began.
func (c *Client) Dump(ctx context.Context, boot *bootstrap.Bootstrap, started time.Time, endpoints bool) ([]json.RawMessage, error) {
	d := dumper{client: c, boot: boot, started: timestamppb.New(started)}
	if boot == nil {
		d.boot = &bootstrap.Bootstrap{}
	}
	var sections []proto.Message
	err := c.query(ctx, func() {
		sections = append(sections, &admin.BootstrapConfigDump{Bootstrap: proto.Clone(d.boot).(*bootstrap.Bootstrap), LastUpdated: d.started})
		sections = append(sections, d.clusters(), d.extensions())
		if endpoints {
			sections = append(sections, d.endpoints())
		}
		sections = append(sections, d.listeners(), d.routes(), d.secrets())
	})
	if err != nil {
		return nil, err
	}
	out := make([]json.RawMessage, 0, len(sections))
	for _, s := range sections {
		b, err := sectionJSON(s)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", s.ProtoReflect().Descriptor().Name(), err)
		}
		out = append(out, b)
	}
	return out, nil
}

// sectionJSON writes one section, wrapped as an Any so that it has its @type.
func sectionJSON(m proto.Message) (json.RawMessage, error) {
	redact(m.ProtoReflect())
	a, err := anypb.New(m)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{UseProtoNames: true, Resolver: lenient{protoregistry.GlobalTypes}}.Marshal(a)
}

// lenient shows an Any of a type that isn't linked in as an empty object of that
// type, where the registry would fail the whole page.
type lenient struct{ *protoregistry.Types }

// FindMessageByURL gives an empty message's type for unknown types.
func (l lenient) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	t, err := l.Types.FindMessageByURL(url)
	if err != nil {
		return (&rawbuffer.RawBuffer{}).ProtoReflect().Type(), nil
	}
	return t, nil
}

type dumper struct {
	client  *Client
	boot    *bootstrap.Bootstrap
	started *timestamppb.Timestamp
}

// each visits the received resources of a kind by name.
func (d *dumper) each(k kind, visit func(name string, x *kept)) {
	kept := d.client.kinds[k].kept
	names := make([]string, 0, len(kept))
	for n := range kept {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		visit(n, kept[n])
	}
}

// wait tells which resources of a kind aren't in yet.
func (d *dumper) warming(clusters bool) map[string]bool {
	out := map[string]bool{}
	for _, w := range d.client.waiting {
		if w.Cluster == clusters {
			out[w.Resource] = true
		}
	}
	return out
}

func failureState(f *failed) *admin.UpdateFailureState {
	if f == nil {
		return nil
	}
	return &admin.UpdateFailureState{
		FailedConfiguration: f.body, LastUpdateAttempt: timestamppb.New(f.at), Details: f.why, VersionInfo: f.version,
	}
}

func (d *dumper) clusters() proto.Message {
	out := &admin.ClustersConfigDump{VersionInfo: d.client.kinds[cds].version}
	for _, m := range d.boot.GetStaticResources().GetClusters() {
		if a, err := anypb.New(m); err == nil {
			out.StaticClusters = append(out.StaticClusters, &admin.ClustersConfigDump_StaticCluster{Cluster: a, LastUpdated: d.started})
		}
	}
	warming := d.warming(true)
	d.each(cds, func(name string, x *kept) {
		e := &admin.ClustersConfigDump_DynamicCluster{
			VersionInfo: x.version, Cluster: clone(x.body), LastUpdated: timestamppb.New(x.at), ErrorState: failureState(x.failed),
		}
		switch {
		case x.body == nil:
		case warming[name]:
			out.DynamicWarmingClusters = append(out.DynamicWarmingClusters, e)
		default:
			out.DynamicActiveClusters = append(out.DynamicActiveClusters, e)
		}
	})
	return out
}

// clone keeps the received bytes from being redacted in place.
func clone(a *anypb.Any) *anypb.Any {
	if a == nil {
		return nil
	}
	return &anypb.Any{TypeUrl: a.TypeUrl, Value: a.Value}
}

func (d *dumper) listeners() proto.Message {
	out := &admin.ListenersConfigDump{VersionInfo: d.client.kinds[lds].version}
	for _, m := range d.boot.GetStaticResources().GetListeners() {
		if a, err := anypb.New(m); err == nil {
			out.StaticListeners = append(out.StaticListeners, &admin.ListenersConfigDump_StaticListener{Listener: a, LastUpdated: d.started})
		}
	}
	warming := d.warming(false)
	d.each(lds, func(name string, x *kept) {
		e := &admin.ListenersConfigDump_DynamicListener{Name: name, ErrorState: failureState(x.failed)}
		state := &admin.ListenersConfigDump_DynamicListenerState{VersionInfo: x.version, Listener: clone(x.body), LastUpdated: timestamppb.New(x.at)}
		switch {
		case x.body == nil:
		case warming[name]:
			e.WarmingState = state
		default:
			e.ActiveState = state
		}
		out.DynamicListeners = append(out.DynamicListeners, e)
	})
	return out
}

func (d *dumper) routes() proto.Message {
	out := &admin.RoutesConfigDump{}
	for _, m := range d.boot.GetStaticResources().GetListeners() {
		d.inline(m, d.started, out)
	}
	d.each(lds, func(_ string, x *kept) {
		var m listener.Listener
		if x.body != nil && x.body.UnmarshalTo(&m) == nil {
			d.inline(&m, timestamppb.New(x.at), out)
		}
	})
	d.each(rds, func(_ string, x *kept) {
		if x.body == nil && x.failed == nil {
			return
		}
		out.DynamicRouteConfigs = append(out.DynamicRouteConfigs, &admin.RoutesConfigDump_DynamicRouteConfig{
			VersionInfo: x.version, RouteConfig: clone(x.body), LastUpdated: timestamppb.New(x.at), ErrorState: failureState(x.failed),
		})
	})
	return out
}

// inline adds the route tables that a listener brings along.
func (d *dumper) inline(l *listener.Listener, at *timestamppb.Timestamp, out *admin.RoutesConfigDump) {
	all := l.GetFilterChains()
	if l.GetDefaultFilterChain() != nil {
		all = append(all[:len(all):len(all)], l.DefaultFilterChain)
	}
	for _, chain := range all {
		for _, f := range chain.GetFilters() {
			var m hcm.HttpConnectionManager
			if !f.GetTypedConfig().MessageIs(&m) || f.GetTypedConfig().UnmarshalTo(&m) != nil || m.GetRouteConfig() == nil {
				continue
			}
			if a, err := anypb.New(m.GetRouteConfig()); err == nil {
				out.StaticRouteConfigs = append(out.StaticRouteConfigs, &admin.RoutesConfigDump_StaticRouteConfig{RouteConfig: a, LastUpdated: at})
			}
		}
	}
}

func (d *dumper) endpoints() proto.Message {
	out := &admin.EndpointsConfigDump{}
	for _, m := range d.boot.GetStaticResources().GetClusters() {
		if m.GetLoadAssignment() == nil {
			continue
		}
		if a, err := anypb.New(m.GetLoadAssignment()); err == nil {
			out.StaticEndpointConfigs = append(out.StaticEndpointConfigs, &admin.EndpointsConfigDump_StaticEndpointConfig{EndpointConfig: a, LastUpdated: d.started})
		}
	}
	d.each(eds, func(_ string, x *kept) {
		if x.body != nil {
			out.DynamicEndpointConfigs = append(out.DynamicEndpointConfigs, &admin.EndpointsConfigDump_DynamicEndpointConfig{
				VersionInfo: x.version, EndpointConfig: clone(x.body), LastUpdated: timestamppb.New(x.at), ErrorState: failureState(x.failed),
			})
		}
	})
	return out
}

func (d *dumper) extensions() proto.Message {
	out := &admin.EcdsConfigDump{}
	d.each(ecds, func(_ string, x *kept) {
		if x.body != nil {
			out.EcdsFilters = append(out.EcdsFilters, &admin.EcdsConfigDump_EcdsFilterConfig{
				VersionInfo: x.version, EcdsFilter: clone(x.body), LastUpdated: timestamppb.New(x.at), ErrorState: failureState(x.failed),
			})
		}
	})
	return out
}

func (d *dumper) secrets() proto.Message {
	out := &admin.SecretsConfigDump{}
	for _, m := range d.boot.GetStaticResources().GetSecrets() {
		if a, err := anypb.New(m); err == nil {
			out.StaticSecrets = append(out.StaticSecrets, &admin.SecretsConfigDump_StaticSecret{Name: m.GetName(), Secret: a, LastUpdated: d.started})
		}
	}
	received := map[string]bool{}
	d.each(sds, func(name string, x *kept) {
		if x.body == nil {
			return
		}
		received[name] = true
		out.DynamicActiveSecrets = append(out.DynamicActiveSecrets, &admin.SecretsConfigDump_DynamicSecret{
			Name: name, VersionInfo: x.version, Secret: clone(x.body), LastUpdated: timestamppb.New(x.at), ErrorState: failureState(x.failed),
		})
	})
	for _, name := range sortedNames(d.client.accepted.Secrets) {
		s := d.client.accepted.Secrets[name]
		if a, err := anypb.New(secretMessage(s)); err == nil && !received[name] {
			out.DynamicActiveSecrets = append(out.DynamicActiveSecrets, &admin.SecretsConfigDump_DynamicSecret{
				Name: name, VersionInfo: s.Version, Secret: a, LastUpdated: timestamppb.New(d.client.arrived[name]),
			})
		}
	}
	for _, w := range d.client.waiting {
		if w.Part.Kind.String() == "SDS" && !slices.ContainsFunc(out.DynamicWarmingSecrets, func(x *admin.SecretsConfigDump_DynamicSecret) bool { return x.Name == w.Part.Name }) {
			out.DynamicWarmingSecrets = append(out.DynamicWarmingSecrets, &admin.SecretsConfigDump_DynamicSecret{Name: w.Part.Name, VersionInfo: "uninitialized"})
		}
	}
	return out
}

func sortedNames[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// secretMessage shows a secret that didn't come as a message: the public part.
func secretMessage(s *config.Secret) *tlsv3.Secret {
	inline := func(b []byte) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: b}}
	}
	out := &tlsv3.Secret{Name: s.Name}
	switch {
	case s.Certificate != nil:
		out.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(s.ChainPEM), PrivateKey: inline([]byte(redacted)),
		}}
	case s.Validation != nil:
		out.Type = &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(s.Validation.RootsPEM)}}
	}
	return out
}
