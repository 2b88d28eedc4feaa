package listener

import (
	"net/netip"
	"testing"

	"sluice/internal/config"
)

func TestFilterChainMatcher(t *testing.T) {
	to := func(name string) *config.ChainOutcome { return &config.ChainOutcome{Chain: name} }
	is := func(in config.ChainInput, v string) config.ChainCondition {
		return config.ChainCondition{Input: in, String: &config.StringMatch{Value: v}}
	}
	prefix := netip.MustParsePrefix
	at := netip.MustParseAddrPort
	c := criteria{dst: at("10.0.0.1:443"), src: at("127.0.0.9:1000"), direct: netip.MustParseAddr("192.168.1.1"), sni: "a.example", transport: "tls", protocols: []string{"h2", "http/1.1"}}
	for _, x := range []struct {
		name string
		m    *config.ChainMatcher
		want string // "-": none
	}{
		{"exact", &config.ChainMatcher{Input: config.ServerName, Exact: map[string]*config.ChainOutcome{"a.example": to("one")}}, "one"},
		{"no match without more", &config.ChainMatcher{Input: config.ServerName, Exact: map[string]*config.ChainOutcome{"b.example": to("one")}}, "-"},
		{"on no match", &config.ChainMatcher{Input: config.ServerName, Exact: map[string]*config.ChainOutcome{"b.example": to("one")}, NoMatch: to("else")}, "else"},
		{"a nested matcher that finds nothing ends it", &config.ChainMatcher{Input: config.DestinationPort, NoMatch: to("else"), Exact: map[string]*config.ChainOutcome{
			"443": {Matcher: &config.ChainMatcher{Input: config.ServerName, Exact: map[string]*config.ChainOutcome{"b.example": to("one")}}}}}, "-"},
		{"longest prefix of a value", &config.ChainMatcher{Input: config.ApplicationProtocols, Prefixes: map[string]*config.ChainOutcome{"'": to("some"), "'h2'": to("h2")}}, "h2"},
		{"longest address range", &config.ChainMatcher{Input: config.SourceIP, Ranges: []config.ChainRange{
			{Prefix: prefix("127.0.0.0/30"), Then: to("low")}, {Prefix: prefix("127.0.0.0/24"), Then: to("high")}}}, "high"},
		{"an exclusive range ends it", &config.ChainMatcher{Input: config.SourceIP, Ranges: []config.ChainRange{
			{Prefix: prefix("127.0.0.9/32"), Then: &config.ChainOutcome{Matcher: &config.ChainMatcher{}}, Exclusive: true}, {Prefix: prefix("127.0.0.0/24"), Then: to("high")}}}, "-"},
		{"a range that comes to nothing gives way", &config.ChainMatcher{Input: config.SourceIP, Ranges: []config.ChainRange{
			{Prefix: prefix("127.0.0.9/32"), Then: &config.ChainOutcome{Matcher: &config.ChainMatcher{}}}, {Prefix: prefix("127.0.0.0/24"), Then: to("high")}}}, "high"},
		{"the first rule that holds and comes to a chain", &config.ChainMatcher{Rules: []config.ChainRule{
			{When: is(config.TransportProtocol, "raw_buffer"), Then: to("plain")},
			{When: is(config.TransportProtocol, "tls"), Then: &config.ChainOutcome{Matcher: &config.ChainMatcher{}}},
			{When: config.ChainCondition{All: []config.ChainCondition{is(config.ServerName, "a.example"), is(config.SourcePort, "1000")}}, Then: to("both")}}}, "both"},
		{"any and not", &config.ChainMatcher{Rules: []config.ChainRule{
			{When: config.ChainCondition{Not: &config.ChainCondition{Any: []config.ChainCondition{is(config.ServerName, "b.example"), {Input: config.DirectSourceIP, Ranges: config.Prefixes{prefix("10.0.0.0/8")}}}}}, Then: to("rest")}}}, "rest"},
		{"what isn't there fits nothing", &config.ChainMatcher{Rules: []config.ChainRule{
			{When: config.ChainCondition{Input: config.SourceTypeInput, String: &config.StringMatch{Kind: config.MatchPrefix}}, Then: to("local")}}}, "-"},
	} {
		got, ok := chosenBy(x.m, &c)
		if !ok {
			got = "-"
		}
		if got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}
