package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice/bench/machine"
)

// adsServer is a control plane of the delta protocol, as small as it can be, so
// that what it costs doesn't hide what the proxy costs: resources are encoded
// before, a push is one message of a type.
type adsServer struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	server *grpc.Server
	done   sync.WaitGroup

	mu        sync.Mutex
	resources map[string]map[string]*anypb.Any // by type and name
	order     map[string][]string              // names by type
	version   int
	stream    discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	nacks     []string
}

func serveADS(l net.Listener) *adsServer {
	s := &adsServer{server: grpc.NewServer(), resources: map[string]map[string]*anypb.Any{}, order: map[string][]string{}}
	discovery.RegisterAggregatedDiscoveryServiceServer(s.server, s)
	s.done.Go(func() { _ = s.server.Serve(l) })
	return s
}

func (s *adsServer) close() {
	s.server.Stop()
	s.done.Wait()
}

// put sets a resource; it is sent by the next push, or when it's asked for.
func (s *adsServer) put(kind, name string, m proto.Message) error {
	a, err := packed(m)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resources[kind] == nil {
		s.resources[kind] = map[string]*anypb.Any{}
	}
	if s.resources[kind][name] == nil {
		s.order[kind] = append(s.order[kind], name)
	}
	s.resources[kind][name] = a
	return nil
}

// push sends names of a type, all for none, and gives the time when the message
// was handed over.
func (s *adsServer) push(kind string, names ...string) (at int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil {
		return 0, fmt.Errorf("no stream to push to")
	}
	if len(names) == 0 {
		names = s.order[kind]
	}
	m := s.message(kind, names)
	at = machine.Monotonic()
	return at, s.stream.Send(m)
}

func (s *adsServer) message(kind string, names []string) *discovery.DeltaDiscoveryResponse {
	s.version++
	version := strconv.Itoa(s.version)
	m := &discovery.DeltaDiscoveryResponse{TypeUrl: kind, Nonce: version, SystemVersionInfo: version}
	for _, name := range names {
		if a := s.resources[kind][name]; a != nil {
			m.Resources = append(m.Resources, &discovery.Resource{Name: name, Version: version, Resource: a})
		}
	}
	return m
}

// DeltaAggregatedResources implements the service: what is subscribed is sent,
// wildcards for clusters and listeners included.
func (s *adsServer) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s.mu.Lock()
	s.stream = stream
	s.mu.Unlock()
	greeted := map[string]bool{}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := s.answer(stream, r, greeted); err != nil {
			return err
		}
	}
}

func (s *adsServer) answer(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, r *discovery.DeltaDiscoveryRequest, greeted map[string]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := r.GetErrorDetail(); e != nil {
		s.nacks = append(s.nacks, e.GetMessage())
		return nil
	}
	kind, names := r.GetTypeUrl(), r.GetResourceNamesSubscribe()
	wild := kind == cds || kind == lds
	first := !greeted[kind]
	greeted[kind] = true
	if wild && (first || slices.Contains(names, "*")) {
		names = s.order[kind]
	} else if len(names) == 0 {
		return nil
	}
	return stream.Send(s.message(kind, names))
}

func (s *adsServer) refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.nacks)
}

// durationOfGeneration tells one version of a cluster from the next.
func durationOfGeneration(generation int) time.Duration {
	return time.Duration(10+generation) * time.Second
}
