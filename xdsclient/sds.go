package xdsclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"

	"sluice/internal/config"
	"sluice/internal/identity"
	"sluice/xdsclient/translate"
)

// sdsServer is one secret's subscription to an SDS server of its own, not ADS: a
// SPIRE agent's socket, for example. As Envoy, each secret has a stream.
type sdsServer struct {
	name     string
	cluster  string
	node     *core.Node
	dial     Dialer
	registry *translate.Registry
	take     func(*config.Secret)
	log      func(why string) // a new reason to refuse one
	bad      func()           // one was refused
}

// sdsPause is how long a refused secret is looked at before the server is told:
// one that sends it again at once must not keep us busy.
const sdsPause = time.Second

// watchServer subscribes to a secret until ctx ends. What came last stays in
// force while the server is away.
func (c *Client) watchServer(ctx context.Context, r config.SecretRef) {
	s := &sdsServer{name: r.Name, cluster: r.Cluster, node: nodeMessage(&c.opts.Node), registry: c.opts.Translate,
		take: func(v *config.Secret) { c.tell(event{secret: []*config.Secret{v}}) },
		log:  func(why string) { c.opts.Logf("secret %s of %s refused: %s", r.Name, r.Cluster, why) },
		bad:  func() { c.tell(event{badSecret: r.Name}) }}
	var err error
	if s.dial, err = ClusterDialer(c.opts.Static, r.Cluster, nil); err != nil {
		c.opts.Logf("secret %s: %v", r.Name, err)
		return
	}
	said := ""
	for attempts := 0; ctx.Err() == nil; attempts++ {
		answered, err := s.serve(ctx)
		if answered {
			attempts = 0
		}
		if why := identity.Explain(err, r.Cluster); why != said && ctx.Err() == nil {
			said = why
			c.opts.Logf("SDS stream for %s ended: %s", r.Name, why)
		}
		sleep(ctx, time.Duration(rand.Int64N(int64(min(backoffLast, backoffFirst<<min(attempts, 10))))+1))
	}
}

// sleep reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// serve holds one stream; answered says that a response came by it.
func (s *sdsServer) serve(ctx context.Context) (answered bool, err error) {
	cc, err := s.dial(ctx)
	if err != nil {
		return false, err
	}
	defer cc.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := secretv3.NewSecretDiscoveryServiceClient(cc).StreamSecrets(ctx)
	if err != nil {
		return false, err
	}
	ask := &discovery.DiscoveryRequest{TypeUrl: translate.SecretURL, Node: s.node, ResourceNames: []string{s.name}}
	for said := ""; ; {
		if err := stream.Send(ask); err != nil {
			_, err = stream.Recv() // says why
			return answered, err
		}
		m, err := stream.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		ask = &discovery.DiscoveryRequest{TypeUrl: translate.SecretURL, ResourceNames: []string{s.name}, VersionInfo: ask.VersionInfo, ResponseNonce: m.GetNonce()}
		if err := s.accept(m); err != nil {
			if why := err.Error(); why != said {
				said = why
				s.log(why)
			}
			s.bad()
			ask.ErrorDetail = failure(err.Error())
			if !sleep(ctx, sdsPause) {
				return answered, ctx.Err()
			}
			continue
		}
		ask.VersionInfo = m.GetVersionInfo()
	}
}

// accept takes a response over, or says what is wrong with it.
func (s *sdsServer) accept(m *discovery.DiscoveryResponse) error {
	if n := len(m.GetResources()); n != 1 {
		return fmt.Errorf("resources: %d secrets for the one that was asked for", n)
	}
	x := m.GetResources()[0]
	if x.GetTypeUrl() != translate.SecretURL {
		return fmt.Errorf("resources[0]: a %s", x.GetTypeUrl())
	}
	v, name, err := s.registry.Resource(translate.SecretURL, x.GetValue())
	if err != nil {
		return err
	}
	if name != s.name {
		return fmt.Errorf("resources[0].name: %q, not the %q that was asked for", name, s.name)
	}
	s.take(v.(*config.Secret))
	return nil
}
