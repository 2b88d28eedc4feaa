package conform

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// sentPush is a response that is not answered yet.
type sentPush struct{ nonce, version string }

// adsStream is one stream of the proxy. Its fields are guarded by the server.
type adsStream struct {
	ads    *ads
	out    chan proto.Message // nil ends the stream
	names  map[string][]string
	sent   map[string]sentPush
	nonces int

	// delta only: what the proxy was sent, by type, name and version.
	delta bool
	have  map[string]map[string]string
}

func (a *ads) newStream(delta bool) *adsStream {
	s := &adsStream{ads: a, out: make(chan proto.Message, 1024), names: map[string][]string{}, sent: map[string]sentPush{},
		delta: delta, have: map[string]map[string]string{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams = append(a.streams, s)
	return s
}

func (s *adsStream) put(m proto.Message) { s.out <- m }

func (s *adsStream) owesAny(shorts []string) bool {
	return slices.ContainsFunc(shorts, func(short string) bool { _, owes := s.sent[short]; return owes })
}

func (a *ads) remove(s *adsStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams = slices.DeleteFunc(a.streams, func(o *adsStream) bool { return o == s })
	a.mu.notify()
}

// StreamAggregatedResources serves a state-of-the-world stream.
func (a *ads) StreamAggregatedResources(g discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	s := a.newStream(false)
	return serve(s, g.Recv, s.take, g.Send)
}

// DeltaAggregatedResources serves an incremental stream.
func (a *ads) DeltaAggregatedResources(g discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s := a.newStream(true)
	return serve(s, g.Recv, s.takeDelta, g.Send)
}

// request is what requests of both kinds of stream tell.
type request interface {
	GetNode() *core.Node
	GetTypeUrl() string
}

// serve takes requests and sends responses until it is told to end or the proxy
// ends the stream.
func serve[Q request, P proto.Message](s *adsStream, receive func() (Q, error), take func(Q, string), send func(P) error) error {
	a := s.ads
	defer a.remove(s)
	a.work.Go(func() {
		for {
			r, err := receive()
			a.mu.Lock()
			if err != nil {
				s.put(nil)
				a.mu.Unlock()
				return
			}
			if n := r.GetNode(); n != nil {
				a.noteNode(n.GetId())
			}
			take(r, shortName(r.GetTypeUrl()))
			a.mu.Unlock()
		}
	})
	for m := range s.out {
		if m == nil || send(m.(P)) != nil {
			break
		}
	}
	return nil
}

// answered records an ACK or NACK of the last response; false when the request
// is something else.
func (s *adsStream) answered(short, nonce string, refused bool) bool {
	sent, owes := s.sent[short]
	if !owes || sent.nonce != nonce {
		return false
	}
	delete(s.sent, short)
	verdict := "ack"
	if refused {
		verdict = "nack"
	}
	s.ads.verdicts[verdictKey{short, sent.version}] = verdict
	s.ads.record(short, verdict, object{verdict: sent.version})
	return true
}

func (s *adsStream) take(r *discovery.DiscoveryRequest, short string) {
	answered := s.answered(short, r.ResponseNonce, r.ErrorDetail != nil)
	names := sortedNames(r.ResourceNames)
	known, is := s.names[short]
	switch {
	case !is || !slices.Equal(names, known):
		s.names[short] = names
		entry := object{"subscribe": listOf(names)}
		if r.VersionInfo != "" && !is {
			entry["version"] = r.VersionInfo
		}
		s.ads.record(short, "subscribe", entry)
		s.send(short, nil)
	case !answered && r.ResponseNonce == "":
		s.ads.record(short, "subscribe", object{"subscribe": listOf(names), "again": true})
		s.send(short, nil)
	}
}

// isWild says whether an empty subscription to the type means everything.
func isWild(short string) bool { return short == "CDS" || short == "LDS" }

// send sends the state of a type, if it is subscribed to and there is one.
func (s *adsStream) send(short string, asked []string) {
	names, subscribed := s.names[short]
	state := s.ads.state[short]
	if !subscribed || state == nil {
		return
	}
	if s.delta {
		s.sendDelta(short, state, asked)
		return
	}
	var chosen []*anypb.Any
	for _, r := range state.resources {
		if isWild(short) && len(names) == 0 || slices.Contains(names, r.name) || slices.Contains(names, "*") || state.unasked {
			chosen = append(chosen, r.any)
		}
	}
	nonce := s.nextNonce(short, state.version)
	s.put(&discovery.DiscoveryResponse{VersionInfo: state.version, TypeUrl: typeURL(short), Nonce: nonce, Resources: chosen})
}

func (s *adsStream) nextNonce(short, version string) string {
	s.nonces++
	nonce := strconv.Itoa(s.nonces)
	s.sent[short] = sentPush{nonce, version}
	return nonce
}

func (s *adsStream) takeDelta(r *discovery.DeltaDiscoveryRequest, short string) {
	s.answered(short, r.ResponseNonce, r.ErrorDetail != nil)
	_, known := s.names[short]
	more, less := sortedNames(r.ResourceNamesSubscribe), sortedNames(r.ResourceNamesUnsubscribe)
	if !known {
		s.names[short] = nil
		if len(more) == 0 && isWild(short) {
			s.names[short] = []string{"*"}
		}
		s.have[short] = maps.Clone(r.InitialResourceVersions)
		if s.have[short] == nil {
			s.have[short] = map[string]string{}
		}
	}
	if known && len(more) == 0 && len(less) == 0 {
		return
	}
	entry := object{}
	if has := slices.Sorted(maps.Keys(r.InitialResourceVersions)); len(has) > 0 {
		entry["has"] = listOf(has)
	}
	if len(less) > 0 {
		entry["unsubscribe"] = listOf(less)
	}
	what := "unsubscribe"
	if len(more) > 0 || !known {
		entry["subscribe"], what = listOf(more), "subscribe"
	}
	s.ads.record(short, what, entry)
	names := append(slices.Clone(s.names[short]), more...)
	s.names[short] = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(less, n) })
	for _, n := range less {
		delete(s.have[short], n)
	}
	s.send(short, more)
}

// sendDelta sends what changed since the proxy was sent the type.
func (s *adsStream) sendDelta(short string, state *adsState, asked []string) {
	names, have := s.names[short], s.have[short]
	var changed []*discovery.Resource
	there, known := map[string]bool{}, map[string]bool{}
	for _, r := range state.resources {
		known[r.name] = true
		if !slices.Contains(names, "*") && !slices.Contains(names, r.name) && !state.unasked {
			continue
		}
		there[r.name] = true
		if version := digest(r.any) + state.salt; have[r.name] != version || slices.Contains(asked, r.name) {
			changed = append(changed, &discovery.Resource{Name: r.name, Version: version, Resource: r.any})
		}
	}
	var gone []string
	for n := range have {
		if !there[n] {
			gone = append(gone, n)
		}
	}
	for _, n := range asked {
		if n != "*" && !known[n] {
			gone = append(gone, n)
		}
	}
	if len(changed) == 0 && len(gone) == 0 && len(have) > 0 {
		s.ads.verdicts[verdictKey{short, state.version}] = "unchanged"
		s.ads.mu.notify()
		return
	}
	for _, n := range gone {
		delete(have, n)
	}
	for _, r := range changed {
		have[r.Name] = r.Version
	}
	slices.Sort(gone)
	nonce := s.nextNonce(short, state.version)
	s.put(&discovery.DeltaDiscoveryResponse{SystemVersionInfo: state.version, TypeUrl: typeURL(short), Nonce: nonce,
		RemovedResources: slices.Compact(gone), Resources: changed})
}

func digest(m *anypb.Any) string {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "unmarshalable"
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:4])
}
