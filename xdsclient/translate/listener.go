//lint:file-ignore SA1019 deprecated fields are still sent, and Envoy still reads them

package translate

import (
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"sluice/internal/config"
)

// defaultBufferLimit is per_connection_buffer_limit_bytes when absent.
const defaultBufferLimit = 1 << 20

func (s scope) listener(m *listener.Listener) *config.Listener {
	s.listenerUnsupported(m)
	out := &config.Listener{
		Meta:                config.Meta{Name: m.GetName()},
		BindToPort:          boolean(m.GetBindToPort(), true) && boolean(m.GetDeprecatedV1().GetBindToPort(), true),
		UseOriginalDst:      boolean(m.GetUseOriginalDst(), false),
		Transparent:         boolean(m.GetTransparent(), false),
		Freebind:            boolean(m.GetFreebind(), false),
		ReusePort:           boolean(m.GetEnableReusePort(), true),
		Internal:            m.GetInternalListener() != nil,
		Backlog:             capped(u32(m.GetTcpBacklogSize(), 0)),
		ExactBalance:        m.GetConnectionBalanceConfig().GetExactBalance() != nil,
		FiltersTimeout:      s.duration("listener_filters_timeout", m.GetListenerFiltersTimeout(), seconds(15)),
		ContinueOnTimeout:   m.GetContinueOnListenerFiltersTimeout(),
		BufferLimit:         capped(u32(m.GetPerConnectionBufferLimitBytes(), defaultBufferLimit)),
		StatPrefix:          m.GetStatPrefix(),
		AccessLogs:          s.accessLogs("access_log", m.GetAccessLog()),
		IgnoreGlobalCxLimit: m.GetIgnoreGlobalConnLimit(),
		DrainModifyOnly:     m.GetDrainType() == listener.Listener_MODIFY_ONLY,
		Direction:           direction(m.GetTrafficDirection()),
	}
	switch {
	case m.GetAddress() != nil:
		out.Address = s.at("address").address(m.Address, false)
	case out.Internal:
		out.Address = config.Address{Internal: m.GetName()}
	default:
		s.at("address").bad("missing: a listener needs an address")
	}
	for i, a := range m.GetAdditionalAddresses() {
		out.Additional = append(out.Additional, s.index("additional_addresses", i).address(a.GetAddress(), false))
	}
	if out.Name == "" {
		out.Name = out.Address.String()
	}
	out.Filters = s.listenerFilters(m.GetListenerFilters())
	s.chains(m, out)
	out.ShellHash = shellHash(m)
	return out
}

// shellHash hashes a listener without its chains, which it puts back.
func shellHash(m *listener.Listener) uint64 {
	chains, last := m.FilterChains, m.DefaultFilterChain
	m.FilterChains, m.DefaultFilterChain = nil, nil
	h := hashMessage(m)
	m.FilterChains, m.DefaultFilterChain = chains, last
	return h
}

func direction(d core.TrafficDirection) config.Direction {
	switch d {
	case core.TrafficDirection_INBOUND:
		return config.Inbound
	case core.TrafficDirection_OUTBOUND:
		return config.Outbound
	}
	return config.Unspecified
}

func (s scope) listenerUnsupported(m *listener.Listener) {
	s.unsupported(m.GetUdpListenerConfig() != nil, "udp_listener_config", "UDP listeners")
	s.unsupported(m.GetApiListener() != nil, "api_listener", "API listeners")
	s.unsupported(m.GetFcdsConfig() != nil, "fcds_config", "filter chain discovery")
	s.unsupported(m.GetConnectionBalanceConfig().GetExtendBalance() != nil, "connection_balance_config.extend_balance", "connection balance extensions")
}

// chains converts the filter chains and checks that no two match the same.
func (s scope) chains(m *listener.Listener, out *config.Listener) {
	if len(m.GetFilterChains()) == 0 && m.GetDefaultFilterChain() == nil {
		s.at("filter_chains").bad("no filter chains specified")
	}
	seen := map[string]string{}
	for i, c := range m.GetFilterChains() {
		at := s.index("filter_chains", i)
		chain := at.chain(c)
		if m.GetFilterChainMatcher() == nil {
			at.unique(chain, i, seen)
		} else if _, twice := seen[chain.Name]; twice || chain.Name == "" {
			at.at("name").bad("with filter_chain_matcher every chain needs a name of its own")
		} else {
			seen[chain.Name] = chain.Name
		}
		out.Chains = append(out.Chains, chain)
	}
	out.Matcher = s.at("filter_chain_matcher").chainMatcher(m.GetFilterChainMatcher(), 0)
	if d := m.GetDefaultFilterChain(); d != nil {
		out.DefaultChain = s.at("default_filter_chain").chain(d)
	}
}

// unique refuses a chain with a matching rule that another has: which of the
// two would serve would be chance.
func (s scope) unique(c *config.FilterChain, i int, seen map[string]string) {
	name := c.Name
	if name == "" {
		name = fmt.Sprintf("filter_chains[%d]", i)
	}
	for _, rule := range matchRules(&c.Match) {
		if other, ok := seen[rule]; ok {
			s.at("filter_chain_match").bad("filter chain '%s' has the same matching rules defined as '%s'", name, other)
			return
		}
		seen[rule] = name
	}
}

// maxRules bounds the combinations of one match that are compared.
const maxRules = 1 << 14

// matchRules gives a match's combinations, one text for each, for two lists
// overlap when one combination is in both.
func matchRules(m *config.FilterChainMatch) []string {
	rules := []string{fmt.Sprintf("%d|%s|%d|%s|%d", m.DestinationPort, m.TransportProtocol, m.SourceType, m.AddressSuffix, m.SuffixLen)}
	cross := func(values []string) {
		if len(values) == 0 {
			values = []string{""}
		}
		if len(rules)*len(values) > maxRules {
			for i := range rules {
				rules[i] += fmt.Sprintf("|%q", values)
			}
			return
		}
		next := make([]string, 0, len(rules)*len(values))
		for _, r := range rules {
			for _, v := range values {
				next = append(next, r+"|"+v)
			}
		}
		rules = next
	}
	cross(prefixTexts(m.PrefixRanges))
	cross(m.ServerNames)
	cross(m.ApplicationProtos)
	cross(prefixTexts(m.DirectSourcePrefix))
	cross(prefixTexts(m.SourcePrefix))
	ports := make([]string, len(m.SourcePorts))
	for i, p := range m.SourcePorts {
		ports[i] = fmt.Sprint(p)
	}
	cross(ports)
	return rules
}

func prefixTexts(in config.Prefixes) []string {
	out := make([]string, len(in))
	for i, p := range in {
		out[i] = p.String()
	}
	return out
}

func (s scope) chain(c *listener.FilterChain) *config.FilterChain {
	s.unsupported(boolean(c.GetUseProxyProto(), false), "use_proxy_proto", "use the proxy_protocol listener filter")
	out := &config.FilterChain{
		Name:             c.GetName(),
		Hash:             hashMessage(c),
		Match:            s.at("filter_chain_match").chainMatch(c.GetFilterChainMatch()),
		TransportTimeout: s.duration("transport_socket_connect_timeout", c.GetTransportSocketConnectTimeout(), 0),
		Metadata:         metadata(c.GetMetadata()),
	}
	if ts := c.GetTransportSocket(); ts != nil {
		s.at("transport_socket").downstreamSocket(ts, out)
	}
	s.networkFilters(c.GetFilters(), out)
	return out
}

func (s scope) downstreamSocket(ts *core.TransportSocket, out *config.FilterChain) {
	t, ok := s.at("typed_config").unwrap(ts.GetName(), ts.GetTypedConfig())
	if !ok {
		return
	}
	decode, ok := s.r.DownstreamSockets[t.name]
	if !ok {
		s.missing(ts.GetName(), t.name)
		return
	}
	decode(s.at("typed_config"), t, out)
}

// missing notes an extension we don't have, and why when the registry knows it.
func (s scope) missing(name, url string) {
	if why, ok := s.r.Unsupported[url]; ok {
		s.bad("not supported yet: '%s' (%s): %s", name, url, why)
		return
	}
	s.bad("didn't find a registered implementation for '%s' with type URL: '%s'", name, url)
}

func (s scope) chainMatch(m *listener.FilterChainMatch) config.FilterChainMatch {
	out := config.FilterChainMatch{
		PrefixRanges:       s.prefixes("prefix_ranges", m.GetPrefixRanges()),
		TransportProtocol:  m.GetTransportProtocol(),
		ApplicationProtos:  m.GetApplicationProtocols(),
		DirectSourcePrefix: s.prefixes("direct_source_prefix_ranges", m.GetDirectSourcePrefixRanges()),
		SourceType:         config.SourceType(m.GetSourceType()),
		SourcePrefix:       s.prefixes("source_prefix_ranges", m.GetSourcePrefixRanges()),
		AddressSuffix:      m.GetAddressSuffix(),
		SuffixLen:          u32(m.GetSuffixLen(), 0),
		SuffixLenSet:       m.GetSuffixLen() != nil,
		ServerNames:        s.serverNames(m.GetServerNames()),
	}
	s.unsupported(out.AddressSuffix != "" || out.SuffixLenSet, "address_suffix", "Envoy doesn't implement it either")
	if p := u32(m.GetDestinationPort(), 0); p > 65535 {
		s.at("destination_port").bad("%d is more than 65535", p)
	} else {
		out.DestinationPort = uint16(p)
	}
	for i, p := range m.GetSourcePorts() {
		if p > 65535 {
			s.index("source_ports", i).bad("%d is more than 65535", p)
			continue
		}
		out.SourcePorts = append(out.SourcePorts, uint16(p))
	}
	return out
}

// serverNames checks that a wildcard is a whole first label, the only place
// where Envoy takes one.
func (s scope) serverNames(in []string) []string {
	out := lower(in)
	for i, n := range out {
		for j := 0; j < len(n); j++ {
			if n[j] == '*' && (j > 0 || len(n) < 2 || n[1] != '.') {
				s.index("server_names", i).bad("partial wildcards are not supported in \"server_names\": %s", n)
				break
			}
		}
	}
	return out
}
