package upstream

import (
	"testing"

	"sluice/internal/config"
)

func TestSubsetOfTheWantedMetadata(t *testing.T) {
	type kv = config.Struct
	endpoints := map[string]kv{
		"a": {"version": "v1", "stage": "prod", "colour": config.List{"red", "blue"}},
		"b": {"version": "v1", "stage": "dev"},
		"c": {"version": "v2", "stage": "prod", "colour": "red"},
		"d": {"n": 1.0},
	}
	selectors := []config.SubsetSelector{{Keys: []string{"version"}}, {Keys: []string{"colour"}}, {Keys: []string{"n"}},
		{Keys: []string{"stage", "version"}, Fallback: 4, FallbackKeys: []string{"version"}}}
	for _, c := range []struct {
		rule string
		lb   config.SubsetLB
		want kv
		got  string // the hosts that may be chosen
	}{
		{"one key", config.SubsetLB{}, kv{"version": "v1"}, "ab"},
		{"two keys in any order", config.SubsetLB{}, kv{"version": "v1", "stage": "prod"}, "a"},
		{"numbers aren't texts", config.SubsetLB{}, kv{"n": "1"}, ""},
		{"a number", config.SubsetLB{}, kv{"n": 1.0}, "d"},
		{"a list is one value", config.SubsetLB{}, kv{"colour": "red"}, "c"},
		{"a list is any of its values", config.SubsetLB{ListAsAny: true}, kv{"colour": "red"}, "ac"},
		{"fewer keys where the selector says so", config.SubsetLB{}, kv{"version": "v2", "stage": "dev"}, "c"},
		{"no fallback", config.SubsetLB{}, kv{"version": "v9"}, ""},
		{"keys without a selector", config.SubsetLB{}, kv{"stage": "prod"}, ""},
		{"any", config.SubsetLB{Fallback: 1}, kv{"version": "v9"}, "abcd"},
		{"nothing wanted", config.SubsetLB{Fallback: 1}, nil, "abcd"},
		{"the default subset", config.SubsetLB{Fallback: 2, Default: kv{"stage": "prod"}}, kv{"version": "v9"}, "ac"},
		{"the next of a list", config.SubsetLB{FallbackList: true},
			kv{"version": "v9", "fallback_list": config.List{kv{"version": "v8"}, kv{"version": "v2"}}}, "c"},
	} {
		c.lb.Selectors = selectors
		cl := &Cluster{Config: &config.Cluster{ClusterOptions: &config.ClusterOptions{Subset: &c.lb}}, local: &Local{seed: 1}}
		for _, name := range []string{"a", "b", "c", "d"} {
			h := &Host{Name: name, Metadata: &Metadata{LB: endpoints[name]}, state: &hostState{endpoint: &config.Endpoint{}, health: &hostHealth{}}}
			h.cluster, h.Weight = cl, 1
			cl.hosts = append(cl.hosts, h)
		}
		cl.rebalance()
		seen := map[string]bool{}
		for range 64 {
			if b := cl.sub.pick(cl.set, &Query{Match: c.want}); b != nil {
				seen[cl.hosts[b.Index].Name] = true
			}
		}
		got := ""
		for _, name := range []string{"a", "b", "c", "d"} {
			if seen[name] {
				got += name
			}
		}
		if got != c.got {
			t.Errorf("%s: hosts %q, want %q", c.rule, got, c.got)
		}
	}
}
