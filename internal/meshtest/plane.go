// Package meshtest is a control plane in a box: an ADS server in both forms and
// Istio's certificate service, on one TLS or plaintext port. Tests and the demo
// use it in place of istiod; the product never links it.
package meshtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cache "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resource "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Resources is one whole state, of Envoy messages.
type Resources struct {
	Clusters, Endpoints, Listeners, Routes, Secrets, Extensions []types.Resource
}

// Options of a Plane.
type Options struct {
	Listen string // "127.0.0.1:0" when empty
	CA     *CA    // signs and serves; nil: plaintext, no certificate service
	// Token is the bearer token that calls must carry; "" takes any caller.
	Token string
}

// Plane is a running control plane.
type Plane struct {
	Address string
	CA      *CA

	cache  cache.SnapshotCache
	server *grpc.Server
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	nacks []string
	nodes map[string]*core.Node
	token atomic.Pointer[string]
	// Streams counts the ADS streams that were opened.
	Streams atomic.Int64
}

// everyone puts all nodes under one key: one plane serves one workload.
type everyone struct{}

// ID gives the same key for all.
func (everyone) ID(*core.Node) string { return "all" }

// Start listens and serves until Close.
func Start(o Options) (*Plane, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Plane{Address: l.Addr().String(), CA: o.CA, cache: cache.NewSnapshotCache(true, everyone{}, nil), cancel: cancel, nodes: map[string]*core.Node{}}
	p.SetToken(o.Token)
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if err := p.authenticate(ctx); err != nil {
				return nil, err
			}
			return h(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if err := p.authenticate(s.Context()); err != nil {
				return err
			}
			return h(srv, s)
		}),
	}
	if o.CA != nil {
		cert, err := o.CA.Server("istiod.istio-system.svc", "localhost")
		if err != nil {
			cancel()
			return nil, errors.Join(err, l.Close())
		}
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})))
	}
	p.server = grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, xds.NewServer(ctx, p.cache, p.callbacks()))
	if o.CA != nil {
		o.CA.register(p.server)
	}
	p.wg.Go(func() { _ = p.server.Serve(l) })
	return p, nil
}

// Close ends every stream and waits for the server.
func (p *Plane) Close() {
	p.cancel()
	p.server.Stop()
	p.wg.Wait()
}

// SetToken changes the token that calls must carry.
func (p *Plane) SetToken(token string) { p.token.Store(&token) }

func (p *Plane) authenticate(ctx context.Context) error {
	want := *p.token.Load()
	if want == "" {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, v := range md.Get("authorization") {
		if strings.TrimPrefix(v, "Bearer ") == want {
			return nil
		}
	}
	return status.Error(codes.Unauthenticated, "authentication failure")
}

// Set makes r the whole state, under a version.
func (p *Plane) Set(version string, r Resources) error {
	snap, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{
		resource.ClusterType: r.Clusters, resource.EndpointType: r.Endpoints, resource.ListenerType: r.Listeners,
		resource.RouteType: r.Routes, resource.SecretType: r.Secrets, resource.ExtensionConfigType: r.Extensions,
	})
	if err != nil {
		return fmt.Errorf("making a snapshot: %w", err)
	}
	return p.cache.SetSnapshot(context.Background(), "all", snap)
}

// NACKs gives the refusals that came in, "TYPE: text" each.
func (p *Plane) NACKs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.nacks...)
}

// Node gives the node that introduced itself last, nil for none.
func (p *Plane) Node() *core.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes["last"]
}

func (p *Plane) note(n *core.Node, url, refusal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n != nil {
		p.nodes["last"] = n
	}
	if refusal != "" {
		p.nacks = append(p.nacks, url[strings.LastIndexByte(url, '.')+1:]+": "+refusal)
	}
}

func (p *Plane) callbacks() xds.Callbacks {
	return xds.CallbackFuncs{
		StreamOpenFunc:      func(context.Context, int64, string) error { p.Streams.Add(1); return nil },
		DeltaStreamOpenFunc: func(context.Context, int64, string) error { p.Streams.Add(1); return nil },
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			p.note(r.GetNode(), r.GetTypeUrl(), r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, r *discovery.DeltaDiscoveryRequest) error {
			p.note(r.GetNode(), r.GetTypeUrl(), r.GetErrorDetail().GetMessage())
			return nil
		},
	}
}
