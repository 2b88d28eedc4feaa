package config

import "net/netip"

// ChainInput is what a ChainMatcher looks at.
type ChainInput uint8

// The inputs.
const (
	DestinationIP ChainInput = iota
	DestinationPort
	SourceIP
	SourcePort
	DirectSourceIP
	SourceTypeInput // "local" or nothing
	ServerName
	TransportProtocol
	ApplicationProtocols // quoted, with commas
)

// ChainMatcher is filter_chain_matcher: it chooses a filter chain by name.
// Either Rules or one of Exact, Prefixes and Ranges is set.
type ChainMatcher struct {
	Rules    []ChainRule // the first that holds and comes to a chain
	Input    ChainInput  // of the others
	Exact    map[string]*ChainOutcome
	Prefixes map[string]*ChainOutcome // the longest that fits
	Ranges   []ChainRange             // longest prefixes first
	NoMatch  *ChainOutcome            // nil: nothing
}

// ChainOutcome is a chain's name, or a matcher to go on with.
type ChainOutcome struct {
	Chain   string
	Matcher *ChainMatcher
}

// ChainRule is one rule of a list.
type ChainRule struct {
	When ChainCondition
	Then *ChainOutcome
}

// ChainCondition holds if all of All, or one of Any, or not Not holds, or the
// input fits String or Ranges: one of these is set.
type ChainCondition struct {
	All, Any []ChainCondition
	Not      *ChainCondition
	Input    ChainInput
	String   *StringMatch
	Ranges   Prefixes
}

// ChainRange is an address range. Exclusive: where its outcome comes to nothing,
// wider ranges aren't tried.
type ChainRange struct {
	Prefix    netip.Prefix
	Then      *ChainOutcome
	Exclusive bool
}
