package relay

import (
	"testing"

	"sluice/internal/config"
	"sluice/listener/downstream"
	"sluice/listener/tcpproxy"
)

func TestPeersAreWaitedForOnlyWhereTheyTell(t *testing.T) {
	in, out := &config.Listener{Direction: config.Inbound}, &config.Listener{Direction: config.Outbound}
	told := &config.FilterChain{Filters: []config.NetworkFilter{&config.MetadataExchange{Protocol: "mx"}}}
	silent := &config.FilterChain{}
	agreed, other := &downstream.TLS{ALPN: "mx"}, &downstream.TLS{ALPN: "h2"}
	for _, c := range []struct {
		rule string
		d    downstream.Connection
		from []byte // the client's frame
		peer *tcpproxy.Peer
		want bool
	}{
		{"outbound without an exchange", downstream.Connection{Listener: out}, nil, nil, true},
		{"outbound before the frame", downstream.Connection{Listener: out}, nil, &tcpproxy.Peer{}, false},
		{"outbound after the frame", downstream.Connection{Listener: out}, nil, &tcpproxy.Peer{Metadata: []byte("x")}, true},
		{"inbound plaintext", downstream.Connection{Listener: in, Chain: told}, nil, nil, true},
		{"inbound before the frame", downstream.Connection{Listener: in, Chain: told, TLS: agreed}, nil, nil, false},
		{"inbound after the frame", downstream.Connection{Listener: in, Chain: told, TLS: agreed}, []byte("x"), nil, true},
		{"inbound with another protocol", downstream.Connection{Listener: in, Chain: told, TLS: other}, nil, nil, true},
		{"inbound without the filter", downstream.Connection{Listener: in, Chain: silent, TLS: agreed}, nil, nil, true},
	} {
		if c.from != nil {
			c.d.Note().PeerMetadata = c.from
		}
		if got := known(&tcpproxy.Record{Downstream: &c.d, UpstreamPeer: c.peer}); got != c.want {
			t.Errorf("%s: %v", c.rule, got)
		}
	}
}
