package xdsclient

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"time"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
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
	"sluice/xdsclient/link"
)

// ConfigDump answers /config_dump: the sections in Envoy's order. What came from
// the control plane is shown as it came, for istioctl compares it with what
// istiod holds; secrets are redacted. boot is the bootstrap as parsed and may be
// nil; started is when the proxy began. The status is an HTTP one.
func (c *Client) ConfigDump(ctx context.Context, boot *bootstrap.Bootstrap, started time.Time, q Query) (body []byte, code int) {
	names, err := q.names()
	if err != nil {
		return []byte(err.Error()), http.StatusBadRequest
	}
	if boot == nil {
		boot = &bootstrap.Bootstrap{}
	}
	d := dumper{client: c, boot: boot, started: timestamppb.New(started), names: names}
	var sections []proto.Message
	if err := c.query(ctx, func() { sections = d.sections(q.Endpoints) }); err != nil {
		return []byte(err.Error()), http.StatusServiceUnavailable
	}
	return q.answer(sections)
}

func (d *dumper) sections(endpoints bool) []proto.Message {
	out := []proto.Message{
		&admin.BootstrapConfigDump{Bootstrap: proto.Clone(d.boot).(*bootstrap.Bootstrap), LastUpdated: d.started},
		d.clusters(),
	}
	if len(d.client.kinds[ecds].kept) > 0 {
		out = append(out, d.extensions())
	}
	if endpoints {
		out = append(out, d.endpoints())
	}
	return append(out, d.listeners(), &admin.ScopedRoutesConfigDump{}, d.routes(), d.secrets())
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
	names   *regexp.Regexp // nil: all
}

// shown says whether a resource of this name was asked for.
func (d *dumper) shown(name string) bool { return d.names == nil || d.names.MatchString(name) }

// version is a type's version, which only the state-of-the-world form has.
func (d *dumper) version(k kind) string {
	if a := d.client.opts.ADS; a == nil || a.Delta {
		return ""
	}
	return d.client.kinds[k].version
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
		if d.shown(n) {
			visit(n, kept[n])
		}
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
		FailedConfiguration: clone(f.body), LastUpdateAttempt: timestamppb.New(f.at), Details: f.why,
	}
}

func (d *dumper) clusters() proto.Message {
	out := &admin.ClustersConfigDump{VersionInfo: d.version(cds)}
	for _, m := range d.boot.GetStaticResources().GetClusters() {
		if a, err := anypb.New(m); err == nil && d.shown(m.GetName()) {
			out.StaticClusters = append(out.StaticClusters, &admin.ClustersConfigDump_StaticCluster{Cluster: a, LastUpdated: d.started})
		}
	}
	warming := d.warming(true)
	d.each(cds, func(name string, x *kept) {
		e := &admin.ClustersConfigDump_DynamicCluster{
			VersionInfo: x.version, Cluster: d.client.kinds[cds].body(x), LastUpdated: timestamppb.New(x.at),
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
	out := &admin.ListenersConfigDump{VersionInfo: d.version(lds)}
	for _, m := range d.boot.GetStaticResources().GetListeners() {
		if a, err := anypb.New(m); err == nil && d.shown(m.GetName()) {
			out.StaticListeners = append(out.StaticListeners, &admin.ListenersConfigDump_StaticListener{Listener: a, LastUpdated: d.started})
		}
	}
	warming := d.warming(false)
	d.each(lds, func(name string, x *kept) {
		e := &admin.ListenersConfigDump_DynamicListener{Name: name, ErrorState: failureState(x.failed)}
		state := &admin.ListenersConfigDump_DynamicListenerState{VersionInfo: x.version, Listener: d.client.kinds[lds].body(x), LastUpdated: timestamppb.New(x.at)}
		switch {
		case x.body == nil:
		case warming[name]:
			e.WarmingState = state
		default:
			e.ActiveState = state
		}
		out.DynamicListeners = append(out.DynamicListeners, e)
	})
	// Envoy lists the refusals of the last update once more, without names.
	for _, name := range sortedNames(d.client.kinds[lds].kept) {
		if f := d.client.kinds[lds].kept[name].failed; f != nil && d.client.kinds[lds].refusal != "" {
			out.DynamicListeners = append(out.DynamicListeners, &admin.ListenersConfigDump_DynamicListener{
				ErrorState: &admin.UpdateFailureState{FailedConfiguration: clone(f.body), Details: f.why},
			})
		}
	}
	return out
}

func (d *dumper) routes() proto.Message {
	out := &admin.RoutesConfigDump{}
	for _, m := range d.boot.GetStaticResources().GetListeners() {
		d.inline(m, d.started, out)
	}
	d.each(lds, func(_ string, x *kept) {
		var m listener.Listener
		if b := d.client.kinds[lds].body(x); b != nil && b.UnmarshalTo(&m) == nil {
			d.inline(&m, timestamppb.New(x.at), out)
		}
	})
	d.each(rds, func(_ string, x *kept) {
		if x.body == nil {
			return
		}
		out.DynamicRouteConfigs = append(out.DynamicRouteConfigs, &admin.RoutesConfigDump_DynamicRouteConfig{
			VersionInfo: x.version, RouteConfig: d.client.kinds[rds].body(x), LastUpdated: timestamppb.New(x.at),
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
			if a, err := anypb.New(m.GetRouteConfig()); err == nil && d.shown(m.GetRouteConfig().GetName()) {
				out.StaticRouteConfigs = append(out.StaticRouteConfigs, &admin.RoutesConfigDump_StaticRouteConfig{RouteConfig: a, LastUpdated: at})
			}
		}
	}
}

// endpoints shows the assignment in force of every cluster, wherever it is from.
func (d *dumper) endpoints() proto.Message {
	out := &admin.EndpointsConfigDump{}
	for _, m := range d.boot.GetStaticResources().GetClusters() {
		if a := d.assignment(m); a != nil && d.shown(m.GetName()) {
			out.StaticEndpointConfigs = append(out.StaticEndpointConfigs, &admin.EndpointsConfigDump_StaticEndpointConfig{EndpointConfig: a, LastUpdated: d.started})
		}
	}
	d.each(cds, func(_ string, x *kept) {
		var m clusterv3.Cluster
		if b := d.client.kinds[cds].body(x); b == nil || b.UnmarshalTo(&m) != nil {
			return
		}
		if a := d.assignment(&m); a != nil {
			out.DynamicEndpointConfigs = append(out.DynamicEndpointConfigs, &admin.EndpointsConfigDump_DynamicEndpointConfig{EndpointConfig: a, LastUpdated: timestamppb.New(x.at)})
		}
	})
	return out
}

func (d *dumper) assignment(m *clusterv3.Cluster) *anypb.Any {
	if m.GetType() == clusterv3.Cluster_EDS {
		name := m.GetEdsClusterConfig().GetServiceName()
		if name == "" {
			name = m.GetName()
		}
		if x := d.client.kinds[eds].kept[name]; x != nil {
			return d.client.kinds[eds].body(x)
		}
		return nil
	}
	if m.GetLoadAssignment() == nil {
		return nil
	}
	a, err := anypb.New(m.GetLoadAssignment())
	if err != nil {
		return nil
	}
	return a
}

func (d *dumper) extensions() proto.Message {
	out := &admin.EcdsConfigDump{}
	d.each(ecds, func(_ string, x *kept) {
		if x.body != nil {
			out.EcdsFilters = append(out.EcdsFilters, &admin.EcdsConfigDump_EcdsFilterConfig{
				VersionInfo: x.version, EcdsFilter: d.client.kinds[ecds].body(x), LastUpdated: timestamppb.New(x.at),
			})
		}
	})
	return out
}

func (d *dumper) secrets() proto.Message {
	out := &admin.SecretsConfigDump{}
	for _, m := range d.boot.GetStaticResources().GetSecrets() {
		if a, err := anypb.New(m); err == nil && d.shown(m.GetName()) {
			out.StaticSecrets = append(out.StaticSecrets, &admin.SecretsConfigDump_StaticSecret{Name: m.GetName(), Secret: a, LastUpdated: d.started})
		}
	}
	for _, name := range sortedNames(d.client.accepted.Secrets) {
		s := d.client.accepted.Secrets[name]
		a, err := anypb.New(secretMessage(s))
		if err != nil || !d.shown(name) {
			continue
		}
		at := d.client.arrived[name]
		if x := d.client.kinds[sds].kept[name]; x != nil && x.body != nil {
			at = x.at
		}
		out.DynamicActiveSecrets = append(out.DynamicActiveSecrets, &admin.SecretsConfigDump_DynamicSecret{
			Name: name, VersionInfo: s.Version, Secret: a, LastUpdated: timestamppb.New(at),
		})
	}
	for _, w := range d.client.waiting {
		if w.Part.Kind == link.KindSecrets && d.shown(w.Part.Name) && !slices.ContainsFunc(out.DynamicWarmingSecrets, func(x *admin.SecretsConfigDump_DynamicSecret) bool { return x.Name == w.Part.Name }) {
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

// secretMessage shows a secret's public part. Files are shown by what they held,
// as in Envoy.
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
