package meshtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlssocket "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"sluice/internal/meshtest/podconfig"
)

// SetPod gives the pod with address ip the configuration that m says.
func (p *Plane) SetPod(ip string, m *podconfig.Mesh) error {
	r, err := Decode(m.For(ip))
	if err != nil {
		return fmt.Errorf("resources of %s: %w", ip, err)
	}
	p.mu.Lock()
	p.pods[ip] = true
	p.last++
	version := strconv.Itoa(p.last)
	p.mu.Unlock()
	return p.set(ip, version, r)
}

// Decode turns the documents of a pod into Envoy messages.
func Decode(docs podconfig.Resources) (out Resources, err error) {
	kinds, err := messages()
	if err != nil {
		return out, err
	}
	o := protojson.UnmarshalOptions{Resolver: kinds}
	var errs [4]error
	out.Clusters, errs[0] = decode(o, docs.Clusters, func() proto.Message { return &cluster.Cluster{} })
	out.Endpoints, errs[1] = decode(o, docs.Endpoints, func() proto.Message { return &endpoint.ClusterLoadAssignment{} })
	out.Listeners, errs[2] = decode(o, docs.Listeners, func() proto.Message { return &listener.Listener{} })
	out.Routes, errs[3] = decode(o, docs.Routes, func() proto.Message { return &route.RouteConfiguration{} })
	return out, errors.Join(errs[:]...)
}

// Secrets turns documents into secrets.
func Secrets(docs ...map[string]any) ([]types.Resource, error) {
	return decode(protojson.UnmarshalOptions{}, docs, func() proto.Message { return &tlssocket.Secret{} })
}

func decode(o protojson.UnmarshalOptions, docs []map[string]any, make func() proto.Message) (out []types.Resource, err error) {
	var errs []error
	for _, d := range docs {
		text, err := json.Marshal(d)
		m := make()
		if err == nil {
			err = o.Unmarshal(text, m)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%T %v: %w", m, d["name"], err))
			continue
		}
		out = append(out, m)
	}
	return out, errors.Join(errs...)
}
