package networkrbac

import (
	"net/netip"
	"slices"
	"testing"

	"sluice/internal/config"
	"sluice/listener/downstream"
)

func TestRulesDecide(t *testing.T) {
	yes := []config.RBACExpr{{Op: config.RBACAny}}
	prefix := netip.MustParsePrefix("10.0.0.0/8")
	id := &config.StringMatch{Kind: config.MatchPrefix, Value: "spiffe://td/ns/a/"}
	conn := func() *downstream.Connection {
		c := &downstream.Connection{
			Src: netip.MustParseAddrPort("10.1.1.1:5"), Dst: netip.MustParseAddrPort("10.2.2.2:80"),
			SNI: "a.example", TLS: &downstream.TLS{PeerURIs: []string{"spiffe://td/ns/a/sa/b"}, PeerSubject: "CN=x"},
		}
		n := c.Note()
		n.DirectSrc, n.Proxied = netip.MustParseAddrPort("192.168.0.1:5"), true
		n.Dynamic = config.Metadata{"ns": {"k": config.List{"v", "w"}}}
		return c
	}
	for _, c := range []struct {
		name string
		e    config.RBACExpr
		want bool
	}{
		{"destination port", config.RBACExpr{Op: config.RBACDestPort, Ports: [2]uint32{80, 81}}, true},
		{"other port", config.RBACExpr{Op: config.RBACDestPortRange, Ports: [2]uint32{81, 90}}, false},
		{"destination address", config.RBACExpr{Op: config.RBACDestIP, Prefix: prefix}, true},
		{"remote address", config.RBACExpr{Op: config.RBACRemoteIP, Prefix: prefix}, true},
		{"direct remote address", config.RBACExpr{Op: config.RBACDirectRemoteIP, Prefix: prefix}, false},
		{"server name", config.RBACExpr{Op: config.RBACServerName, String: &config.StringMatch{Value: "a.example"}}, true},
		{"principal", config.RBACExpr{Op: config.RBACAuthenticated, String: id}, true},
		{"anyone on TLS", config.RBACExpr{Op: config.RBACAuthenticated}, true},
		{"not", config.RBACExpr{Op: config.RBACNot, Sub: yes}, false},
		{"and", config.RBACExpr{Op: config.RBACAnd, Sub: []config.RBACExpr{{Op: config.RBACAny}, {Op: config.RBACURLPath}}}, false},
		{"or", config.RBACExpr{Op: config.RBACOr, Sub: []config.RBACExpr{{Op: config.RBACURLPath}, {Op: config.RBACAny}}}, true},
		{"metadata", config.RBACExpr{Op: config.RBACMetadata, Metadata: &config.MetadataMatch{Namespace: "ns", Path: []string{"k"}, Value: &config.ValueMatch{List: &config.ValueMatch{String: &config.StringMatch{Value: "w"}}}}}, true},
		{"a header", config.RBACExpr{Op: config.RBACHeader, Header: &config.HeaderMatch{Name: "x", String: &config.StringMatch{Value: "y"}}}, false},
		{"an absent header", config.RBACExpr{Op: config.RBACHeader, Header: &config.HeaderMatch{Name: "x", Absent: true}}, true},
		{"a present header", config.RBACExpr{Op: config.RBACHeader, Header: &config.HeaderMatch{Name: "x", Present: true}}, false},
	} {
		for _, action := range []config.RBACAction{config.RBACAllow, config.RBACDeny} {
			var counted []string
			f := New(&config.RBAC{StatPrefix: "p.", Rules: &config.RBACRules{Action: action, Policies: []config.RBACPolicy{{Name: "it", Permissions: []config.RBACExpr{c.e}, Principals: yes}}}},
				func(s string) { counted = append(counted, s) })
			x := conn()
			f.Admit(x, nil)
			want := c.want == (action == config.RBACAllow)
			if got := x.Guarded(); got != want {
				t.Errorf("%s, action %d: %v", c.name, action, got)
			}
			stat, text := "p.rbac.allowed", ""
			if !want {
				stat, text = "p.rbac.denied", "rbac_access_denied_matched_policy[none]"
				if action == config.RBACDeny {
					text = "rbac_access_denied_matched_policy[it]"
				}
			}
			if !slices.Equal(counted, []string{stat}) || x.Notes().Termination != text {
				t.Errorf("%s, action %d: counted %q, said %q", c.name, action, counted, x.Notes().Termination)
			}
		}
	}
}

func TestShadowRulesOnlyReport(t *testing.T) {
	yes := []config.RBACExpr{{Op: config.RBACAny}}
	f := New(&config.RBAC{ShadowStatPrefix: "dry_", Shadow: &config.RBACRules{Action: config.RBACDeny, Policies: []config.RBACPolicy{{Name: "it", Permissions: yes, Principals: yes}}}}, nil)
	x := &downstream.Connection{}
	f.Admit(x, nil)
	if !x.Guarded() {
		t.Error("refused")
	}
	if s := x.Notes().Dynamic[metadataKey]; s["dry_shadow_effective_policy_id"] != "it" || s["dry_shadow_engine_result"] != "denied" {
		t.Errorf("%v", s)
	}
}

func TestNoRulesAtAllRefuseNobody(t *testing.T) {
	x := &downstream.Connection{}
	New(&config.RBAC{}, nil).Admit(x, nil)
	if !x.Guarded() {
		t.Error("refused")
	}
	New(&config.RBAC{Rules: &config.RBACRules{}}, nil).Admit(x, nil)
	if x.Guarded() {
		t.Error("ALLOW without policies let it in")
	}
}
