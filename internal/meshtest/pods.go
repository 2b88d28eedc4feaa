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
	options := protojson.UnmarshalOptions{Resolver: kinds}
	var errs []error
	add := func(to *[]types.Resource, docs []map[string]any, make func() proto.Message) {
		for _, d := range docs {
			text, err := json.Marshal(d)
			m := make()
			if err == nil {
				err = options.Unmarshal(text, m)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%T %v: %w", m, d["name"], err))
				continue
			}
			*to = append(*to, m)
		}
	}
	add(&out.Clusters, docs.Clusters, func() proto.Message { return &cluster.Cluster{} })
	add(&out.Endpoints, docs.Endpoints, func() proto.Message { return &endpoint.ClusterLoadAssignment{} })
	add(&out.Listeners, docs.Listeners, func() proto.Message { return &listener.Listener{} })
	add(&out.Routes, docs.Routes, func() proto.Message { return &route.RouteConfiguration{} })
	return out, errors.Join(errs...)
}
