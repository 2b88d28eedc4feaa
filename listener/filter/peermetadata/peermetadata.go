// Package peermetadata is the HTTP half of istio.metadata_exchange: it tells
// the next hop who we are by x-envoy-peer-metadata headers, reads who the peer
// is from them, and takes them off where they must not go on.
package peermetadata

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

// maxPeers bounds the cache of known peers; it begins anew when it is full.
const maxPeers = 1000

// Filter is the filter of one policy; it is safe for all workers.
type Filter struct {
	policy *config.PeerMetadata
	node   *telemetry.Node
	peers  []peers // by worker
}

// peers are the known peers of one worker, by the header's value.
type peers struct{ byHeader map[string]*telemetry.Peer }

// New makes the filter; node is who we are.
func New(p *config.PeerMetadata, node *telemetry.Node, workers int) *Filter {
	return &Filter{policy: p, node: node, peers: make([]peers, workers)}
}

// The slot's first number says that the request carried the headers.
const asked = 0

// Decode implements filter.HTTP.
func (f *Filter) Decode(x *filter.Exchange, s *filter.Slot) filter.Verdict {
	h := x.Request
	if byHeaders(f.policy.DownstreamDiscovery) {
		if v := h.Get(httpmsg.XEnvoyPeerMetadata); v != nil {
			x.Record.Peer = f.peer(x.Worker.Index(), v)
		}
		if h.Has(httpmsg.XEnvoyPeerMetadata) || h.Has(httpmsg.XEnvoyPeerMetadataID) {
			s.N[asked] = 1
		}
		h.Del(httpmsg.XEnvoyPeerMetadata)
		h.Del(httpmsg.XEnvoyPeerMetadataID)
	}
	if f.policy.UpstreamPropagation && f.node != nil && f.tells(x) {
		h.SetString(httpmsg.XEnvoyPeerMetadataID, f.node.ID)
		h.SetString(httpmsg.XEnvoyPeerMetadata, f.node.Header)
	}
	return filter.Continue
}

// Encode implements filter.HTTP.
func (f *Filter) Encode(x *filter.Exchange, s *filter.Slot) {
	h := x.Response
	if byHeaders(f.policy.UpstreamDiscovery) {
		if v := h.Get(httpmsg.XEnvoyPeerMetadata); v != nil {
			x.Record.UpstreamPeer = f.peer(x.Worker.Index(), v)
		}
		h.Del(httpmsg.XEnvoyPeerMetadata)
		h.Del(httpmsg.XEnvoyPeerMetadataID)
	}
	if f.policy.DownstreamPropagation && f.node != nil && s.N[asked] != 0 {
		h.SetString(httpmsg.XEnvoyPeerMetadataID, f.node.ID)
		h.SetString(httpmsg.XEnvoyPeerMetadata, f.node.Header)
	}
}

func byHeaders(list []config.PeerMethod) bool {
	for _, m := range list {
		if m == config.PeerByHeaders {
			return true
		}
	}
	return false
}

// tells reports whether the cluster may be told: those outside of the mesh are
// not, where the policy says so.
func (f *Filter) tells(x *filter.Exchange) bool {
	c := x.Cluster()
	if c == nil {
		return true
	}
	if c.Metadata.Lookup("istio", "disable_mx") == true {
		return false
	}
	if !f.policy.SkipExternalClusters {
		return true
	}
	if c.Metadata.Lookup("istio", "external") == true {
		return false
	}
	return c.Name != "PassthroughCluster"
}

func (f *Filter) peer(worker int, header []byte) *telemetry.Peer {
	c := &f.peers[worker]
	if p, ok := c.byHeader[string(header)]; ok {
		return p
	}
	if c.byHeader == nil || len(c.byHeader) >= maxPeers {
		c.byHeader = make(map[string]*telemetry.Peer)
	}
	p := telemetry.ParsePeerHeader(header)
	c.byHeader[string(header)] = p
	return p
}
