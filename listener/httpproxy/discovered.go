package httpproxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

// place is where a connection manager stands: managers of one place have the
// same bytes, whatever the discovered configuration of their filters is now.
type place struct {
	listener string
	chain    uint64 // hash
	prefix   string
}

// discovered is what discovery changes under a running manager: all managers of
// a place share it, connections and listener stay as they are.
type discovered struct {
	config *config.HTTPConnectionManager // as last applied; control goroutine
	chain  atomic.Pointer[chain]
	routes holder // of inline routes
}

func discovers(m *config.HTTPConnectionManager) bool {
	return slices.ContainsFunc(m.Filters, func(f config.HTTPFilter) bool { return f.Discovery != nil })
}

// Rediscover makes new discovered filter configurations current in the managers
// that run already. Requests that have begun keep theirs.
func (s *Server) Rediscover(listeners []*config.Listener) error {
	var errs []error
	keep := map[place]bool{}
	for at, m := range managers(listeners) {
		if discovers(m.config) {
			keep[at] = true
			if err := s.rediscover(at, m.config, m.listener); err != nil {
				errs = append(errs, fmt.Errorf("listener %q: %w", at.listener, err))
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.places {
		if !keep[at] {
			delete(s.places, at)
		}
	}
	return errors.Join(errs...)
}

// Retire drops the managers that listeners don't have any more, and their
// statistics when their connections are gone. Call it after the listeners are
// applied. A manager of a chain that a changed listener took over stays: a worker
// may build that chain only now, and must share it.
func (s *Server) Retire(listeners []*config.Listener) {
	used, now := map[string]bool{}, managers(listeners)
	kept := map[*config.HTTPConnectionManager]bool{}
	for at, m := range now {
		used[at.prefix], kept[m.config] = true, true
	}
	s.mu.Lock()
	maps.DeleteFunc(s.built, func(m *config.HTTPConnectionManager, p *Proxy) bool {
		at, ok := now[p.place]
		takenOver := ok && p.place.chain != 0 && at.listener.ShellHash == p.listener.ShellHash
		return !kept[m] && !takenOver
	})
	s.mu.Unlock()
	for _, l := range s.locals {
		l.worker.Post(func() { l.retire(used) })
	}
}

type manager struct {
	config   *config.HTTPConnectionManager
	listener *config.Listener
}

func managers(listeners []*config.Listener) map[place]manager {
	out := map[place]manager{}
	for _, l := range listeners {
		for _, c := range append(l.Chains[:len(l.Chains):len(l.Chains)], l.DefaultChain) {
			if c == nil {
				continue
			}
			for _, f := range c.Filters {
				if m, ok := f.(*config.HTTPConnectionManager); ok {
					out[place{l.Name, c.Hash, m.StatPrefix}] = manager{m, l}
				}
			}
		}
	}
	return out
}

// rediscover builds a place's filters anew when their configuration changed.
func (s *Server) rediscover(at place, m *config.HTTPConnectionManager, l *config.Listener) error {
	s.mu.Lock()
	d := s.places[at]
	if d == nil {
		d = &discovered{}
		s.places[at] = d
	}
	before := d.config
	d.config = m
	s.mu.Unlock()
	if before == m {
		return nil
	}
	p := &Proxy{server: s, config: m, listener: l}
	c, err := p.build(m.Filters, d.chain.Load())
	if err != nil {
		c = &chain{filters: []filter.HTTP{missing{}}} // a filter that can't be made is never passed by
	}
	if m.Routes != nil {
		d.routes.table.Store(s.table(m.Routes))
	}
	d.chain.Store(c)
	return err
}

// found gives the place's filters, nil where Rediscover hasn't been.
func (s *Server) found(at place) *discovered {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.places[at]; d != nil && d.chain.Load() != nil {
		return d
	}
	return nil
}

// filters are those of a request that begins now.
func (p *Proxy) filters() *chain {
	if p.found != nil {
		return p.found.chain.Load()
	}
	return p.chain
}

// missing stands for a filter whose configuration didn't come: nothing may pass
// a filter that isn't there.
type missing struct{}

func (missing) Decode(x *filter.Exchange, _ *filter.Slot) filter.Verdict {
	x.Reply(filter.Reply{Status: 500, Flag: telemetry.NFCF, GRPC: -1})
	return filter.Stop
}

func (missing) Encode(*filter.Exchange, *filter.Slot) {}
