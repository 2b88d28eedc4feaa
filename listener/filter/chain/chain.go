// Package chain builds HTTP filters from their policies: the one table from a
// policy's type to its behaviour. listener/httpproxy calls it.
package chain

import (
	"fmt"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/filter/alpn"
	"sluice/listener/filter/buffer"
	"sluice/listener/filter/cors"
	"sluice/listener/filter/csrf"
	"sluice/listener/filter/extauthz"
	"sluice/listener/filter/fault"
	"sluice/listener/filter/grpcstats"
	"sluice/listener/filter/grpcweb"
	"sluice/listener/filter/headermutation"
	"sluice/listener/filter/headertometadata"
	"sluice/listener/filter/healthcheck"
	"sluice/listener/filter/istiostats"
	"sluice/listener/filter/jwt"
	"sluice/listener/filter/localratelimit"
	"sluice/listener/filter/peermetadata"
	"sluice/listener/filter/rbac"
)

// Builder holds what filters need besides their policies.
type Builder struct {
	Node    *telemetry.Node // nil: peers are told nothing
	Workers int
	Cluster string // of the node, which health checks are told
	// Failing says that the process is told to fail its health checks; nil: never.
	Failing func() bool
	// More builds policies that this table doesn't know; nil: they are errors.
	More func(f *config.HTTPFilter, m *config.HTTPConnectionManager, l *config.Listener) (filter.HTTP, error)
}

// Build gives the filter of a policy; nil for one that does nothing on the data
// path. A policy that nobody knows is an error: a filter is never skipped.
func (b *Builder) Build(f *config.HTTPFilter, m *config.HTTPConnectionManager, l *config.Listener) (filter.HTTP, error) {
	direction := config.Unspecified
	if l != nil {
		direction = l.Direction
	}
	switch p := f.Policy.(type) {
	case nil:
		return nil, nil
	case *config.DisabledFilter:
		return nil, nil
	case *config.Fault:
		return fault.New(p), nil
	case *config.CORS:
		return cors.New(p), nil
	case *config.CSRF:
		return csrf.New(p), nil
	case *config.IstioALPN:
		return alpn.New(p), nil
	case *config.GRPCWeb:
		return grpcweb.New(), nil
	case *config.GRPCStats:
		return grpcstats.New(p), nil
	case *config.PeerMetadata:
		return peermetadata.New(p, b.Node, b.Workers), nil
	case *config.IstioStats:
		return istiostats.New(p, b.Node, direction), nil
	case *config.HTTPRBAC:
		return rbac.New(p.RBAC), nil
	case *config.Buffer:
		return buffer.New(p), nil
	case *config.JWT:
		return jwt.New(p), nil
	case *config.ExtAuthz:
		return extauthz.New(p, f.Name), nil
	case *config.LocalRateLimit:
		return localratelimit.New(p, b.Workers), nil
	case *config.HeaderToMetadata:
		return headertometadata.New(p), nil
	case *config.HealthCheckFilter:
		return healthcheck.New(p, b.Cluster, b.Failing), nil
	case *config.HeaderMutationFilter:
		return headermutation.New(p), nil
	}
	if b.More != nil {
		return b.More(f, m, l)
	}
	return nil, fmt.Errorf("filter %q: no behaviour for %T", f.Name, f.Policy)
}
