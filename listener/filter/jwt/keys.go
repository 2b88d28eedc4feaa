package jwt

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/jwks"
	"sluice/upstream/call"
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
	cancel := k.x.Call(keyRequest(r), func(a *call.Answer) {
		called = true
		if returned {
			k.cancel = nil
		}
		then(k.received(p, a))
	})
	if returned = true; !called {
		k.cancel = cancel
	}
}

// keyRequest is the request for keys, as Envoy makes it.
func keyRequest(r *config.RemoteJWKS) *call.Request {
	return &call.Request{Cluster: r.Cluster, Forwarded: true,
		Timeout: r.Timeout, Retries: r.Retries,
		Head: func(h *httpmsg.Head) {
			h.SetMethod([]byte("GET"))
			h.SetPath([]byte(r.Path))
			h.SetScheme([]byte(r.Scheme))
			h.SetAuthority([]byte(r.Host))
			h.AddName("user-agent", []byte("Go-browser"))
		}}
}

// received reads what was fetched.
func (k *check) received(p *provider, a *call.Answer) ([]config.JWK, status) {
	keys, err := jwks.Parse(a.Body)
	if a.Status != 200 || err != nil {
		k.x.Stats.Inc(k.f.stats.fetchFailed)
		return nil, fetchFailed
	}
	k.x.Stats.Inc(k.f.stats.fetched)
	p.fetched.Store(&keySet{keys, k.now() + uint64(p.Remote.Cache.Seconds())})
	return keys, ok
}
