package translate

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/internal/config"
)

// hostsTable is a table of virtual hosts by domain, each with one route.
func hostsTable(domains ...string) *route.RouteConfiguration {
	m := &route.RouteConfiguration{Name: "8080"}
	for i, d := range domains {
		m.VirtualHosts = append(m.VirtualHosts, &route.VirtualHost{Name: fmt.Sprint("h", i), Domains: []string{d}, Routes: []*route.Route{{
			Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
			Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: d}}},
		}}})
	}
	return m
}

// follow translates m as the successor of before.
func follow(t *testing.T, r *Registry, m proto.Message, before *config.RouteConfiguration) (*config.RouteConfiguration, error) {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := r.Routes(b, func(name string) *config.RouteConfiguration {
		if name != "8080" {
			t.Errorf("asked for table %q", name)
		}
		return before
	})
	c, _ := v.(*config.RouteConfiguration)
	return c, err
}

func TestUnchangedVirtualHostsAreKept(t *testing.T) {
	answers := hostsTable("a", "b")
	answers.VirtualHosts[0].Routes[0].Action = &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{
		Status: 200, Body: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: "x"}}}}
	limited := hostsTable("a", "b")
	limited.MaxDirectResponseBodySizeBytes = wrapperspb.UInt32(10)
	for _, x := range []struct {
		name        string
		first, then *route.RouteConfiguration
		kept        string // by virtual host of then: its place in first, - for none
	}{
		{"the same", hostsTable("a", "b", "c"), hostsTable("a", "b", "c"), "012"},
		{"one changed", hostsTable("a", "b", "c"), hostsTable("a", "x", "c"), "0-2"},
		{"one more", hostsTable("a", "b"), hostsTable("a", "b", "c"), "01-"},
		{"one less", hostsTable("a", "b", "c"), hostsTable("a", "b"), "01"},
		{"none left", hostsTable("a", "b", "c"), hostsTable(), ""},
		{"a body may be a file's", answers, answers, "-1"},
		{"another limit of bodies", hostsTable("a", "b"), limited, "--"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := Default()
			first, err := follow(t, r, x.first, nil)
			if err != nil {
				t.Fatal(err)
			}
			then, err := follow(t, r, x.then, first)
			if err != nil || len(then.VirtualHosts) != len(x.kept) {
				t.Fatalf("%v: %+v", err, then)
			}
			for i, h := range then.VirtualHosts {
				j := strings.Index("0123", x.kept[i:i+1])
				if j >= 0 && h != first.VirtualHosts[j] || j < 0 && i < len(first.VirtualHosts) && h == first.VirtualHosts[i] {
					t.Errorf("virtual host %d is %p, of %v", i, h, first.VirtualHosts)
				}
			}
			alone, err := follow(t, r, x.then, nil)
			if err != nil || !reflect.DeepEqual(withoutHashes(then), withoutHashes(alone)) {
				t.Errorf("%+v\nalone, %v:\n%+v", then, err, alone)
			}
		})
	}
}

func withoutHashes(c *config.RouteConfiguration) *config.RouteConfiguration {
	out := *c
	out.VirtualHosts = nil
	for _, h := range c.VirtualHosts {
		same := *h
		same.Hash = 0
		out.VirtualHosts = append(out.VirtualHosts, &same)
	}
	return &out
}

func TestFaultsBesideKeptVirtualHostsHaveTheirPlace(t *testing.T) {
	r := Default()
	first, err := follow(t, r, hostsTable("a", "b", "c"), nil)
	if err != nil {
		t.Fatal(err)
	}
	broken := hostsTable("a", "b", "x")
	broken.VirtualHosts[2].Routes[0].Match = nil
	for _, x := range []struct {
		name, want string
		m          *route.RouteConfiguration
	}{
		{"a domain twice", "virtual_hosts[2].domains[0]: only unique values", hostsTable("a", "b", "a")},
		{"two wildcards", "virtual_hosts[1].domains[0]: only a single wildcard", hostsTable("*", "*", "c")},
		{"no match", "[2]", broken},
	} {
		if _, err := follow(t, r, x.m, first); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
