// Package controlplane is a small control plane for tests and the demo: an ADS
// server (go-control-plane, delta and state of the world) that serves the
// resources of a podconfig.Mesh to each pod by its node id, and a certificate
// authority that answers CSRs the way istiod does, for the token each pod was
// given. It is real gRPC over TLS on a real port; only the policy in it is small.
package controlplane

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	security "istio.io/api/security/v1alpha1"

	"sluice/internal/meshtest/podconfig"
)

// Server is a control plane. Set and Reject may be called from any goroutine.
type Server struct {
	ca      *CA
	cache   cache.SnapshotCache
	log     *slog.Logger
	mu      sync.Mutex
	version int
	nacks   []string
	grpc    *grpc.Server
}

// New makes a control plane that signs with ca.
func New(ca *CA, log *slog.Logger) *Server {
	return &Server{ca: ca, cache: cache.NewSnapshotCache(true, podAddress{}, nil), log: log}
}

// podAddress keys snapshots by the address in a node id, TYPE~ADDRESS~POD~DOMAIN.
type podAddress struct{}

// ID is the second part of the node id.
func (podAddress) ID(n *core.Node) string {
	parts := strings.Split(n.GetId(), "~")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// Nacks are the refusals received so far, a line each.
func (s *Server) Nacks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.nacks...)
}

// Set gives the pod with address ip the configuration that m says.
func (s *Server) Set(ip string, m *podconfig.Mesh) error {
	r := m.For(ip)
	s.mu.Lock()
	s.version++
	version := strconv.Itoa(s.version)
	s.mu.Unlock()
	all := map[resource.Type][]types.Resource{}
	kinds, err := messages()
	if err != nil {
		return err
	}
	var errs []error
	add := func(kind string, docs []map[string]any, make func() proto.Message) {
		for _, d := range docs {
			p := make()
			if err := decode(d, p, kinds); err != nil {
				errs = append(errs, fmt.Errorf("%s %v: %w", kind, d["name"], err))
				continue
			}
			all[kind] = append(all[kind], p)
		}
	}
	add(resource.ClusterType, r.Clusters, func() proto.Message { return &cluster.Cluster{} })
	add(resource.EndpointType, r.Endpoints, func() proto.Message { return &endpoint.ClusterLoadAssignment{} })
	add(resource.ListenerType, r.Listeners, func() proto.Message { return &listener.Listener{} })
	add(resource.RouteType, r.Routes, func() proto.Message { return &route.RouteConfiguration{} })
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	snapshot, err := cache.NewSnapshot(version, all)
	if err != nil {
		return fmt.Errorf("building the snapshot of %s: %w", ip, err)
	}
	return s.cache.SetSnapshot(context.Background(), ip, snapshot)
}

func decode(d map[string]any, into proto.Message, types *protoregistry.Types) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{Resolver: types}.Unmarshal(text, into)
}

// Serve answers ADS and CSRs on l, as istiod does on port 15012, until Stop.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	callbacks := server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			s.note(r.GetTypeUrl(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, r *discovery.DeltaDiscoveryRequest) error {
			s.note(r.GetTypeUrl(), r.GetErrorDetail().GetMessage())
			return nil
		},
	}
	cert, err := s.ca.Server()
	if err != nil {
		return fmt.Errorf("issuing the control plane's certificate: %w", err)
	}
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if _, err := s.ca.identify(ss.Context()); err != nil {
				return err
			}
			return h(srv, ss)
		}))
	s.mu.Lock()
	s.grpc = srv
	s.mu.Unlock()
	discovery.RegisterAggregatedDiscoveryServiceServer(srv, server.NewServer(ctx, s.cache, callbacks))
	security.RegisterIstioCertificateServiceServer(srv, s.ca)
	return srv.Serve(l)
}

// Stop ends Serve and cuts every stream, as a crash would.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		s.grpc.Stop()
	}
}

func (s *Server) note(kind, refusal string) {
	if refusal == "" {
		return
	}
	s.log.Warn("configuration refused", "type", kind, "reason", refusal)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nacks = append(s.nacks, strings.TrimPrefix(kind, "type.googleapis.com/")+": "+refusal)
}
