package translate

import "testing"

// TestParseErrorsNameTheField: what isn't a message says which field it is, and
// why, in the words of the file and not by a place in JSON made of it.
func TestParseErrorsNameTheField(t *testing.T) {
	listener := func(filters string) string {
		return "static_resources: {listeners: [{name: é}, {name: l, filter_chains: [{filters: [" + filters + "]}]}]}"
	}
	const chain = "static_resources.listeners[1].filter_chains[0].filters"
	for _, c := range []struct{ name, text, want string }{
		{"an unknown field", "nodee: {}", `nodee: unknown field "nodee"`},
		{"one in an extension", listener(tcpOK + `, {name: tcp, typed_config: {"@type": ` + tcpType + `, stat_prefixx: t}}`),
			chain + `[1].typed_config.stat_prefixx: unknown field "stat_prefixx"`},
		{"no value of an enum", "static_resources: {clusters: [{name: c, type: STATICC}]}",
			`static_resources.clusters[0].type: invalid value for enum field type: "STATICC"`},
		{"no duration", "stats_flush_interval: 5", "stats_flush_interval: unexpected token 5"},
		{"nothing", "", "it is empty"},
		{"no message", "[]", "unexpected token ["},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Default().Bootstrap([]byte(c.text))
			if want := "parsing Bootstrap: " + c.want; err == nil || err.Error() != want {
				t.Fatalf("got  %v\nwant %s", err, want)
			}
		})
	}
}
