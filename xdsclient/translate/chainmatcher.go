package translate

import (
	"slices"

	xdscore "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcher "github.com/cncf/xds/go/xds/type/matcher/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/internal/config"
)

// maxMatcherDepth bounds matchers within matchers.
const maxMatcherDepth = 32

// chainMatcher converts filter_chain_matcher.
func (s scope) chainMatcher(m *xdsmatcher.Matcher, depth int) *config.ChainMatcher {
	if m == nil {
		return nil
	}
	if depth > maxMatcherDepth {
		s.bad("more than %d matchers within each other", maxMatcherDepth)
		return nil
	}
	out := &config.ChainMatcher{NoMatch: s.at("on_no_match").chainOutcome(m.GetOnNoMatch(), depth)}
	for i, x := range m.GetMatcherList().GetMatchers() {
		at := s.at("matcher_list").index("matchers", i)
		out.Rules = append(out.Rules, config.ChainRule{When: at.at("predicate").chainCondition(x.GetPredicate(), depth), Then: at.at("on_match").chainOutcome(x.GetOnMatch(), depth)})
	}
	tree := m.GetMatcherTree()
	if tree == nil {
		return out
	}
	s = s.at("matcher_tree")
	out.Input = s.at("input").chainInput(tree.GetInput())
	switch x := tree.GetTreeType().(type) {
	case *xdsmatcher.Matcher_MatcherTree_ExactMatchMap:
		out.Exact = s.at("exact_match_map").outcomes(x.ExactMatchMap, depth)
	case *xdsmatcher.Matcher_MatcherTree_PrefixMatchMap:
		out.Prefixes = s.at("prefix_match_map").outcomes(x.PrefixMatchMap, depth)
	case *xdsmatcher.Matcher_MatcherTree_CustomMatch:
		out.Ranges = s.at("custom_match").chainRanges(x.CustomMatch, depth)
	default:
		s.bad("no map or custom_match")
	}
	return out
}

func (s scope) outcomes(m *xdsmatcher.Matcher_MatcherTree_MatchMap, depth int) map[string]*config.ChainOutcome {
	out := map[string]*config.ChainOutcome{}
	for _, k := range sortedKeys(m.GetMap()) {
		out[k] = s.at("map["+k+"]").chainOutcome(m.Map[k], depth)
	}
	return out
}

func (s scope) chainOutcome(m *xdsmatcher.Matcher_OnMatch, depth int) *config.ChainOutcome {
	if m == nil {
		return nil
	}
	s.unsupported(m.GetKeepMatching(), "keep_matching", "matching on after a match")
	if m.GetMatcher() != nil {
		return &config.ChainOutcome{Matcher: s.at("matcher").chainMatcher(m.GetMatcher(), depth+1)}
	}
	var name wrapperspb.StringValue
	if !s.at("action").unpack(m.GetAction().GetName(), m.GetAction().GetTypedConfig(), &name) {
		return nil
	}
	return &config.ChainOutcome{Chain: name.GetValue()}
}

func (s scope) chainCondition(m *xdsmatcher.Matcher_MatcherList_Predicate, depth int) (out config.ChainCondition) {
	if depth > maxMatcherDepth {
		s.bad("more than %d predicates within each other", maxMatcherDepth)
		return out
	}
	list := func(field string, l *xdsmatcher.Matcher_MatcherList_Predicate_PredicateList) (all []config.ChainCondition) {
		for i, p := range l.GetPredicate() {
			all = append(all, s.index(field, i).chainCondition(p, depth+1))
		}
		return all
	}
	switch x := m.GetMatchType().(type) {
	case *xdsmatcher.Matcher_MatcherList_Predicate_OrMatcher:
		out.Any = list("or_matcher.predicate", x.OrMatcher)
	case *xdsmatcher.Matcher_MatcherList_Predicate_AndMatcher:
		out.All = list("and_matcher.predicate", x.AndMatcher)
	case *xdsmatcher.Matcher_MatcherList_Predicate_NotMatcher:
		not := s.at("not_matcher").chainCondition(x.NotMatcher, depth+1)
		out.Not = &not
	case *xdsmatcher.Matcher_MatcherList_Predicate_SinglePredicate_:
		s = s.at("single_predicate")
		out.Input = s.at("input").chainInput(x.SinglePredicate.GetInput())
		if v := x.SinglePredicate.GetValueMatch(); v != nil {
			out.String = s.at("value_match").xdsString(v)
			return out
		}
		for _, r := range s.at("custom_match").chainRanges(x.SinglePredicate.GetCustomMatch(), depth) {
			out.Ranges = append(out.Ranges, r.Prefix)
		}
	default:
		s.bad("no kind of predicate")
	}
	return out
}

// xdsString converts xDS's matcher of strings, which is Envoy's with another name.
func (s scope) xdsString(m *xdsmatcher.StringMatcher) *config.StringMatch {
	var same matcher.StringMatcher
	b, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(b, &same)
	}
	if err != nil {
		s.bad("%v", err)
		return &config.StringMatch{}
	}
	return s.stringMatch(&same)
}

// chainRanges converts an IPMatcher, longest prefixes first.
func (s scope) chainRanges(m *xdscore.TypedExtensionConfig, depth int) (out []config.ChainRange) {
	var ip xdsmatcher.IPMatcher
	if !s.at("typed_config").unpack(m.GetName(), m.GetTypedConfig(), &ip) {
		return nil
	}
	for i, r := range ip.GetRangeMatchers() {
		at := s.index("range_matchers", i)
		then := at.at("on_match").chainOutcome(r.GetOnMatch(), depth)
		for j, c := range r.GetRanges() {
			if p, ok := at.index("ranges", j).prefix(&core.CidrRange{AddressPrefix: c.GetAddressPrefix(), PrefixLen: c.GetPrefixLen()}); ok {
				out = append(out, config.ChainRange{Prefix: p.Masked(), Then: then, Exclusive: r.GetExclusive()})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b config.ChainRange) int { return b.Prefix.Bits() - a.Prefix.Bits() })
	return out
}

func (s scope) chainInput(m *xdscore.TypedExtensionConfig) config.ChainInput {
	const network = "envoy.extensions.matching.common_inputs.network.v3."
	t, ok := s.at("typed_config").unwrap(m.GetName(), m.GetTypedConfig())
	if !ok {
		return 0
	}
	switch t.name {
	case network + "DestinationIPInput":
		return config.DestinationIP
	case network + "DestinationPortInput":
		return config.DestinationPort
	case network + "SourceIPInput":
		return config.SourceIP
	case network + "SourcePortInput":
		return config.SourcePort
	case network + "DirectSourceIPInput":
		return config.DirectSourceIP
	case network + "SourceTypeInput":
		return config.SourceTypeInput
	case network + "ServerNameInput":
		return config.ServerName
	case network + "TransportProtocolInput":
		return config.TransportProtocol
	case network + "ApplicationProtocolInput":
		return config.ApplicationProtocols
	}
	s.missing(m.GetName(), t.name)
	return 0
}
