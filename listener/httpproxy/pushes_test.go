package httpproxy

import (
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/listener/filter"
)

const rateLimit = "envoy.filters.http.local_ratelimit"

func limitOf(n uint32) *config.LocalRateLimit {
	return &config.LocalRateLimit{StatPrefix: "rl", Status: 429, Bucket: &config.TokenBucket{Max: n, Fill: 1, Interval: time.Hour},
		Enabled: config.Percent{PerMillion: all}, Enforced: config.Percent{PerMillion: all}}
}

func limitedManager(n uint32) *config.HTTPConnectionManager {
	m := hcm(to("/", "a"))
	m.Filters = []config.HTTPFilter{{Name: rateLimit, Policy: limitOf(n)}}
	return m
}

func filtered(t *testing.T) *bench {
	b := start(t, hcm(to("/", "a")), static("a", closed(t)))
	b.useFilters(&config.Node{})
	return b
}

func TestARoutesLimitIsOneForAllManagersOfTheTable(t *testing.T) {
	b := filtered(t)
	l := levels{{rateLimit: limitOf(1)}}
	table := b.server.table(&config.RouteConfiguration{})
	var of [2]filter.HTTP
	for i := range of {
		p, err := b.server.Build(limitedManager(1), &config.Listener{})
		if err != nil {
			t.Fatal(err)
		}
		if of[i], err = table.filter(p, p.chain, 0, &l); err != nil {
			t.Fatal(err)
		}
	}
	if of[0] != of[1] {
		t.Error("two managers have a bucket each")
	}
}

func TestFiltersWithTheSamePolicyAreTakenOver(t *testing.T) {
	b := filtered(t)
	p, err := b.server.Build(limitedManager(1), &config.Listener{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule string
		max  uint32
		same bool
	}{{"the same policy", 1, true}, {"another", 2, false}} {
		after, err := p.build(limitedManager(c.max).Filters, p.chain)
		if err != nil {
			t.Fatal(err)
		}
		if got := after.built[0] == p.chain.built[0]; got != c.same {
			t.Errorf("%s: taken over: %v", c.rule, got)
		}
	}
}

func TestAChainThatIsTakenOverKeepsItsManager(t *testing.T) {
	for _, c := range []struct {
		rule  string
		after *config.Listener // nil: none
		same  bool
	}{
		{"another chain changed", &config.Listener{ShellHash: 7, Chains: []*config.FilterChain{{Hash: 1}, {Hash: 3}}}, true},
		{"the chain changed", &config.Listener{ShellHash: 7, Chains: []*config.FilterChain{{Hash: 4}}}, false},
		{"the listener changed", &config.Listener{ShellHash: 8, Chains: []*config.FilterChain{{Hash: 1}}}, false},
		{"the listener went", nil, false},
	} {
		b := filtered(t)
		m, chain := limitedManager(1), &config.FilterChain{Hash: 1}
		before := &config.Listener{Meta: config.Meta{Name: "l"}, ShellHash: 7, Chains: []*config.FilterChain{chain}}
		first, err := b.server.Terminal(m, before, chain)
		if err != nil {
			t.Fatal(err)
		}
		var now []*config.Listener
		if c.after != nil {
			c.after.Name = "l"
			for _, f := range c.after.Chains {
				f.Filters = []config.NetworkFilter{limitedManager(1)}
			}
			now = append(now, c.after)
		}
		b.server.Retire(now)
		again, err := b.server.Terminal(m, before, chain)
		if err != nil {
			t.Fatal(err)
		}
		if got := first == again; got != c.same {
			t.Errorf("%s: the same manager: %v", c.rule, got)
		}
	}
}
