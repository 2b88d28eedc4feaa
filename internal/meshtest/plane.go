// Package meshtest is a control plane in a box: an ADS server in both forms
// (go-control-plane's) and Istio's certificate service, on one TLS or plaintext
// port, and the real sidecar as a process beside it. Tests and the demo use it
// in place of istiod; the product never links it. It is real gRPC on a real
// port; only the policy in it is small.
package meshtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	security "istio.io/api/security/v1alpha1"
)

// Resources is one whole state, of Envoy messages.
type Resources struct {
	Clusters, Endpoints, Listeners, Routes, Secrets, Extensions []types.Resource
}

// Options of a Plane.
type Options struct {
	Listen   string       // "127.0.0.1:0" when empty
	Listener net.Listener // serve here instead; Close closes it
	CA       *CA          // signs and serves; nil: plaintext, no certificate service
	Hosts    []string     // of the plane's certificate; istiod's name and localhost when nil
	// Token is a bearer token that calls may carry; so are those the CA has made.
	// With neither any caller is taken.
	Token string
	// Log is told of refusals; nil: nobody.
	Log *slog.Logger
}

// Plane is a running control plane.
type Plane struct {
	Address string
	CA      *CA

	log    *slog.Logger
	cache  cache.SnapshotCache
	server *grpc.Server
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	nacks []string
	node  *core.Node
	pods  map[string]bool // with a state of their own
	last  int             // version of the last pod's state
	token atomic.Pointer[string]
	// Streams counts the ADS streams that were opened.
	Streams atomic.Int64
}

// keys says whose state a node gets: that of its address, the second part of the
// id TYPE~ADDRESS~POD~DOMAIN, if there is one, else the one for all.
type keys struct{ *Plane }

const everyone = "all"

// ID gives the key of a node.
func (k keys) ID(n *core.Node) string {
	if parts := strings.Split(n.GetId(), "~"); len(parts) > 1 {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.pods[parts[1]] {
			return parts[1]
		}
	}
	return everyone
}

// Start listens and serves until Close.
func Start(o Options) (*Plane, error) {
	l := o.Listener
	if l == nil {
		if o.Listen == "" {
			o.Listen = "127.0.0.1:0"
		}
		var err error
		if l, err = net.Listen("tcp", o.Listen); err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Plane{Address: l.Addr().String(), CA: o.CA, log: o.Log, cancel: cancel, pods: map[string]bool{}}
	p.cache = cache.NewSnapshotCache(true, keys{p}, nil)
	p.SetToken(o.Token)
	options, err := p.options(o)
	if err != nil {
		cancel()
		return nil, errors.Join(err, l.Close())
	}
	p.server = grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, xds.NewServer(ctx, p.cache, p.callbacks()))
	if o.CA != nil {
		security.RegisterIstioCertificateServiceServer(p.server, signer{ca: o.CA, plane: p})
	}
	p.wg.Go(func() { _ = p.server.Serve(l) })
	return p, nil
}

func (p *Plane) options(o Options) ([]grpc.ServerOption, error) {
	options := []grpc.ServerOption{
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if _, err := p.identify(s.Context()); err != nil {
				return err
			}
			return h(srv, s)
		}),
	}
	if o.CA == nil {
		return options, nil
	}
	if o.Hosts == nil {
		o.Hosts = []string{"istiod.istio-system.svc", "localhost"}
	}
	cert, err := o.CA.Server(o.Hosts...)
	if err != nil {
		return nil, err
	}
	return append(options, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12}))), nil
}

// Close ends every stream and waits for the server.
func (p *Plane) Close() {
	p.cancel()
	p.server.Stop()
	p.wg.Wait()
}

// SetToken changes the token that calls must carry.
func (p *Plane) SetToken(token string) { p.token.Store(&token) }

// identify gives the SPIFFE id of a call's token: "" for a token, or a lack of
// one, that stands for anybody.
func (p *Plane) identify(ctx context.Context) (id string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	bearer := ""
	if v := md.Get("authorization"); len(v) > 0 {
		bearer = strings.TrimSpace(strings.TrimPrefix(v[0], "Bearer "))
	}
	want := *p.token.Load()
	if want != "" && bearer == want {
		return "", nil
	}
	id, some := p.CA.holder(bearer)
	if id == "" && (want != "" || some) {
		return "", status.Error(codes.Unauthenticated, "authentication failure")
	}
	return id, nil
}

// Set makes r the whole state of all pods without one of their own, under a
// version.
func (p *Plane) Set(version string, r Resources) error {
	return p.set(everyone, version, r)
}

func (p *Plane) set(key, version string, r Resources) error {
	snap, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{
		resource.ClusterType: r.Clusters, resource.EndpointType: r.Endpoints, resource.ListenerType: r.Listeners,
		resource.RouteType: r.Routes, resource.SecretType: r.Secrets, resource.ExtensionConfigType: r.Extensions,
	})
	if err != nil {
		return fmt.Errorf("making a snapshot: %w", err)
	}
	return p.cache.SetSnapshot(context.Background(), key, snap)
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
	return p.node
}

func (p *Plane) note(n *core.Node, url, refusal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n != nil {
		p.node = n
	}
	if refusal != "" {
		p.log.Warn("configuration refused", "type", url, "reason", refusal)
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
