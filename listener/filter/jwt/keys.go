package jwt

import (
	"sluice/internal/config"
	"sluice/internal/jwks"
	"sluice/listener/filter"
)

// keySet is what was fetched, and until when it is good: seconds, as check.now.
type keySet struct {
	keys  []config.JWK
	until uint64
}

// keys gives a provider's keys to then: at once, or when they are fetched. A
// fetch that fails is not remembered: the next token asks again, as in Envoy.
func (k *check) keys(p *provider, then func([]config.JWK, status)) {
	if p.Remote == nil {
		then(p.Keys, ok)
		return
	}
	if set := p.fetched.Load(); set != nil && k.now() < set.until {
		then(set.keys, ok)
		return
	}
	r, returned, called := p.Remote, false, false
	cancel := k.x.Fetch(filter.Fetch{Cluster: r.Cluster, Scheme: r.Scheme, Host: r.Host, Path: r.Path,
		Timeout: r.Timeout, Retries: r.Retries, Backoff: r.Backoff, MaxBackoff: r.MaxBackoff},
		func(code int, body []byte) {
			called = true
			if returned {
				k.cancel = nil
			}
			then(k.received(p, code, body))
		})
	if returned = true; !called {
		k.cancel = cancel
	}
}

// received reads what was fetched.
func (k *check) received(p *provider, code int, body []byte) ([]config.JWK, status) {
	keys, err := jwks.Parse(body)
	if code != 200 || err != nil {
		k.x.Stats.Inc(k.f.stats.fetchFailed)
		return nil, fetchFailed
	}
	k.x.Stats.Inc(k.f.stats.fetched)
	p.fetched.Store(&keySet{keys, k.now() + uint64(p.Remote.Cache.Seconds())})
	return keys, ok
}
